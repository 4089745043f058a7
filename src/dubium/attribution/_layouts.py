"""What the axes of a feature run along: images, rows, columns, or nothing that has a place, such as channels.

An axis is a tuple of parts, the slowest first. A feature map (B, C, h, w) has one part an axis; tokens (B, h * w, C)
have rows and columns on one axis; rows that are cut into windows have a coarse part and a fine one, wherever these are.
"""

import math
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

IMAGES, ROWS, COLUMNS, UNPLACED = "images", "rows", "columns", "no place"
TOKENS = "tokens, some of which have no place"
FREQUENCIES = {ROWS: "frequencies of rows", COLUMNS: "frequencies of columns"}


class Part(NamedTuple):
    """A part of an axis. What it runs along is counted in lines: images, rows or columns."""

    along: str  # one of the words above
    size: int
    lines_per_index: int = 1  # how many lines lie between two indices
    feature_lines: int = 0  # how many lines the feature has in this direction, over all its parts
    is_flipped: bool = False  # its first index is the last line
    first_line: float = 0  # of the image, at this resolution; below 0 where lines were padded
    image_lines: float = 0  # how many the image has at this resolution
    skipped: int = 0  # of TOKENS: how many class tokens and registers come first
    token_parts: tuple["Part", ...] = ()  # of TOKENS: what the tokens behind these run along


Axis = tuple[Part, ...]


class Layout(NamedTuple):
    """What each axis of a feature runs along."""

    axes: tuple[Axis, ...]
    row_roll: int = 0  # by how many rows and columns a map of the feature must be rolled to lie as the image does
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

    def forget_axis(self, index: int, size: int) -> "Layout":
        """The layout with an axis, now of another size, that runs along nothing that has a place."""
        return self.replace_axis(index, unplaced_axis(size))

    def resize_axis(self, index: int, size: int) -> "Layout":
        """The layout after a convolution, pooling or interpolation has made an axis longer or shorter.

        An axis that spanned the whole image is taken to span it still; so is a padded one, if the operation's window
        consumes all of the padding.
        """
        part = self.axes[index][0]
        if axis_size(self.axes[index]) == size:
            return self
        if not self.spans_feature(index) or self.roll_along(part.along):
            return self.forget_axis(index, size)
        stride = max(1, part.size // size)
        reach = max(0, part.size - 1 - (size - 1) * stride)  # at least the window's size less 1
        padded = -part.first_line, part.first_line + part.feature_lines - part.image_lines
        if min(padded) >= 0 and sum(padded) <= reach * part.lines_per_index:
            return self.replace_axis(index, (whole_part(part.along, size)._replace(is_flipped=part.is_flipped),))
        first, lines = part.first_line / part.lines_per_index, part.image_lines / part.lines_per_index
        if size < part.size:  # windows of lines, with their centres `stride` lines apart
            first, lines = (first + (reach - stride + 1) / 2) / stride, lines / stride
        else:
            first, lines = first * size / part.size, lines * size / part.size
        part = part._replace(size=size, lines_per_index=1, feature_lines=size, first_line=first, image_lines=lines)
        return self.replace_axis(index, (part,))

    def cut_or_pad_axis(self, index: int, start: int, size: int) -> "Layout":
        """The layout of a slice, or of a padded feature: then `start` is below 0."""
        axis = self.axes[index]
        part = axis[0]
        if axis_size(axis) == size and start == 0:
            return self
        if len(axis) == 1 and part.along == TOKENS and start <= part.skipped:
            return self.replace_axis(index, token_axis(part.token_parts, part.skipped - start, size))
        if not self.spans_feature(index) or part.lines_per_index != 1:
            return self.forget_axis(index, size)
        first = part.first_line + (part.size - start - size if part.is_flipped else start)
        return self.replace_axis(index, (part._replace(size=size, feature_lines=size, first_line=first),))

    def mix_axis(self, index: int, size: int) -> "Layout":
        """The layout after a dense layer along an axis: the axis has a place still if the layer keeps its size.

        A layer from tokens, rows or columns to as many has a bias for each of them.
        """
        axis = self.axes[index]
        is_kept = axis_size(axis) == size and (is_unplaced(axis) or self.is_only_axis_of_its_lines(axis))
        return self if is_kept else self.forget_axis(index, size)

    def spans_feature(self, index: int) -> bool:
        """Whether an axis runs along all rows, or all columns, of the feature (not of the image), and nothing else."""
        axis = self.axes[index]
        is_whole = len(axis) == 1 and axis[0].size * axis[0].lines_per_index == axis[0].feature_lines
        return is_whole and axis[0].along in (ROWS, COLUMNS) and self.is_only_axis_of_its_lines(axis)

    def is_only_axis_of_its_lines(self, axis: Axis) -> bool:
        """Whether an axis holds nothing but rows or columns, and no other axis holds any part of the same."""
        own = [part.along for part in expand_tokens(axis)]
        return not {IMAGES, UNPLACED} & {*own} and len(own) == sum(part.along in own for part in self.placed_parts())

    def roll_along(self, along: str) -> int:
        return {ROWS: self.row_roll, COLUMNS: self.column_roll}.get(along, 0)

    def parts(self) -> list[Part]:
        return [part for axis in self.axes for part in axis]

    def placed_parts(self) -> list[Part]:
        """The parts, with what the tokens that have a place run along instead of TOKENS."""
        return expand_tokens(self.parts())

    def is_upright(self) -> bool:
        """Whether the feature is neither rolled nor flipped nor transposed."""
        placed = [part for part in self.placed_parts() if part.along in (ROWS, COLUMNS)]
        order = [part.along for part in placed]
        is_transposed = COLUMNS in order and ROWS in order[order.index(COLUMNS) :]
        return not (self.row_roll or self.column_roll or is_transposed or any(part.is_flipped for part in placed))


def image_layout(shape: Sequence[int]) -> Layout:
    """The layout of images (B, C, H, W)."""
    batch, channels, height, width = shape
    parts = (whole_part(IMAGES, batch), Part(UNPLACED, channels), whole_part(ROWS, height), whole_part(COLUMNS, width))
    return Layout(tuple([(part,) for part in parts]))


def whole_part(along: str, size: int) -> Part:
    return Part(along, size, feature_lines=size, image_lines=size)


def unplaced_axis(size: int) -> Axis:
    return (Part(UNPLACED, size),)


def axis_size(axis: Sequence[Part]) -> int:
    return math.prod([part.size for part in axis])


def is_unplaced(axis: Axis) -> bool:
    return all(part.along == UNPLACED for part in axis)


def expand_tokens(parts: Sequence[Part]) -> list[Part]:
    return [each for part in parts for each in part.token_parts or (part,)]


def flip_part(part: Part) -> Part:
    if part.along == TOKENS:
        skipped = part.size - part.skipped - axis_size(part.token_parts)
        return part._replace(skipped=skipped, token_parts=tuple([flip_part(each) for each in part.token_parts]))
    return part if part.along == UNPLACED else part._replace(is_flipped=not part.is_flipped)


def token_axis(token_parts: Axis, skipped: int, size: int) -> Axis:
    """An axis of `size` tokens: behind the `skipped` first, which have no place, those that run along `token_parts`."""
    if skipped + axis_size(token_parts) > size:
        return unplaced_axis(size)  # tokens that have a place are missing
    if axis_size(token_parts) == size:
        return token_parts
    return (Part(TOKENS, size, skipped=skipped, token_parts=token_parts),)


@lru_cache(maxsize=1024)
def reshape_layout(layout: Layout, shape: tuple[int, ...]) -> Layout | None:
    """The layout of a reshaped feature: parts are distributed over the new axes, and cut where an axis ends.

    None if a part would have to be cut unevenly: the layout is then unknown.
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
                if part.size % room or part.along == TOKENS:
                    return None
                fine_size = part.size // room
                waiting.append(part._replace(size=fine_size))
                part = part._replace(size=room, lines_per_index=part.lines_per_index * fine_size)
            if room % part.size:
                return None
            room //= part.size
            parts.append(part)
        if room != 1:
            return None
        axes.append(join_parts(parts) or unplaced_axis(size))
    return layout._replace(axes=tuple(axes))


def join_parts(parts: Sequence[Part]) -> Axis:
    """Parts that continue one another are one; those of size 1 that have no place are left out."""
    joined = list[Part]()
    for part in [each for each in parts if each.size > 1 or each.along != UNPLACED]:
        last = joined[-1] if joined else None
        if last is not None and last.along == part.along == UNPLACED:
            joined[-1] = Part(UNPLACED, last.size * part.size)
        elif (
            last is not None
            and not part.token_parts
            and last == part._replace(size=last.size, lines_per_index=part.lines_per_index * part.size)
        ):
            joined[-1] = part._replace(size=last.size * part.size)
        else:
            joined.append(part)
    return tuple(joined)
