"""Images and overlays of stored rows: inline for pages, and as PNG files."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from dubium.data.fit import resize_image
from dubium.data.image_files import read_image
from dubium.figures import data_url, is_small, overlay, picture, smooth_map, smooth_words
from dubium.run.store import Array, Row

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_CLASSES = 5
THUMBNAIL_PIXELS = 2**20  # dubium writes at most 256 x 256


def row_image(row: Row) -> Float[Tensor, "C H W"]:
    """The thumbnail's pixels; grey if there is none."""
    if row.thumbnail is None:
        return torch.full((1, *row.image_size), 0.5)
    return read_image(row.thumbnail, pixels=THUMBNAIL_PIXELS)


def row_overlay(row: Row, kind: str, *, smooth: float = 0.0) -> NDArray[Any]:
    """A map over the thumbnail, at the thumbnail's size; smoothed by so many of the map's pixels."""
    image = row_image(row)
    return overlay(image, resize_image(drawn_map(row, kind, smooth)[None], image.shape[1:])[0])


def drawn_map(row: Row, kind: str, smooth: float = 0.0) -> Float[Tensor, "H W"]:
    """A row's map as it is drawn: smoothed by so many of its pixels."""
    return smooth_map(torch.from_numpy(row.coarse_maps()[kind].copy()), smooth)


def img_element(array: NDArray[Any], alt: str) -> str:
    """An image element; `alt` is escaped already."""
    height, width = array.shape[:2]
    pixels = ' class="pixels"' if is_small(array) else ""
    return f'<img{pixels} src="{data_url(array)}" alt="{alt}" width="{width}" height="{height}" loading="lazy">'


def place_of_peak(array: Array) -> str:
    """Where the highest value of a map is, in words: one of nine places."""
    row, column = np.unravel_index(int(np.argmax(array)), array.shape)
    return place_in_words(int(3 * row // array.shape[0]), int(3 * column // array.shape[1]))


def place_of_most(array: Array | NDArray[np.bool_]) -> str:
    """The ninth of the image with the highest sum, in words."""
    bands = [np.array_split(band, 3, axis=1) for band in np.array_split(array, 3, axis=0)]
    return place_in_words(*divmod(int(np.argmax([[part.sum() for part in band] for band in bands])), 3))


def place_in_words(row: int, column: int) -> str:
    words = ("top", "middle", "bottom")[row], ("left", "centre", "right")[column]
    return "centre" if words == ("middle", "centre") else " ".join(words)


def likely_classes(row: Row, most: int = MOST_CLASSES) -> list[int]:
    """The classes worth showing: the two likeliest, and others that some network gives 2 %."""
    order = np.argsort(-row.probs, kind="stable")[:most].tolist()
    return [k for place, k in enumerate(order) if place < 2 or row.members[:, k].max() >= 0.02]


def row_figure(row: Row, names: Sequence[str] | None, title: str = "", *, smooth: float = 0.0) -> "Figure":
    """Image, maps, scores and the networks' probabilities of one row."""
    from matplotlib.figure import Figure

    kinds = list(row.stored_maps())
    figure = Figure(figsize=(2.1 * (1 + len(kinds)) + 2.8, 2.75), dpi=110)
    axes = figure.subplots(1, 2 + len(kinds), width_ratios=[1] * (1 + len(kinds)) + [1.15])
    figure.subplots_adjust(left=0.01, right=0.985, bottom=0.16, top=0.8, wspace=0.08)
    axes[0].imshow(picture(row_image(row)), interpolation="nearest")
    axes[0].set_title("image", fontsize=10)
    for axis, kind in zip(axes[1:-1], kinds, strict=True):
        axis.imshow(row_overlay(row, kind, smooth=smooth), interpolation="nearest")
        axis.set_title(f"{kind} {getattr(row, kind):.3f} nats", fontsize=10)
    for axis in axes[:-1]:
        axis.axis("off")
    draw_votes(axes[-1], row, names)
    if smooth:
        figure.text(0.012, 0.03, smooth_words(smooth), fontsize=8)
    figure.suptitle(title, x=0.012, ha="left", fontsize=10.5, fontweight="bold")
    return figure


def draw_votes(axis: Any, row: Row, names: Sequence[str] | None) -> None:
    """Mean probability as a bar, each network's as a tick."""
    classes = likely_classes(row)
    places = range(len(classes))
    axis.barh(places, [row.probs[k] for k in classes], height=0.6, color="#9cc3df")
    for place, k in zip(places, classes, strict=True):
        axis.plot(
            row.members[:, k], [place] * len(row.members), "|", color="#1c1d22", markersize=11, markeredgewidth=1.4
        )
    axis.set(xlim=(0, 1), ylim=(len(classes) - 0.4, -0.6), yticks=list(places))
    axis.set_yticklabels([names[k] if names else str(k) for k in classes], fontsize=9)
    axis.tick_params(labelsize=8, length=2)
    axis.set_title(f"probabilities of {len(row.members)} networks", fontsize=10)
    axis.spines[["top", "right"]].set_visible(False)
    box = axis.get_position()
    axis.set_position((box.x0 + 0.03, box.y0, box.width - 0.03, box.height))
