"""Where the numbers of a feature lie in the image, by its layout; and its gradients as maps."""

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import pad

from dubium.attribution._layouts import COLUMNS, IMAGES, ROWS, Layout, Part


class PartNumbers(NamedTuple):
    """Which parts of a feature's axes are images, rows, columns and channels, the slowest first."""

    images: tuple[int, ...]
    rows: tuple[int, ...]
    columns: tuple[int, ...]
    channels: tuple[int, ...]


class Place(NamedTuple):
    """How the numbers of a feature are laid out as maps: what is done with its axes, in this order."""

    splits: tuple[tuple[int, tuple[int, ...]], ...]  # (axis, sizes of its parts), from the last axis to the first
    token_splits: tuple[tuple[int, int, tuple[int, ...]], ...]  # (part, how many tokens to skip, sizes of the others)
    flipped: tuple[int, ...]
    order: PartNumbers
    border: tuple[int, int, int, int]  # zeros left, right, above and below: lines of the image that were cut off
    rolls: tuple[int, int]
    part_axes: tuple[int, ...]  # of each part, the feature's own axis that it is a part of

    def has_channels_on(self, axis: int) -> bool:
        """Whether all channels are on this axis of the feature, and nothing else is."""
        return all((n in self.order.channels) == (number == axis) for n, number in enumerate(self.part_axes))

    def to_maps(self, gradient: Tensor) -> Float[Tensor, "t B h w S C"]:
        """A gradient (t, S, *shape) as maps; tokens and padded lines, which have no place, are left out."""
        for axis, sizes in self.splits:
            gradient = gradient.unflatten(2 + axis, sizes)
        for part_number, skipped, sizes in self.token_splits:
            tokens = gradient.narrow(2 + part_number, skipped, math.prod(sizes))
            gradient = tokens.unflatten(2 + part_number, sizes)
        if self.flipped:
            gradient = gradient.flip([2 + axis for axis in self.flipped])
        images, rows, columns, channels = [[2 + axis for axis in axes] for axes in self.order]
        maps = gradient.permute(0, *images, *rows, *columns, 1, *channels)
        for axis, axes in ((1, images), (2, rows), (3, columns), (5, channels)):
            if len(axes) != 1:
                maps = maps.flatten(axis, axis + len(axes) - 1) if axes else maps.unsqueeze(axis)
        maps = pad(maps, (0, 0, 0, 0, *self.border)) if any(self.border) else maps
        return maps.roll(self.rolls, (2, 3)) if any(self.rolls) else maps


@lru_cache(maxsize=1024)
def find_place(layout: Layout, image_count: int) -> Place | None:
    """How a feature is laid out as maps; None if it does not run along all images, rows and columns.

    If two axes run along rows, as queries and keys of attention do, the last one counts: keys index the values.
    """
    parts, placed_parts = layout.parts(), layout.placed_parts()
    part_axes = [n for n, axis in enumerate(layout.axes) for part in axis for _ in part.token_parts or (part,)]
    by_step: dict[str, dict[int, int]] = {IMAGES: {}, ROWS: {}, COLUMNS: {}}  # numbers of parts
    for number, part in enumerate(placed_parts):
        if part.along in by_step:
            by_step[part.along][part.lines_per_index] = number
    order = [[steps[step] for step in sorted(steps, reverse=True)] for steps in by_step.values()]
    images, rows, columns = [[placed_parts[number] for number in numbers] for numbers in order]
    if math.prod([part.size for part in images]) != image_count or not (rows and columns):
        return None
    if not all(cover_all_lines(each) for each in (images, rows, columns) if each):
        return None
    if not all(
        part.first_line < part.image_lines and part.first_line + part.feature_lines > 0 for part in rows + columns
    ):
        return None  # nothing but padded lines
    if all(part.size == 1 for part in (*rows, *columns)) and len(layout.axes) < 4:
        return None  # pooled features (B, C) have no place; a map of one pixel has
    used = {number for numbers in order for number in numbers}
    order.append([number for number in range(len(placed_parts)) if number not in used])
    axes, tokens = reversed([*enumerate(layout.axes)]), reversed([*enumerate(parts)])
    return Place(
        splits=tuple([(n, tuple([part.size for part in axis])) for n, axis in axes if len(axis) != 1]),
        token_splits=tuple(
            [(n, t.skipped, tuple([p.size for p in t.token_parts])) for n, t in tokens if t.token_parts]
        ),
        flipped=tuple([number for number in sorted(used) if placed_parts[number].is_flipped]),
        order=PartNumbers(*[tuple(numbers) for numbers in order]),
        border=(*missing_lines(columns[-1]), *missing_lines(rows[-1])),
        rolls=(layout.row_roll, layout.column_roll),
        part_axes=tuple(part_axes),
    )


def cover_all_lines(parts: Sequence[Part]) -> bool:
    """Whether parts, the coarsest first, cover all lines of the feature, so that no part between them is missing.

    Finer ones may have been pooled away.
    """
    steps = [part.lines_per_index for part in parts]
    return [parts[0].feature_lines, *steps] == [part.size * part.lines_per_index for part in parts] + steps[-1:]


def missing_lines(finest: Part) -> tuple[int, int]:
    """How many lines of the image are missing before and after; below 0 where some were padded."""
    after = finest.image_lines - finest.first_line - finest.feature_lines
    return round(finest.first_line / finest.lines_per_index), round(after / finest.lines_per_index)
