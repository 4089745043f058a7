"""What operations that move, cut or pad along axes do to the layout of a feature."""

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from dubium.attribution._autograd.graph import Operation
from dubium.attribution._autograd.nodes import Node, signed_number
from dubium.attribution._layouts import (
    COLUMNS,
    FREQUENCIES,
    ROWS,
    Layout,
    axis_size,
    reshape_layout,
    unplaced_axis,
)


class KnownInput(NamedTuple):
    """An input of a node whose layout is known."""

    input_nr: int  # among all inputs
    layout: Layout
    shape: tuple[int, ...]


class NodeOutput(NamedTuple):
    """An output of a node, and what is known of the node's inputs."""

    operation: Operation
    arguments: Mapping[str, Any]  # what autograd saved about axes, by the names in `AXIS_ARGUMENTS`
    output_nr: int
    shape: tuple[int, ...]
    known_inputs: list[KnownInput]
    node_to_ask: Node | None = None  # of operations that save no positions: its backward is run to find them

    @property
    def input_layout(self) -> Layout:
        """That of the first known input."""
        return self.known_inputs[0].layout

    def axis_number(self, name: str) -> int:
        """A saved number of an axis, counted from the front of the first known input."""
        return int(signed_number(self.arguments[name])) % len(self.input_layout.axes)

    def axis_numbers(self, name: str) -> list[int]:
        """Saved numbers of axes, counted from the front."""
        saved, count = self.arguments[name], len(self.input_layout.axes)
        numbers = saved if isinstance(saved, tuple | list) else () if saved is None else (saved,)
        return [signed_number(number) % count for number in numbers]


LayoutRule = Callable[[NodeOutput], Layout | None]


def reshape_axes(output: NodeOutput) -> Layout | None:
    return reshape_layout(output.input_layout, output.shape)


def permute_axes(output: NodeOutput) -> Layout:
    return output.input_layout.permute(output.axis_numbers("dims"))


def transpose_axes(output: NodeOutput) -> Layout:
    return output.input_layout.swap(output.axis_number("dim0"), output.axis_number("dim1"))


def transpose_matrix(output: NodeOutput) -> Layout:
    """The transpose of a matrix."""
    return output.input_layout.permute([*range(len(output.shape))][::-1])


def restride_axes(output: NodeOutput) -> Layout | None:
    """A view that was changed in place: torch shows its strides, but not those of the tensor that it is a view of.

    Slices are recognised; that tensor is taken to be contiguous, or to have channels last in memory.
    """
    size, stride, shape = output.arguments["size"], output.arguments["stride"], output.known_inputs[0].shape
    if len(shape) < 3 or 0 in shape or shape[1] in shape[2:]:
        return None  # axes that are as long as others could be swapped
    for own_stride in (contiguous_strides(shape), channels_last_strides(shape)):
        if len(size) == len(shape) and all(n == 1 or a == b for n, a, b in zip(size, stride, own_stride, strict=True)):
            layout, start = output.input_layout, output.arguments["storage_offset"] or 0
            for number in sorted(range(len(shape)), key=lambda axis: -own_stride[axis]):
                layout = layout.cut_or_pad_axis(number, start // own_stride[number], size[number])
                start %= own_stride[number]
            return layout
    return None


def contiguous_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple([math.prod(shape[axis + 1 :]) for axis in range(len(shape))])


def channels_last_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    image, *positions = contiguous_strides((*shape[:1], *shape[2:], *shape[1:2]))
    return image, *positions[-1:], *positions[:-1]


def flip_axes(output: NodeOutput) -> Layout:
    return output.input_layout.flip(output.axis_numbers("dims"))


def rotate_axes(output: NodeOutput) -> Layout:
    first, second = output.axis_numbers("dims")
    layout = output.input_layout
    for _ in range(signed_number(output.arguments["k"]) % 4):
        layout = layout.flip([second]).swap(first, second)
    return layout


def roll_axes(output: NodeOutput) -> Layout | None:
    if not output.arguments["dims"]:
        return None  # of all numbers in a row
    layout = output.input_layout
    for number, shift in zip(output.axis_numbers("dims"), output.arguments["shifts"], strict=True):
        part, shift = layout.axes[number][0], signed_number(shift)
        shift = shift if part.is_flipped else -shift
        is_exact = layout.spans_feature(number) and part.lines_per_index == 1 and part.feature_lines == part.image_lines
        if not is_exact or part.first_line:
            layout = layout.forget_axis(number, output.shape[number]) if shift else layout
        elif part.along == ROWS:
            layout = layout._replace(row_roll=layout.row_roll + shift)
        else:
            layout = layout._replace(column_roll=layout.column_roll + shift)
    return layout


def slice_axis(output: NodeOutput) -> Layout:
    number, layout = output.axis_number("dim"), output.input_layout
    size = axis_size(layout.axes[number])
    start = min(signed_number(output.arguments["start"] or 0), size)
    start = max(0, start + size) if start < 0 else start
    every = output.arguments["step"]
    spanned = min(size - start, output.shape[number] * every)
    covers_all = every > 1 and start < every and start + spanned == size  # x[::n]
    if not covers_all:
        layout = layout.cut_or_pad_axis(number, start, spanned)
    return layout.resize_axis(number, output.shape[number])


def split_axis(output: NodeOutput) -> Layout:
    number = output.axis_number("dim")
    start = sum(shape[number] for shape in output.operation.output_shapes[: output.output_nr])
    return output.input_layout.cut_or_pad_axis(number, start, output.shape[number])


def pad_axes(output: NodeOutput) -> Layout:
    pads, layout = output.arguments["pad" if "pad" in output.arguments else "padding"], output.input_layout
    for number, before in zip(range(len(output.shape))[::-1], pads[::2], strict=False):
        layout = layout.cut_or_pad_axis(number, -signed_number(before), output.shape[number])
    return layout


def remove_axis(output: NodeOutput) -> Layout:
    return output.input_layout.replace_axis(output.axis_number("dim"))


def reduce_axes(output: NodeOutput) -> Layout:
    layout, keeps = output.input_layout, len(output.shape) == len(output.input_layout.axes)
    for number in sorted(output.axis_numbers("dim") or range(len(layout.axes)), reverse=True):
        layout = layout.resize_axis(number, 1) if keeps else layout.replace_axis(number)
    return layout


def repeat_axes(output: NodeOutput) -> Layout:
    """`repeat`, which puts copies of an axis side by side: it then runs along nothing that has a place."""
    new_axes = len(output.shape) - len(output.input_layout.axes)
    layout = output.input_layout
    for number, size in enumerate(output.shape[new_axes:]):
        was_one = axis_size(layout.axes[number]) == 1
        layout = layout.resize_axis(number, size) if was_one else keep_or_forget(layout, number, size)
    return layout._replace(axes=(*[unplaced_axis(size) for size in output.shape[:new_axes]], *layout.axes))


def keep_or_forget(layout: Layout, number: int, size: int) -> Layout:
    """The layout if the axis still has its size; otherwise with an axis that has no place."""
    return layout if axis_size(layout.axes[number]) == size else layout.forget_axis(number, size)


def forget_axes(output: NodeOutput) -> None:
    """Numbers may come from anywhere."""


def unfold_axis(output: NodeOutput) -> Layout:
    number, size = output.axis_number("dimension"), output.arguments["size"]
    count, part = output.shape[number], output.input_layout.axes[number][0]
    if (
        size == output.arguments["step"]
        and output.input_layout.spans_feature(number)
        and part.lines_per_index == 1
        and not part.is_flipped
    ):
        layout = output.input_layout.cut_or_pad_axis(number, 0, count * size)
        part = layout.axes[number][0]
        layout = layout.replace_axis(number, (part._replace(size=count, lines_per_index=size),))
        return layout._replace(axes=(*layout.axes, (part._replace(size=size),)))
    layout = output.input_layout.resize_axis(number, count)
    return layout._replace(axes=(*layout.axes, unplaced_axis(size)))


def append_axis(output: NodeOutput) -> Layout:
    """Real and imaginary parts, on an axis of their own."""
    return output.input_layout._replace(axes=(*output.input_layout.axes, unplaced_axis(output.shape[-1])))


def transform_axes(output: NodeOutput) -> Layout | None:
    """Fourier transforms: from rows or columns to frequencies, which have no place, and back."""
    layout = output.input_layout
    for number in output.axis_numbers("dim"):
        part, size = layout.axes[number][0], output.shape[number]
        if part.along in FREQUENCIES.values() and len(layout.axes[number]) == 1:
            along = ROWS if part.along == FREQUENCIES[ROWS] else COLUMNS
            layout = layout.replace_axis(
                number, (part._replace(along=along, size=size, feature_lines=size, image_lines=size),)
            )
        elif layout.spans_feature(number) and part.first_line == 0 and not layout.roll_along(part.along):
            layout = layout.replace_axis(number, (part._replace(along=FREQUENCIES[part.along], size=size),))
        else:
            layout = layout.forget_axis(number, size)
    return layout
