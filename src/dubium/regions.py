"""Regions of a map: its connected bright places, each with the part of the uncertainty that lies in it.

A pixel is bright where the smoothed map has at least `level` times its highest value. Bright pixels that touch, also by
a corner, are one region. What is left is the remainder. Shares are parts of the raw map, not of the smoothed one, so
those of all regions and the remainder add up to 1.
"""

from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from dubium.checks import check_number
from dubium.errors import OptionError
from dubium.figures import percent, smooth_map

LEVEL = 0.5
SIDE_PER_SMOOTH = 18
"""By default a map is smoothed by its longer side over this: 1.6 pixels for MNIST, 12 for 224 x 224."""


@dataclass(frozen=True, eq=False)
class Region:
    """A part of an image, and how much of the uncertainty lies there.

    `box` is (top, left, bottom, right), half-open as Python's slices are: the region lies in `mask[top:bottom,
    left:right]`, and its last row is `bottom - 1`. The text names first and last rows and columns, counted from 0.
    `area` counts pixels, `share` is the region's part of the map's sum.

    >>> mask = torch.tensor([[True, True], [False, False]])
    >>> Region(mask, (0, 0, 1, 2), 2, 0.75, "epistemic")
    Region(epistemic: 75 % in 2 pixels, row 0, columns 0 to 1)
    """

    mask: Bool[Tensor, "H W"]
    box: tuple[int, int, int, int]
    area: int
    share: float
    kind: str
    is_remainder: bool = False

    def __repr__(self) -> str:
        top, left, bottom, right = self.box
        place = "the remainder" if self.is_remainder else f"{span('row', top, bottom)}, {span('column', left, right)}"
        return f"Region({self.kind}: {percent(self.share)} in {self.area} pixel{'s' * (self.area != 1)}, {place})"


def span(noun: str, start: int, stop: int) -> str:
    """Rows or columns from the first to the last, in words; `stop` is excluded.

    >>> span("row", 17, 23), span("column", 4, 5)
    ('rows 17 to 22', 'column 4')
    """
    return f"{noun} {start}" if stop - start <= 1 else f"{noun}s {start} to {stop - 1}"


def map_regions(
    values: Float[Tensor, "H W"], kind: str, *, level: float | int = LEVEL, smooth: float | int | None = None
) -> list[Region]:
    """The regions of one map, the largest share first, and the remainder at the end.

    Args:
        values: a map; what is negative counts as 0.
        kind: what the map shows.
        level: the part of the smoothed map's highest value from which a pixel is bright, above 0 and at most 1.
        smooth: standard deviation of the blur in pixels; None for the longer side over 18, 0 for none.

    Returns:
        At least the remainder. A map of zeros has nothing else, and the remainder's share is then 1.

    >>> two_dots = torch.tensor([[3.0, 0.0, 0.0], [0.0, 0.0, 1.0], [0.0, 0.0, 0.0]])
    >>> map_regions(two_dots, "total", level=0.3, smooth=0)
    [Region(total: 75 % in 1 pixel, row 0, column 0), Region(total: 25 % in 1 pixel, row 1, column 2), \
Region(total: 0 % in 7 pixels, the remainder)]
    """
    check_number("level", level)
    if level > 1:
        raise OptionError(f"level={level}; expected a part of the map's highest value, above 0 and at most 1.")
    values = values.detach().double().cpu().clamp_min(0)
    smoothed = smooth_map(values, max(values.shape) / SIDE_PER_SMOOTH if smooth is None else smooth)
    highest, total = float(smoothed.max()), float(values.sum())
    if total == 0:
        return [make_region(torch.ones_like(values, dtype=torch.bool), values, kind, remainder=True)]
    labels, count = label_components(smoothed >= level * highest)
    regions = [make_region(labels == number, values, kind) for number in range(1, count + 1)]
    remainder = make_region(labels == 0, values, kind, remainder=True)
    rest = 1 - sum(region.share for region in regions)
    return [*sorted(regions, key=lambda region: -region.share), replace(remainder, share=max(0.0, rest))]


def make_region(mask: Bool[Tensor, "H W"], values: Float[Tensor, "H W"], kind: str, remainder: bool = False) -> Region:
    """The region of a mask; its share is 1 where the map is zero everywhere."""
    total = float(values.sum())
    share = float(values[mask].sum()) / total if total else 1.0
    return Region(mask, bounding_box(mask), int(mask.sum()), share, kind, remainder)


def bounding_box(mask: Bool[Tensor, "H W"]) -> tuple[int, int, int, int]:
    """(top, left, bottom, right) around the pixels of a mask, bottom and right excluded; zeros if there is none."""
    rows, columns = (mask.any(axis).nonzero().flatten().tolist() for axis in (1, 0))
    return (rows[0], columns[0], rows[-1] + 1, columns[-1] + 1) if rows else (0, 0, 0, 0)


def label_components(mask: Bool[Tensor, "H W"]) -> tuple[Int[Tensor, "H W"], int]:
    """Number the connected components of a mask from 1, in reading order; 0 where it is False. Corners connect.

    Runs of True in a row that touch a run of the row above are joined, so the cost goes with the number of runs; the
    root of joined runs is the earliest.
    """
    parents: list[int] = []
    above: list[tuple[int, int, int]] = []
    runs: list[tuple[int, int, int, int]] = []
    for row, line in enumerate(mask.numpy(force=True)):
        current = []
        edges = np.flatnonzero(np.diff(line.astype(np.int8), prepend=0, append=0)).tolist()
        for start, stop in zip(edges[::2], edges[1::2], strict=True):
            number = len(parents)
            parents.append(number)
            for left, right, other in above:
                if left <= stop and start <= right:
                    low, high = sorted((find_root(parents, number), find_root(parents, other)))
                    parents[high] = low
            current.append((start, stop, number))
            runs.append((row, start, stop, number))
        above = current
    numbers = {root: place for place, root in enumerate(dict.fromkeys(find_root(parents, run[3]) for run in runs), 1)}
    labels = torch.zeros(mask.shape, dtype=torch.int64)
    for row, start, stop, number in runs:
        labels[row, start:stop] = numbers[find_root(parents, number)]
    return labels, len(numbers)


def find_root(parents: list[int], number: int) -> int:
    while parents[number] != number:
        parents[number] = parents[parents[number]]
        number = parents[number]
    return number
