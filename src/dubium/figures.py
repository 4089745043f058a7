"""Pictures of explanations: overlays, and the figure behind `Explanation.plot`."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from dubium.checks import check_number
from dubium.errors import ImagesError, OptionError
from dubium.gaussian_kernel import fold_kernels
from dubium.types import Images

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from dubium.explanation import Explanation

COLOURS = "inferno"
OPACITY = 0.9
DIMMING = 0.55  # of the image below an opaque map: white pixels would wash out the map's colours
MOST = 8  # images that a figure or a notebook shows
SMALL = 96  # pixels a side, up to which pictures are shown pixel by pixel


def picture(image: Tensor) -> Float[np.ndarray, "H W 3"]:
    """An image (C, H, W) as (H, W, 3) in [0, 1]: clipped if nearly so already, else stretched to fit."""
    array = image.detach().float().cpu().numpy()
    low, high = float(array.min()), float(array.max())
    if low < -0.01 or high > 1.01:
        array = (array - low) / max(high - low, 1e-12)
    array = array[:3] if len(array) >= 3 else array[:1].repeat(3, 0)
    return np.asarray(np.clip(array, 0, 1).transpose(1, 2, 0))


def brightness(maps: Tensor) -> Float[np.ndarray, "H W"]:
    """A map in [0, 1] for colouring. Negative parts are 0; the top half per cent is 1, lest one pixel hide the rest."""
    return np.clip(maps.detach().float().cpu().numpy() / brightest_value(maps), 0, 1)


def brightest_value(maps: Tensor) -> float:
    """The value that is drawn brightest, as is anything above it."""
    array = maps.detach().float().cpu().numpy()
    high = float(np.quantile(array, 0.995))
    return max(high if high > 0 else float(array.max()), 1e-12)


def smooth_map(maps: Float[Tensor, "H W"], smooth: float | int) -> Float[Tensor, "H W"]:
    """A map for the eye: people name regions, not dots. Its sum stays, since the borders reflect.

    Args:
        smooth: standard deviation of a Gaussian blur in the map's own pixels; 0 leaves the map as it is.
    """
    if smooth == 0:
        return maps
    try:
        check_number("smooth", smooth)
    except OptionError as error:
        raise OptionError(f"smooth={smooth!r}; a number of pixels is needed, 0 (as it is) or more.") from error
    offsets = torch.arange(-math.ceil(4 * smooth), math.ceil(4 * smooth) + 1)
    kernel = (-0.5 * (offsets / smooth) ** 2).softmax(0)[None]
    down, across = (fold_kernels(kernel, size)[0].to(maps) for size in maps.shape)
    return down @ maps @ across.mT


def smooth_words(smooth: float | int) -> str:
    """What a picture of smoothed maps says about them; nothing where they are raw."""
    return f"Maps are smoothed by {smooth:g} pixel{'' if smooth == 1 else 's'} for the eye." if smooth else ""


def map_colours(maps: Tensor) -> Float[np.ndarray, "H W 3"]:
    """A map in its colours alone."""
    from matplotlib import colormaps

    return np.asarray(colormaps[COLOURS](brightness(maps))[..., :3])


def map_layer(maps: Tensor) -> Float[np.ndarray, "H W 4"]:
    """A map in its colours, to lie over an image: the stronger, the more opaque."""
    from matplotlib import colormaps

    strength = brightness(maps)
    return np.dstack([colormaps[COLOURS](0.3 + 0.7 * strength)[..., :3], np.sqrt(strength)])


def overlay(image: Tensor, maps: Tensor, opacity: float = OPACITY) -> Float[np.ndarray, "H W 3"]:
    """A map in its colours over a dim grey copy of the image."""
    return layer_over(image, map_layer(maps), opacity)


def layer_over(
    image: Tensor, layer: Float[np.ndarray, "H W 4"], opacity: float = OPACITY
) -> Float[np.ndarray, "H W 3"]:
    """A layer over a dim grey copy of the image."""
    alpha = opacity * layer[..., 3:]
    dim = (1 - DIMMING * opacity) * (0.1 + 0.9 * picture(image).mean(2, keepdims=True))
    return np.asarray((1 - alpha) * dim + alpha * layer[..., :3])


def data_url(pixels: Float[np.ndarray, "H W C"]) -> str:
    """A picture with values in [0, 1] as a data address: PNG if it is small, else WebP."""
    import base64
    import io

    from PIL import Image

    stream, small = io.BytesIO(), max(pixels.shape[:2]) <= SMALL
    image = Image.fromarray((np.clip(pixels, 0, 1) * 255).round().astype(np.uint8))
    image.save(stream, "PNG", optimize=True) if small else image.save(stream, "WEBP", quality=85)
    return f"data:image/{'png' if small else 'webp'};base64,{base64.b64encode(stream.getvalue()).decode()}"


def three_digits(value: float) -> str:
    """A number by its first three digits, zeros among them: 0.3 and 0.305 are read in one column.

    >>> [three_digits(value) for value in (0.3, 1.1149, 120.4, 0.0000123)]
    ['0.300', '1.11', '120', '1.23e-05']
    """
    return f"{value:#.3g}".rstrip(".")


def percent(part: float) -> str:
    """A part as per cent; with a decimal below 1 %, where most of a thousand classes are.

    >>> percent(0.41), percent(0.0013), percent(0.0), percent(0.00002)
    ('41 %', '0.1 %', '0 %', 'under 0.1 %')
    """
    if 0 < part < 0.0005:
        return "under 0.1 %"
    return f"{part:.{int(0 < part < 0.0095)}%}".replace("%", " %")


def explanation_figure(
    explanation: "Explanation",
    x: Images | None = None,
    *,
    classes: "Sequence[str] | None" = None,
    most: int = MOST,
    opacity: float = OPACITY,
    smooth: float | int = 0,
) -> "Figure":
    """One row per image: the image with its prediction, then a map per kind with its score and its own colour bar.

    Args:
        explanation: what to draw.
        x: its images; those that it keeps if none are given.
        classes: their names; those of the explanation if none are given.
        most: images to draw; the figure says so if there are more.
        opacity: of the brightest pixels of a map.
        smooth: blurs what is drawn by so many pixels, and says so; the explanation's maps stay as they are.
    """
    from matplotlib.figure import Figure

    check_number("most", most, whole=True)
    x, names = shown_images(explanation, x), explanation.class_names if classes is None else classes
    if names is not None and (not isinstance(names, Sequence) or len(names) != explanation.probs.shape[1]):
        raise OptionError(
            f"classes={names!r}; a list of names is needed, one for each of {explanation.probs.shape[1]} classes."
        )

    def label(column: int) -> str:
        return drawable_name(names[column] if names else "", class_numbers(explanation)[column])

    kinds, rows = list(explanation.maps), max(1, min(len(x), most))
    figure = Figure(figsize=(2.6 * (1 + len(kinds)), 2.6 * rows), layout="constrained")
    axes = figure.subplots(rows, 1 + len(kinds), squeeze=False)
    for axis in axes.flat:
        axis.axis("off")
    for index, (row, image) in enumerate(zip(axes, x[:most], strict=False)):
        probability, column = torch.as_tensor(explanation.probs[index]).max(0)
        row[0].imshow(picture(image), interpolation="nearest")
        row[0].set_title(f"{label(int(column))}, p = {float(probability):.2f}", fontsize=9, parse_math=False)
        for axis, kind in zip(row[1:], kinds, strict=True):
            maps = smooth_map(torch.as_tensor(explanation.maps[kind][index]), smooth)
            axis.imshow(overlay(image, maps, opacity), interpolation="nearest")
            axis.set_title(f"{kind} {three_digits(float(explanation.scores[kind][index]))}", fontsize=9)
            draw_colour_bar(figure, axis, maps)
    left_out = f"The first {most} of {len(x)} images; most={len(x)} draws all." if len(x) > most else ""
    pair = f"Classes {label(0)} and {label(1)} alone." if "pair" in explanation.options else ""
    if words := " ".join(filter(None, [pair, left_out, smooth_words(smooth)])):
        figure.suptitle(words, fontsize=8, parse_math=False)
    return figure


def class_numbers(explanation: "Explanation") -> list[int]:
    """The number of the class in each column of `probs`: of a pair, those of its two classes."""
    return list(explanation.options.get("pair") or range(explanation.probs.shape[1]))


def class_labels(explanation: "Explanation") -> list[str]:
    """What the columns of `probs` are called: by name, or by number where there are no names."""
    return list(explanation.class_names or map(str, class_numbers(explanation)))


def pair_words(explanation: "Explanation") -> str:
    """Which classes a pair is of; nothing where all classes were explained."""
    return f"classes {' and '.join(class_labels(explanation))} alone" if explanation.options.get("pair") else ""


def shown_images(explanation: "Explanation", x: Images | None) -> Images:
    """The images to draw: those that are given, or those that the explanation keeps."""
    if x is None and explanation.images is None:
        raise ImagesError(
            "The explanation has no images. Give them (result.plot(x)), or explain with keep_images=True."
        )
    x = torch.as_tensor(explanation.images if x is None else x)
    if tuple(x.shape[:1] + x.shape[2:]) != (len(explanation.probs), *explanation.input_shape[2:]):
        raise ImagesError(
            f"x has shape {tuple(x.shape)}, the explanation is of images {explanation.input_shape}. "
            "Give the images that were explained."
        )
    return x


def drawable_name(name: str, label: int) -> str:
    """A class's name, or its number where there is no name or matplotlib's font lacks a letter of it."""
    from matplotlib.font_manager import FontProperties, findfont, get_font

    letters = get_font(findfont(FontProperties())).get_charmap()
    return name if name and all(ord(letter) in letters for letter in name) else str(label)


def draw_colour_bar(figure: "Figure", axis: "Axes", maps: Float[Tensor, "H W"]) -> None:
    """A bar beside a map that says what its colours mean: short numbers, and a power of ten above them."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize
    from matplotlib.ticker import MaxNLocator

    highest = brightest_value(maps)
    power = math.floor(math.log10(highest))
    power = 0 if power in (-1, 0, 1) else power
    bar = figure.colorbar(
        ScalarMappable(Normalize(0, highest / 10.0**power), COLOURS), ax=axis, fraction=0.046, pad=0.02, format="{x:g}"
    )
    bar.ax.tick_params(labelsize=6)
    bar.locator = MaxNLocator(5, steps=[1, 2, 5, 10])
    bar.update_ticks()
    if power:
        bar.ax.set_title(f"1e{power}", fontsize=6)
