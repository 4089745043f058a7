"""Regions on a page: their outlines over a map, and where they are in words."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dubium.report.pictures import place_of_most
from dubium.run.region_rows import RegionRow, regions_of_row
from dubium.run.store import Row

MOST = 3  # regions that are named in words
LONGEST = 256  # pixels a side of the grid on which outlines are drawn


def outlines_svg(row: Row, kind: str) -> str:
    """Lines around the bright regions of one map, to lie over its picture; nothing where there are none."""
    bright = [region for region in regions_of_row(row, kind) if not region.is_remainder]
    step = -(-max(row.image_size) // LONGEST)
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


def places_text(row: Row, kind: str) -> str:
    """The largest regions of a row in words: "41 % at the top centre, 22 % at the bottom left, 37 % elsewhere"."""
    regions = regions_of_row(row, kind)
    named = [region for region in regions if not region.is_remainder][:MOST]
    if not named:
        return ""
    places = [f"{percent(region.share)} at the {region_place(region, row)}" for region in named]
    rest = 1 - sum(region.share for region in named)
    return ", ".join([*places, f"{percent(rest)} elsewhere"])


def region_place(region: RegionRow, row: Row) -> str:
    """The ninth of the image that has most of a region's pixels."""
    return place_of_most(region.mask(row.image_size))


def percent(part: float) -> str:
    return f"{part:.0%}".replace("%", " %")


def first_kind(kinds: Sequence[str]) -> str | None:
    """The kind whose regions are put in words: epistemic if there is such a map."""
    return "epistemic" if "epistemic" in kinds else next(iter(kinds), None)
