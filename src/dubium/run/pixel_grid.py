"""A mask on a network's grid, as it lies on an image: area, box and run lengths, without the image's pixels in memory.

Each pixel of the part that the network saw belongs to the cell of the grid that is nearest to its centre. A photo of
100 million pixels costs no more than the grid and the run lengths that come out.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from dubium.data.fit import Box

Integers = NDArray[np.int64]
Mask = NDArray[np.bool_]
OUTSIDE = -1  # the cell of pixels that the network did not see


@dataclass(frozen=True, eq=False)
class GridAxis:
    """One side of an image in pieces: the cell of the grid that each lies in, and its pixels (1 or more)."""

    cells: Integers
    lengths: Integers

    @cached_property
    def edges(self) -> Integers:
        """Where each piece begins, and the end of the last."""
        return np.concatenate([[0], np.cumsum(self.lengths)])


def grid_axis(count: int, size: int, start: int, stop: int) -> GridAxis:
    """`count` cells over the pixels from `start` to `stop` of `size`; cells that get no pixel are left out.

    >>> grid_axis(2, 8, 1, 7).cells.tolist(), grid_axis(2, 8, 1, 7).lengths.tolist()
    ([-1, 0, 1, -1], [1, 3, 3, 1])
    """
    numbers = np.arange(count + 1, dtype=np.int64)
    begins = -((count - 2 * (stop - start) * numbers) // (2 * count))  # ceil((2 n numbers - count) / (2 count))
    lengths = np.diff(np.concatenate([[0], start + begins, [size]]))
    cells = np.concatenate([[OUTSIDE], numbers[:-1], [OUTSIDE]])
    return GridAxis(cells[lengths > 0], lengths[lengths > 0])


@dataclass(frozen=True, eq=False)
class GridMask:
    """A mask of pieces, (rows, columns)."""

    values: Mask
    rows: GridAxis
    columns: GridAxis

    def area(self) -> int:
        """Pixels of the image in the mask."""
        return int(self.rows.lengths @ self.values.astype(np.int64) @ self.columns.lengths)

    def box(self) -> Box:
        """(top, left, bottom, right) around the mask, bottom and right excluded; zeros if it is empty."""
        rows, columns = (np.flatnonzero(self.values.any(axis)) for axis in (1, 0))
        if not len(rows):
            return 0, 0, 0, 0
        top, bottom = self.rows.edges[rows[0]], self.rows.edges[rows[-1] + 1]
        left, right = self.columns.edges[columns[0]], self.columns.edges[columns[-1] + 1]
        return int(top), int(left), int(bottom), int(right)

    def counts(self) -> tuple[int, ...]:
        """COCO's run lengths: column by column, the first run of False (0 if there is none), the run of True, ..."""
        height, width = (int(axis.edges[-1]) for axis in (self.rows, self.columns))
        first, last = self.values[0], self.values[-1]
        places = [np.array([0, height * width])]  # where the value changes, counted down each column
        for column, (begin, end) in enumerate(pairwise(self.columns.edges.tolist())):
            inside = self.rows.edges[np.flatnonzero(np.diff(self.values[:, column])) + 1]
            if len(inside):
                places.append((height * np.arange(begin, end)[:, None] + inside).ravel())
            if first[column] != last[column]:
                places.append(height * np.arange(begin + 1, end))
            if column and first[column] != last[column - 1]:
                places.append(np.array([height * begin]))
        lengths = np.diff(np.sort(np.concatenate(places))).tolist()
        return (0, *lengths) if first[0] else tuple(lengths)


def mask_on_image(mask: Mask, size: Sequence[int], box: Box, *, outside: bool = False) -> GridMask:
    """A mask on the part `box` of an image of this height and width; `outside` is its value elsewhere."""
    top, left, bottom, right = box
    rows, columns = grid_axis(mask.shape[0], size[0], top, bottom), grid_axis(mask.shape[1], size[1], left, right)
    values = mask[np.ix_(rows.cells, columns.cells)]
    values[rows.cells == OUTSIDE] = outside
    values[:, columns.cells == OUTSIDE] = outside
    return GridMask(values, rows, columns)
