"""What the axes of a feature run along: images, rows, columns, channels.

An axis is a tuple of parts, the slowest first. A feature map (B, C, h, w) has one part an axis; tokens (B, h * w, C)
have rows and columns on one axis; rows that are cut into windows have a coarse part and a fine one, wherever these are.
"""

import math
from collections.abc import Iterable, Sequence
from functools import cache
from typing import NamedTuple

IMAGES, ROWS, COLUMNS, CHANNELS = "images", "rows", "columns", "channels"
MORE_TOKENS = "tokens, and some that have no place"


class Part(NamedTuple):
    """A part of an axis."""

    along: str  # one of the words above; CHANNELS is whatever has no place
    size: int
    step: int = 1  # how many images, rows or columns lie between two indices
    is_flipped: bool = False  # its first index is the last row or column
    skipped: int = 0  # of MORE_TOKENS: how many class tokens and registers come first
    placed: tuple["Part", ...] = ()  # of MORE_TOKENS: what the tokens behind these run along


Axis = tuple[Part, ...]


class Layout(NamedTuple):
    """What each axis of a feature runs along."""

    axes: tuple[Axis, ...]
    row_roll: int = 0  # a map of the feature, rolled by so many rows and columns, lies as the image does
    column_roll: int = 0

    def permute(self, order: Sequence[int]) -> "Layout":
        return self._replace(axes=tuple([self.axes[axis] for axis in order]))

    def swap(self, first: int, second: int) -> "Layout":
        order = [*range(len(self.axes))]
        order[first], order[second] = second, first
        return self.permute(order)

    def flip(self, axes: Iterable[int]) -> "Layout":
        layout = self
        for number in axes:
            layout = layout.replace_axis(number, tuple([flip_part(part) for part in layout.axes[number]]))
        return layout

    def replace_axis(self, index: int, *axes: Axis) -> "Layout":
        """The layout with any number of axes instead of one; `index` may be negative."""
        index %= len(self.axes)
        return self._replace(axes=(*self.axes[:index], *axes, *self.axes[index + 1 :]))

    def parts(self) -> list[Part]:
        return [part for axis in self.axes for part in axis]

    def pieces(self) -> list[Part]:
        """The parts, with what the tokens that have a place run along instead of MORE_TOKENS."""
        return [piece for part in self.parts() for piece in part.placed or (part,)]

    def is_rolled(self) -> bool:
        return bool(self.row_roll or self.column_roll)

    def is_upright(self) -> bool:
        """Whether the feature is neither rolled nor flipped nor transposed."""
        placed = [part for part in self.pieces() if part.along in (ROWS, COLUMNS)]
        order = [part.along for part in placed]
        is_transposed = COLUMNS in order and ROWS in order[order.index(COLUMNS) :]
        return not (self.is_rolled() or is_transposed or any(part.is_flipped for part in placed))


def image_layout(shape: Sequence[int]) -> Layout:
    """The layout of images (B, C, H, W)."""
    along = (IMAGES, CHANNELS, ROWS, COLUMNS)
    return Layout(tuple([(Part(word, size),) for word, size in zip(along, shape, strict=True)]))


def channels(size: int) -> Axis:
    return (Part(CHANNELS, size),)


def axis_size(axis: Sequence[Part]) -> int:
    return math.prod([part.size for part in axis])


def is_nameless(axis: Axis) -> bool:
    return all(part.along == CHANNELS for part in axis)


def is_all_rows_or_columns(axis: Axis, layout: Layout) -> bool:
    """Whether an axis runs along all rows, or all columns, and nothing else."""
    along = axis[0].along
    return len(axis) == 1 and along in (ROWS, COLUMNS) and [piece.along for piece in layout.pieces()].count(along) == 1


def flip_part(part: Part) -> Part:
    if part.along == MORE_TOKENS:
        skipped = part.size - part.skipped - axis_size(part.placed)
        return part._replace(skipped=skipped, placed=tuple([flip_part(each) for each in part.placed]))
    return part if part.along == CHANNELS else part._replace(is_flipped=not part.is_flipped)


def resize_axis(axis: Axis, size: int) -> Axis:
    """What an axis runs along after a convolution, pooling or another operation has made it longer or shorter.

    It still covers all rows or columns, if it was nothing but these; otherwise what it runs along is not known.
    """
    if axis_size(axis) == size:
        return axis
    is_whole = len(axis) == 1 and axis[0].along in (ROWS, COLUMNS) and axis[0].step == 1
    return (axis[0]._replace(size=size),) if is_whole else channels(size)


def cut_axis(axis: Axis, start: int, size: int, step: int = 1) -> Axis:
    """What a slice of an axis runs along."""
    part = axis[0]
    if axis_size(axis) == size or len(axis) > 1:
        return axis if axis_size(axis) == size else channels(size)
    if part.along == MORE_TOKENS and step == 1 and start <= part.skipped:
        return place_tokens(part.placed, part.skipped - start, size)
    is_every_nth = step > 1 and start < step
    if part.along in (ROWS, COLUMNS) and (is_every_nth or (step == 1 and 2 * size > part.size)):
        return resize_axis(axis, size)  # every second row, or all but a border
    return channels(size)


def place_tokens(placed: Axis, skipped: int, size: int) -> Axis:
    """An axis of `size` tokens: behind the `skipped` first, which have no place, those that run along `placed`."""
    if skipped + axis_size(placed) > size:
        return channels(size)  # tokens that have a place are missing
    return placed if axis_size(placed) == size else (Part(MORE_TOKENS, size, skipped=skipped, placed=placed),)


def mix_axis(axis: Axis, size: int) -> Axis:
    """An axis whose indices a dense layer has mixed.

    As many as before stay what they were: a layer from tokens to tokens has a bias for each of them.
    """
    return axis if axis_size(axis) == size else channels(size)


@cache
def reshape(layout: Layout, shape: tuple[int, ...]) -> Layout | None:
    """The layout of a reshaped feature: parts are distributed over the new axes, and cut where an axis ends.

    None if a part would have to be cut unevenly: then an axis runs along nothing that has a name.
    """
    if 0 in shape:
        return None
    waiting = layout.parts()[::-1]
    axes = list[Axis]()
    for number, size in enumerate(shape):
        parts, room, is_last = list[Part](), size, number == len(shape) - 1
        while waiting and (room > 1 or (waiting[-1].size == 1 and (is_last or size == 1 > len(parts)))):
            part = waiting.pop()
            if part.size > room:  # the axis ends within this part: it has the coarse half, the next axis the fine one
                if part.size % room or part.along == MORE_TOKENS:
                    return None
                fine_size = part.size // room
                waiting.append(part._replace(size=fine_size))
                part = part._replace(size=room, step=part.step * fine_size)
            if room % part.size:
                return None
            room //= part.size
            parts.append(part)
        if room != 1:
            return None
        axes.append(join_parts(parts) or channels(size))
    return layout._replace(axes=tuple(axes))


def join_parts(parts: Sequence[Part]) -> Axis:
    """Parts that continue one another are one."""
    joined = list[Part]()
    for part in parts:
        last = joined[-1] if joined else None
        if last is not None and last.along == part.along == CHANNELS:
            joined[-1] = Part(CHANNELS, last.size * part.size)
        elif last is not None and not part.placed and last == part._replace(size=last.size, step=part.step * part.size):
            joined[-1] = part._replace(size=last.size * part.size)
        else:
            joined.append(part)
    return tuple(joined)
