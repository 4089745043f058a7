"""What operations that move, cut, join or choose along axes do to the layout of a feature."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from dubium.attribution._autograd.graph import FeatureNode
from dubium.attribution._autograd.nodes import signed_number
from dubium.attribution._layouts import (
    MORE_TOKENS,
    ROWS,
    Layout,
    axis_size,
    channels,
    cut_axis,
    is_all_rows_or_columns,
    is_nameless,
    place_tokens,
    reshape,
    resize_axis,
)


class Given(NamedTuple):
    """An input of a node whose layout is known."""

    number: int  # among all inputs
    layout: Layout
    shape: tuple[int, ...]


class Step(NamedTuple):
    """An output of a node, and what is known of the node's inputs."""

    node: FeatureNode
    saved: dict[str, Any]  # by the node, of axes
    output_nr: int
    shape: tuple[int, ...]
    given: list[Given]

    @property
    def first(self) -> Layout:
        return self.given[0].layout

    def axis(self, name: str) -> int:
        """A saved number of an axis, counted from the front of the first input."""
        return int(signed_number(self.saved[name])) % len(self.first.axes)

    def axes(self, name: str) -> list[int]:
        """Saved numbers of axes; all axes, if none was named."""
        saved, count = self.saved[name], len(self.first.axes)
        numbers = saved if isinstance(saved, tuple | list) else () if saved is None else (saved,)
        return [signed_number(number) % count for number in numbers] or [*range(count)]


Rule = Callable[[Step], Layout | None]


def restride_axes(step: Step) -> Layout | None:
    """A view that was changed in place: torch shows its strides, but not those of the tensor that it is a view of.

    Slices and reshapes are recognised; that tensor is taken to be contiguous, or to have channels last in memory.
    """
    size, stride, shape = step.saved["size"], step.saved["stride"], step.given[0].shape
    for own_stride in (contiguous_strides(shape), channels_last_strides(shape)):
        if len(size) == len(shape) and all(n == 1 or a == b for n, a, b in zip(size, stride, own_stride, strict=True)):
            layout, start = step.first, step.saved["storage_offset"] or 0
            for number in sorted(range(len(shape)), key=lambda axis: -own_stride[axis]):
                cut = cut_axis(layout.axes[number], start // own_stride[number], size[number])
                layout, start = layout.replace_axis(number, cut), start % own_stride[number]
            return layout
    is_permuted = sorted(size) == sorted(shape)  # how, is not shown
    is_reshaped = stride == contiguous_strides(size) and math.prod(size) == math.prod(shape)
    return reshape(step.first, size) if is_reshaped and not is_permuted else None


def contiguous_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple([math.prod(shape[axis + 1 :]) for axis in range(len(shape))])


def channels_last_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    image, *positions = contiguous_strides((*shape[:1], *shape[2:], *shape[1:2]))
    return image, *positions[-1:], *positions[:-1]


def reshape_axes(step: Step) -> Layout | None:
    return reshape(step.first, step.shape)


def permute_axes(step: Step) -> Layout:
    return step.first.permute(step.axes("dims"))


def swap_axes(step: Step) -> Layout:
    return step.first.swap(step.axis("dim0"), step.axis("dim1"))


def transpose_matrix(step: Step) -> Layout:
    return step.first.permute([*range(len(step.shape))][::-1])


def flip_axes(step: Step) -> Layout:
    return step.first.flip(step.axes("dims"))


def turn_axes(step: Step) -> Layout:
    first, second = step.axes("dims")
    quarters = signed_number(step.saved["k"]) % 4
    if quarters in (0, 2):
        return step.first.flip([first, second] if quarters else [])
    return step.first.flip([second if quarters == 1 else first]).swap(first, second)


def roll_axes(step: Step) -> Layout | None:
    if not step.saved["dims"]:
        return None  # of all numbers in a row
    layout = step.first
    for number, shift in zip(step.axes("dims"), step.saved["shifts"], strict=True):
        axis, shift = layout.axes[number], signed_number(shift)
        shift = shift if axis[0].is_flipped else -shift
        if not is_all_rows_or_columns(axis, layout):
            layout = layout.replace_axis(number, channels(axis_size(axis))) if shift else layout
        elif axis[0].along == ROWS:
            layout = layout._replace(row_roll=layout.row_roll + shift)
        else:
            layout = layout._replace(column_roll=layout.column_roll + shift)
    return layout


def slice_axis(step: Step) -> Layout:
    number, saved = step.axis("dim"), step.saved
    axis = step.first.axes[number]
    start = min(signed_number(saved["start"]), axis_size(axis))
    start = start + axis_size(axis) if start < 0 else start
    return step.first.replace_axis(number, cut_axis(axis, start, step.shape[number], saved["step"]))


def split_axis(step: Step) -> Layout:
    number = step.axis("dim")
    start = sum(shape[number] for shape in step.node.shapes[: step.output_nr])
    return step.first.replace_axis(number, cut_axis(step.first.axes[number], start, step.shape[number]))


def remove_axis(step: Step) -> Layout:
    return step.first.replace_axis(step.axis("dim"))


def reduce_axes(step: Step) -> Layout:
    layout, keeps = step.first, len(step.shape) == len(step.first.axes)
    for number in sorted(step.axes("dim"), reverse=True):
        layout = layout.replace_axis(number, *([resize_axis(layout.axes[number], 1)] if keeps else []))
    return layout


def repeat_axes(step: Step) -> Layout:
    """`repeat`, which puts copies side by side: an axis with several runs along nothing that has a name."""
    more = len(step.shape) - len(step.first.axes)
    pairs = zip(step.first.axes, step.shape[more:], strict=True)
    axes = [axis if axis_size(axis) in (1, size) else channels(size) for axis, size in pairs]
    axes = [resize_axis(axis, size) for axis, size in zip(axes, step.shape[more:], strict=True)]
    return step.first._replace(axes=(*[channels(size) for size in step.shape[:more]], *axes))


def join_axes(step: Step) -> Layout | None:
    """Concatenation: of channels, of tokens with some that have no place, or of equal features."""
    number, size = step.axis("dim"), step.shape[step.axis("dim")]
    layouts, axes = {each.layout for each in step.given}, [each.layout.axes[number] for each in step.given]
    if all(is_nameless(axis) for axis in axes):
        without = {layout.replace_axis(number) for layout in layouts}
        return step.first.replace_axis(number, channels(size)) if len(without) == 1 else None
    if len(step.given) > 1:
        is_repeated = len(layouts) == 1 and axis_size(axes[0]) * len(axes) == size
        return step.first.replace_axis(number, (*channels(len(axes)), *axes[0])) if is_repeated else None
    if is_all_rows_or_columns(axes[0], step.first):
        return step.first.replace_axis(number, resize_axis(axes[0], size))  # padding by hand
    skipped = count_tokens_before(step, number)
    if skipped is None:
        return None
    part = axes[0][0]
    placed, skipped = (part.placed, skipped + part.skipped) if part.along == MORE_TOKENS else (axes[0], skipped)
    return step.first.replace_axis(number, place_tokens(placed, skipped, size))


def count_tokens_before(step: Step, number: int) -> int | None:
    """How long the inputs of a concatenation are that come before the only one whose layout is known."""
    only, node = step.given[0], step.node
    known = {edge.input: shape[number] for edge, shape in zip(node.edges, node.input_shapes, strict=True)}
    before, after = range(only.number), range(only.number + 1, node.input_count)
    if all(index in known for index in before):
        return sum(known[index] for index in before)
    if all(index in known for index in after):
        return step.shape[number] - only.shape[number] - sum(known[index] for index in after)
    return None


def stack_axes(step: Step) -> Layout | None:
    number = signed_number(step.saved["dim"]) % len(step.shape)
    axes = (*step.first.axes[:number], channels(step.shape[number]), *step.first.axes[number:])
    return step.first._replace(axes=axes) if len({each.layout for each in step.given}) == 1 else None


def take_indices(step: Step) -> Layout | None:
    """What was chosen or put in another order: where it comes from is not followed."""
    saved, layout = step.saved, step.first
    if len(step.shape) != len(layout.axes):
        return None
    indexed = [number for number, index in enumerate(saved.get("indices", ())) if index is not None]
    for number in indexed or step.axes("dim"):
        layout = layout.replace_axis(number, channels(step.shape[number]))
    return layout


def unfold_axis(step: Step) -> Layout:
    number = step.axis("dimension")
    layout = step.first.replace_axis(number, resize_axis(step.first.axes[number], step.shape[number]))
    return layout._replace(axes=(*layout.axes, channels(step.shape[-1])))
