"""What operations that move, cut, join or choose along axes do to the layout of a feature."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from dubium.attribution._autograd.graph import FeatureNode
from dubium.attribution._autograd.nodes import call_backward, signed_number
from dubium.attribution._layouts import (
    COLUMNS,
    FREQUENCIES,
    ROWS,
    TOKENS,
    Layout,
    axis_size,
    is_unplaced,
    reshape_layout,
    token_axis,
    unplaced_axis,
)

LARGEST_COUNT = 2**24
"""Up to which float32 can count."""


class KnownInput(NamedTuple):
    """An input of a node whose layout is known."""

    input_nr: int  # among all inputs
    layout: Layout
    shape: tuple[int, ...]


class NodeOutput(NamedTuple):
    """An output of a node, and what is known of the node's inputs."""

    node: FeatureNode
    saved: dict[str, Any]  # what autograd saved about axes, by the names in `AXIS_ARGUMENTS`
    output_nr: int
    shape: tuple[int, ...]
    known_inputs: list[KnownInput]

    @property
    def input_layout(self) -> Layout:
        """That of the first known input."""
        return self.known_inputs[0].layout

    def axis_number(self, name: str) -> int:
        """A saved number of an axis, counted from the front of the first known input."""
        return int(signed_number(self.saved[name])) % len(self.input_layout.axes)

    def axis_numbers(self, name: str) -> list[int]:
        """Saved numbers of axes, counted from the front."""
        saved, count = self.saved[name], len(self.input_layout.axes)
        numbers = saved if isinstance(saved, tuple | list) else () if saved is None else (saved,)
        return [signed_number(number) % count for number in numbers]


LayoutRule = Callable[[NodeOutput], Layout | None]


def reshape_axes(output: NodeOutput) -> Layout | None:
    return reshape_layout(output.input_layout, output.shape)


def permute_axes(output: NodeOutput) -> Layout:
    return output.input_layout.permute(output.axis_numbers("dims"))


def transpose_axes(output: NodeOutput) -> Layout:
    return output.input_layout.swap(output.axis_number("dim0"), output.axis_number("dim1"))


def reverse_axes(output: NodeOutput) -> Layout:
    """The transpose of a matrix."""
    return output.input_layout.permute([*range(len(output.shape))][::-1])


def restride_axes(output: NodeOutput) -> Layout | None:
    """A view that was changed in place: torch shows its strides, but not those of the tensor that it is a view of.

    Slices are recognised; that tensor is taken to be contiguous, or to have channels last in memory.
    """
    size, stride, shape = output.saved["size"], output.saved["stride"], output.known_inputs[0].shape
    if len(shape) < 3 or 0 in shape or shape[1] in shape[2:]:
        return None  # axes that are as long as others could be swapped
    for own_stride in (contiguous_strides(shape), channels_last_strides(shape)):
        if len(size) == len(shape) and all(n == 1 or a == b for n, a, b in zip(size, stride, own_stride, strict=True)):
            layout, start = output.input_layout, output.saved["storage_offset"] or 0
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
    for _ in range(signed_number(output.saved["k"]) % 4):
        layout = layout.flip([second]).swap(first, second)
    return layout


def roll_axes(output: NodeOutput) -> Layout | None:
    if not output.saved["dims"]:
        return None  # of all numbers in a row
    layout = output.input_layout
    for number, shift in zip(output.axis_numbers("dims"), output.saved["shifts"], strict=True):
        part, shift = layout.axes[number][0], signed_number(shift)
        shift = shift if part.is_flipped else -shift
        is_exact = layout.has_all_feature_lines(number) and part.step == 1 and part.feature_lines == part.image_lines
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
    start = min(signed_number(output.saved["start"] or 0), size)
    start = max(0, start + size) if start < 0 else start
    every = output.saved["step"]
    spanned = min(size - start, output.shape[number] * every)
    covers_all = every > 1 and start < every and start + spanned == size  # x[::n]
    if not covers_all:
        layout = layout.cut_or_pad_axis(number, start, spanned)
    return layout.resize_axis(number, output.shape[number])


def split_axis(output: NodeOutput) -> Layout:
    number = output.axis_number("dim")
    start = sum(shape[number] for shape in output.node.shapes[: output.output_nr])
    return output.input_layout.cut_or_pad_axis(number, start, output.shape[number])


def pad_axes(output: NodeOutput) -> Layout:
    pads, layout = output.saved["pad" if "pad" in output.saved else "padding"], output.input_layout
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


def concatenate_axes(output: NodeOutput) -> Layout | None:
    """Concatenation along channels, of lines or tokens with others that have no place, or of equal features."""
    number, size = output.axis_number("dim"), output.shape[output.axis_number("dim")]
    placed = [each for each in output.known_inputs if not is_unplaced(each.layout.axes[number])]
    layouts = {each.layout for each in placed}
    if not placed:
        others = {each.layout.replace_axis(number) for each in output.known_inputs}
        return output.input_layout.forget_axis(number, size) if len(others) == 1 else None
    layout = placed[0].layout
    axis = layout.axes[number]
    if len(placed) > 1:
        is_repeated = len(layouts) == 1 and axis_size(axis) * len(placed) == size
        return layout.replace_axis(number, (*unplaced_axis(len(placed)), *axis)) if is_repeated else None
    starts = find_starts(output, placed[0])
    if starts is None:
        return None
    skipped = starts[number]
    if layout.has_all_feature_lines(number):
        return layout.cut_or_pad_axis(number, -skipped, size)
    is_tokens = axis[0].along == TOKENS
    token_parts, skipped = (axis[0].token_parts, skipped + axis[0].skipped) if is_tokens else (axis, skipped)
    return layout.replace_axis(number, token_axis(token_parts, skipped, size))


def find_starts(output: NodeOutput, placed: KnownInput) -> list[int] | None:
    """Where, on each axis of the output, the numbers of an input begin that were copied there as a block.

    The node's backward says so: given the index of each of the output's numbers, it returns, for each of the input's,
    the index at which it ended up.
    """
    count = math.prod(output.shape)
    if count > LARGEST_COUNT or 0 in placed.shape:
        return None
    indices = call_backward(output.node.autograd_node, torch.arange(count).view(output.shape))[placed.input_nr]
    if indices is None or tuple(indices.shape) != placed.shape:
        return None
    corners = [torch.unravel_index(indices.flatten()[n].long(), output.shape) for n in (0, -1)]
    first, last = [[int(number) for number in corner] for corner in corners]
    is_block = [end - start + 1 for start, end in zip(first, last, strict=True)] == [*placed.shape]
    return first if is_block else None


def assign_part(output: NodeOutput) -> Layout | None:
    """An assignment to a part of a feature, which moves nothing else; or of a feature to a part of a constant."""
    known = output.known_inputs[0]
    if known.shape == output.shape:
        return known.layout
    if len(known.shape) != len(output.shape) or len(output.known_inputs) > 1:
        return None
    starts, layout = find_starts(output, known), known.layout
    for number, start in enumerate(starts or ()):
        layout = layout.cut_or_pad_axis(number, -start, output.shape[number])
    return None if starts is None else layout


def stack_axes(output: NodeOutput) -> Layout | None:
    number = signed_number(output.saved["dim"]) % len(output.shape)
    axes = (*output.input_layout.axes[:number], unplaced_axis(output.shape[number]), *output.input_layout.axes[number:])
    return output.input_layout._replace(axes=axes) if len({each.layout for each in output.known_inputs}) == 1 else None


def choose_indices(output: NodeOutput) -> Layout | None:
    """What was chosen or put in another order: where it comes from is not followed."""
    layout = output.input_layout
    if len(output.shape) != len(layout.axes):
        return None
    chosen = [number for number, index in enumerate(output.saved.get("indices", ())) if index is not None]
    for number in chosen or output.axis_numbers("dim"):
        layout = layout.forget_axis(number, output.shape[number])
    return layout if tuple(map(axis_size, layout.axes)) == output.shape else None


def write_indices(output: NodeOutput) -> Layout | None:
    """Numbers that are written by indices: if they are constants, the others stay where they are."""
    is_constant = len(output.node.edges) == 1 and output.known_inputs[0].input_nr == 0
    return output.input_layout if is_constant and output.known_inputs[0].shape == output.shape else None


def forget_axes(output: NodeOutput) -> None:
    """Numbers may come from anywhere."""


def unfold_axis(output: NodeOutput) -> Layout:
    number, size = output.axis_number("dimension"), output.saved["size"]
    count, part = output.shape[number], output.input_layout.axes[number][0]
    if (
        size == output.saved["step"]
        and output.input_layout.has_all_feature_lines(number)
        and part.step == 1
        and not part.is_flipped
    ):
        layout = output.input_layout.cut_or_pad_axis(number, 0, count * size)
        part = layout.axes[number][0]
        layout = layout.replace_axis(number, (part._replace(size=count, step=size),))
        return layout._replace(axes=(*layout.axes, (part._replace(size=size),)))
    layout = output.input_layout.resize_axis(number, count)
    return layout._replace(axes=(*layout.axes, unplaced_axis(size)))


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
        elif layout.has_all_feature_lines(number) and part.first_line == 0 and not layout.roll_along(part.along):
            layout = layout.replace_axis(number, (part._replace(along=FREQUENCIES[part.along], size=size),))
        else:
            layout = layout.forget_axis(number, size)
    return layout
