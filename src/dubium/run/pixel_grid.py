"""A mask on a network's grid, as it lies on an image: box, area and run lengths, without the image's pixels in memory.

Each pixel of the part that the network saw belongs to the cell of the grid that is nearest to its centre. A photo of
100 million pixels costs no more than the grid and the run lengths that come out.
"""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from dubium.data.fit import Box

Integers = NDArray[np.int64]
Mask = NDArray[np.bool_]
PlacedMask = tuple[Box, int, tuple[int, ...]]
"""(top, left, bottom, right) around a mask, bottom and right excluded, zeros if it is empty; its pixels; and COCO's run
lengths: column by column, the first run of False (0 if there is none), the run of True, ..."""
OUTSIDE = -1  # the cell of pixels that the network did not see


def mask_on_image(mask: Mask, size: Sequence[int], box: Box, *, outside: bool = False) -> PlacedMask:
    """A mask on the part `box` of an image of this height and width; `outside` is its value elsewhere."""
    top, left, bottom, right = box
    cells, rows = grid_pieces(mask.shape[0], size[0], top, bottom)
    across, columns = grid_pieces(mask.shape[1], size[1], left, right)
    values = mask[np.ix_(cells, across)]
    values[cells == OUTSIDE] = outside
    values[:, across == OUTSIDE] = outside
    counts = run_lengths(values, rows, columns)
    if not values.any():
        return (0, 0, 0, 0), 0, counts
    down, over = (np.flatnonzero(values.any(axis)) for axis in (1, 0))
    placed = int(rows[down[0]]), int(columns[over[0]]), int(rows[down[-1] + 1]), int(columns[over[-1] + 1])
    return placed, int(np.diff(rows) @ values.astype(np.int64) @ np.diff(columns)), counts


def grid_pieces(count: int, size: int, start: int, stop: int) -> tuple[Integers, Integers]:
    """One side of an image in pieces: the cell of the grid that each lies in, and where each begins and the last ends.

    `count` cells cover the pixels from `start` to `stop` of `size`; cells that get no pixel are left out.

    >>> [numbers.tolist() for numbers in grid_pieces(2, 8, 1, 7)]
    [[-1, 0, 1, -1], [0, 1, 4, 7, 8]]
    """
    numbers = np.arange(count + 1, dtype=np.int64)
    begins = -((count - 2 * (stop - start) * numbers) // (2 * count))  # ceil((2 n numbers - count) / (2 count))
    lengths = np.diff(np.concatenate([[0], start + begins, [size]]))
    cells = np.concatenate([[OUTSIDE], numbers[:-1], [OUTSIDE]])
    return cells[lengths > 0], np.concatenate([[0], np.cumsum(lengths[lengths > 0])])


def run_lengths(values: Mask, rows: Integers, columns: Integers) -> tuple[int, ...]:
    """COCO's run lengths of a mask whose pieces, (rows, columns), begin at these pixels."""
    height, width, first, last = int(rows[-1]), int(columns[-1]), values[0], values[-1]
    places = [np.array([0, height * width])]  # where the value changes, counted down each column
    for column, (begin, end) in enumerate(pairwise(columns.tolist())):
        inside = rows[np.flatnonzero(np.diff(values[:, column])) + 1]
        if len(inside):
            places.append((height * np.arange(begin, end)[:, None] + inside).ravel())
        if first[column] != last[column]:
            places.append(height * np.arange(begin + 1, end))
        if column and first[column] != last[column - 1]:
            places.append(np.array([height * begin]))
    lengths = np.diff(np.sort(np.concatenate(places))).tolist()
    return (0, *lengths) if first[0] else tuple(lengths)
