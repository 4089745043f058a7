"""Pictures of stored rows for pages: an image, its maps as layers that a reader can fade, and outlines of regions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from dubium.data.fit import resize_image
from dubium.data.image_files import read_image
from dubium.figures import SMALL, brightest_value, data_url, map_layer, overlay, percent, smooth_map
from dubium.run.row import Array, Row, regions_of_row

THUMBNAIL_PIXELS = 2**20  # dubium writes at most 256 x 256
LONGEST = 256  # pixels a side of the grid on which outlines are drawn
STRIP = 4  # from this ratio of width to height on, pictures are put below each other
STRETCHED = 8  # from this ratio of the sides on, they are drawn thicker than they are
NINTHS = (  # of an image, in reading order
    "top left", "top centre", "top right", "middle left", "centre", "middle right", "bottom left", "bottom centre",
    "bottom right",
)  # fmt: skip
ALEATORIC, EPISTEMIC = (0.25, 0.62, 1.0), (1.0, 0.36, 0.2)  # colours of the contrast


def row_image(row: Row) -> Float[Tensor, "C H W"]:
    """The thumbnail's pixels; grey if there is none."""
    if row.thumbnail is None:
        return torch.full((1, *row.image_size), 0.5)
    return read_image(row.thumbnail, pixels=THUMBNAIL_PIXELS)


def networks_maps(row: Row) -> dict[str, Float[Tensor, "H W"]]:
    """A row's maps by kind, on the networks' own grid."""
    return {kind: torch.from_numpy(array.copy()) for kind, array in row.stored_maps().items()}


def drawn_maps(row: Row, smooth: float = 0.0) -> dict[str, Float[Tensor, "H W"]]:
    """A row's maps as they are drawn, by kind: on the whole image, smoothed by so many of their pixels."""
    return {kind: smooth_map(torch.from_numpy(array.copy()), smooth) for kind, array in row.coarse_maps().items()}


def row_overlay(row: Row, kind: str, *, smooth: float = 0.0) -> NDArray[Any]:
    """A map over the thumbnail, at the thumbnail's size; smoothed by so many of the map's pixels."""
    image = row_image(row)
    return overlay(image, resize_image(drawn_maps(row, smooth)[kind][None], image.shape[1:])[0])


def img_element(array: NDArray[Any], alt: str) -> str:
    """An image element; `alt` is escaped already."""
    height, width = array.shape[:2]
    pixels = ' class="pixels"' if max(height, width) <= SMALL else ""
    return f'<img{pixels} src="{data_url(array)}" alt="{alt}" width="{width}" height="{height}" loading="lazy">'


def map_element(drawn: Float[Tensor, "h w"], size: Sequence[int], words: str) -> str:
    """A map as a layer of this size, with words that say what it is and where it is highest."""
    layer = map_layer(resize_image(drawn[None], size)[0])
    return img_element(layer, f"{words}, most at the {place_of_peak(drawn.numpy())}")


def stage_html(size: Sequence[int], content: str, *, under: bool = False) -> str:
    """Content in a box with the shape of an image (height, width); `under` draws the card's image below it."""
    names = ["stage", *["under"] * under, *["small"] * (max(size) <= SMALL)]
    return f'<div class="{" ".join(names)}" style="--ratio:{size[1] / size[0]:.4g}">{content}</div>'


def maps_row(figures: Sequence[str], size: Sequence[int], *, has_contrast: bool = False) -> str:
    """Figures of an image beside each other; below each other where it is so wide that they would be lines."""
    names = ["maps", *["both"] * has_contrast, *["strips"] * (size[1] >= STRIP * size[0])]
    return f'<div class="{" ".join(names)}">{"".join(figures)}</div>'


def size_words(size: Sequence[int]) -> str:
    """An image's size, and whether it is drawn as it is."""
    is_stretched = max(size) >= STRETCHED * min(size)
    return f"{size[1]} × {size[0]} pixels{', stretched to be seen' * is_stretched}"


@dataclass(frozen=True)
class Contrast:
    """Where the epistemic map has more of its sum than the aleatoric one, and how much both have in common."""

    difference: Float[Tensor, "H W"]
    """Of the maps, each divided by its sum, as a part of their brightest value: from -1 to 1."""
    shared: float
    """The sum of the smaller of both, from 0 (nothing in common) to 1 (the same picture)."""
    words: str
    caption: str


def contrast_of_kinds(maps: Mapping[str, Tensor], drawn: Mapping[str, Tensor] | None = None) -> Contrast | None:
    """The contrast of the aleatoric and the epistemic map; None where one is missing or empty.

    Args:
        maps: on the networks' own grid, neither smoothed nor resized, so that what they share is one number on every
            page.
        drawn: the same maps as they are drawn, which the difference is of; these, if not given.
    """
    both, seen = shares_of_kinds(maps), shares_of_kinds(maps if drawn is None else drawn)
    if both is None or seen is None:
        return None
    shared = float(torch.minimum(*both).sum())
    aleatoric, epistemic = seen
    difference = ((epistemic - aleatoric) / brightest_value(torch.maximum(aleatoric, epistemic))).clamp(-1, 1).float()
    places = [place_of_peak(sign * difference.numpy()) for sign in (-1, 1)]
    return Contrast(
        difference,
        shared,
        f"{percent(shared)} of the aleatoric and the epistemic map is shared; more aleatoric at the {places[0]}, more "
        f"epistemic at the {places[1]}",
        f"contrast <b>{percent(shared)} shared</b>",
    )


def shares_of_kinds(maps: Mapping[str, Tensor]) -> tuple[Tensor, Tensor] | None:
    """The aleatoric and the epistemic map, each divided by its sum; None where one is missing or empty."""
    both = [maps[kind].double().clamp(min=0) for kind in ("aleatoric", "epistemic") if kind in maps]
    if len(both) < 2 or not all(array.sum() > 0 for array in both):
        return None
    return both[0] / both[0].sum(), both[1] / both[1].sum()


def contrast_colours(contrast: Contrast, size: Sequence[int]) -> Float[np.ndarray, "H W 4"]:
    """The contrast as a layer of this size: aleatoric in blue, epistemic in red, nothing where they agree."""
    sized = resize_image(contrast.difference[None], size)[0].numpy()
    colours = np.where(sized[..., None] > 0, np.array(EPISTEMIC), np.array(ALEATORIC))
    return np.dstack([colours, np.sqrt(np.abs(sized))])


def place_of_peak(array: Array) -> str:
    """Where the highest value of a map is, in words: one of nine places."""
    row, column = np.unravel_index(int(np.argmax(array)), array.shape)
    return NINTHS[3 * int(3 * row // array.shape[0]) + int(3 * column // array.shape[1])]


def place_of_most(array: Array | NDArray[np.bool_]) -> str:
    """The ninth of the image with the highest sum, in words."""
    bands = [np.array_split(band, 3, axis=1) for band in np.array_split(array, 3, axis=0)]
    return NINTHS[int(np.argmax([[part.sum() for part in band] for band in bands]))]


def outlines_svg(row: Row, kind: str) -> str:
    """Lines around the bright regions of one map, to lie over its picture; nothing where there are none."""
    step = -(-max(row.image_size) // LONGEST)
    bright = [region for region in regions_of_row(row, kind) if not region.is_remainder]
    masks = [region.mask(row.image_size, step) for region in bright]
    if not masks:
        return ""
    height, width = masks[0].shape
    label = f"Outlines of {len(masks)} region{'s' * (len(masks) != 1)}"
    paths = "".join(f'<path d="{outline_path(mask)}"/>' for mask in masks)
    return f'<svg class="outlines" viewBox="0 0 {width} {height}" role="img" aria-label="{label}">{paths}</svg>'


def outline_path(mask: NDArray[np.bool_]) -> str:
    """The edges between a mask's pixels and those outside, as SVG: horizontal lines, then vertical ones.

    >>> outline_path(np.array([[True]]))
    'M0 0H1M0 1H1M0 0V1M1 0V1'
    """
    across = [f"M{a} {y}H{b}" for y, a, b in edge_runs(mask)]
    down = [f"M{x} {a}V{b}" for x, a, b in edge_runs(mask.T)]
    return "".join([*across, *down])


def edge_runs(mask: NDArray[np.bool_]) -> list[tuple[int, int, int]]:
    """(line, start, stop) of every straight edge between one row of pixels and the next."""
    padded = np.pad(mask, ((1, 1), (0, 0))).astype(np.int8)
    is_edge = np.pad(np.diff(padded, axis=0) != 0, ((0, 0), (1, 1))).astype(np.int8)
    lines, places = np.nonzero(np.diff(is_edge, axis=1))
    pairs = zip(lines[::2].tolist(), places[::2].tolist(), places[1::2].tolist(), strict=True)
    return list(pairs)
