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
"""Of numbers whose numbers float32 tells apart."""


class KnownInput(NamedTuple):
    """An input of a node whose layout is known."""

    input_nr: int  # among all inputs
    layout: Layout
    shape: tuple[int, ...]


class Step(NamedTuple):
    """An output of a node, and what is known of the node's inputs."""

    node: FeatureNode
    saved: dict[str, Any]  # what autograd saved about axes, by the names in `AXIS_ARGUMENTS`
    output_nr: int
    shape: tuple[int, ...]
    known_inputs: list[KnownInput]

    @property
    def layout(self) -> Layout:
        """That of the first known input."""
        return self.known_inputs[0].layout

    def axis_number(self, name: str) -> int:
        """A saved number of an axis, counted from the front of the first known input."""
        return int(signed_number(self.saved[name])) % len(self.layout.axes)

    def axis_numbers(self, name: str) -> list[int]:
        """Saved numbers of axes, counted from the front."""
        saved, count = self.saved[name], len(self.layout.axes)
        numbers = saved if isinstance(saved, tuple | list) else () if saved is None else (saved,)
        return [signed_number(number) % count for number in numbers]


LayoutRule = Callable[[Step], Layout | None]


def reshape_axes(step: Step) -> Layout | None:
    return reshape_layout(step.layout, step.shape)


def permute_axes(step: Step) -> Layout:
    return step.layout.permute(step.axis_numbers("dims"))


def transpose_axes(step: Step) -> Layout:
    return step.layout.swap(step.axis_number("dim0"), step.axis_number("dim1"))


def reverse_axes(step: Step) -> Layout:
    """The transpose of a matrix."""
    return step.layout.permute([*range(len(step.shape))][::-1])


def restride_axes(step: Step) -> Layout | None:
    """A view that was changed in place: torch shows its strides, but not those of the tensor that it is a view of.

    Slices are recognised; that tensor is taken to be contiguous, or to have channels last in memory.
    """
    size, stride, shape = step.saved["size"], step.saved["stride"], step.known_inputs[0].shape
    if len(shape) < 3 or 0 in shape or shape[1] in shape[2:]:
        return None  # axes that are as long as others could be swapped
    for own_stride in (contiguous_strides(shape), channels_last_strides(shape)):
        if len(size) == len(shape) and all(n == 1 or a == b for n, a, b in zip(size, stride, own_stride, strict=True)):
            layout, start = step.layout, step.saved["storage_offset"] or 0
            for number in sorted(range(len(shape)), key=lambda axis: -own_stride[axis]):
                layout = layout.crop_axis(number, start // own_stride[number], size[number])
                start %= own_stride[number]
            return layout
    return None


def contiguous_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple([math.prod(shape[axis + 1 :]) for axis in range(len(shape))])


def channels_last_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    image, *positions = contiguous_strides((*shape[:1], *shape[2:], *shape[1:2]))
    return image, *positions[-1:], *positions[:-1]


def flip_axes(step: Step) -> Layout:
    return step.layout.flip(step.axis_numbers("dims"))


def rotate_axes(step: Step) -> Layout:
    first, second = step.axis_numbers("dims")
    layout = step.layout
    for _ in range(signed_number(step.saved["k"]) % 4):
        layout = layout.flip([second]).swap(first, second)
    return layout


def roll_axes(step: Step) -> Layout | None:
    if not step.saved["dims"]:
        return None  # of all numbers in a row
    layout = step.layout
    for number, shift in zip(step.axis_numbers("dims"), step.saved["shifts"], strict=True):
        part, shift = layout.axes[number][0], signed_number(shift)
        shift = shift if part.is_flipped else -shift
        is_exact = layout.has_all_lines(number) and part.step == 1 and part.line_count == part.image_lines
        if not is_exact or part.first_line:
            layout = layout.forget_axis(number, step.shape[number]) if shift else layout
        elif part.along == ROWS:
            layout = layout._replace(row_roll=layout.row_roll + shift)
        else:
            layout = layout._replace(column_roll=layout.column_roll + shift)
    return layout


def slice_axis(step: Step) -> Layout:
    number, layout = step.axis_number("dim"), step.layout
    size = axis_size(layout.axes[number])
    start = min(signed_number(step.saved["start"] or 0), size)
    start = max(0, start + size) if start < 0 else start
    every = step.saved["step"]
    spanned = min(size - start, step.shape[number] * every)
    if start >= every or start + spanned < size or every == 1:
        layout = layout.crop_axis(number, start, spanned)  # not every nth line of all
    return layout.resize_axis(number, step.shape[number])


def split_axis(step: Step) -> Layout:
    number = step.axis_number("dim")
    start = sum(shape[number] for shape in step.node.shapes[: step.output_nr])
    return step.layout.crop_axis(number, start, step.shape[number])


def pad_axes(step: Step) -> Layout:
    pads, layout = step.saved["pad" if "pad" in step.saved else "padding"], step.layout
    for number, before in zip(range(len(step.shape))[::-1], pads[::2], strict=False):
        layout = layout.crop_axis(number, -signed_number(before), step.shape[number])
    return layout


def remove_axis(step: Step) -> Layout:
    return step.layout.replace_axis(step.axis_number("dim"))


def reduce_axes(step: Step) -> Layout:
    layout, keeps = step.layout, len(step.shape) == len(step.layout.axes)
    for number in sorted(step.axis_numbers("dim") or range(len(layout.axes)), reverse=True):
        layout = layout.resize_axis(number, 1) if keeps else layout.replace_axis(number)
    return layout


def repeat_axes(step: Step) -> Layout:
    """`repeat`, which puts copies of an axis side by side: it then runs along nothing that has a place."""
    new_axes = len(step.shape) - len(step.layout.axes)
    layout = step.layout
    for number, size in enumerate(step.shape[new_axes:]):
        was_one = axis_size(layout.axes[number]) == 1
        layout = layout.resize_axis(number, size) if was_one else keep_or_forget(layout, number, size)
    return layout._replace(axes=(*[unplaced_axis(size) for size in step.shape[:new_axes]], *layout.axes))


def keep_or_forget(layout: Layout, number: int, size: int) -> Layout:
    """The layout if the axis still has its size; otherwise with an axis that has no place."""
    return layout if axis_size(layout.axes[number]) == size else layout.forget_axis(number, size)


def concatenate_axes(step: Step) -> Layout | None:
    """Concatenation along channels, of lines or tokens with others that have no place, or of equal features."""
    number, size = step.axis_number("dim"), step.shape[step.axis_number("dim")]
    placed = [each for each in step.known_inputs if not is_unplaced(each.layout.axes[number])]
    layouts = {each.layout for each in placed}
    if not placed:
        others = {each.layout.replace_axis(number) for each in step.known_inputs}
        return step.layout.forget_axis(number, size) if len(others) == 1 else None
    layout = placed[0].layout
    axis = layout.axes[number]
    if len(placed) > 1:
        is_repeated = len(layouts) == 1 and axis_size(axis) * len(placed) == size
        return layout.replace_axis(number, (*unplaced_axis(len(placed)), *axis)) if is_repeated else None
    starts = find_starts(step, placed[0])
    if starts is None:
        return None
    skipped = starts[number]
    if layout.has_all_lines(number):
        return layout.crop_axis(number, -skipped, size)
    is_tokens = axis[0].along == TOKENS
    token_parts, skipped = (axis[0].token_parts, skipped + axis[0].skipped) if is_tokens else (axis, skipped)
    return layout.replace_axis(number, token_axis(token_parts, skipped, size))


def find_starts(step: Step, placed: KnownInput) -> list[int] | None:
    """Where, on each axis of the output, the numbers of an input begin that were copied there as a block.

    The node's backward says so: it is given the numbers of the output's numbers, and returns those of the input's.
    """
    count = math.prod(step.shape)
    if count > LARGEST_COUNT or 0 in placed.shape:
        return None
    indices = call_backward(step.node.node, torch.arange(count).view(step.shape))[placed.input_nr]
    if indices is None or tuple(indices.shape) != placed.shape:
        return None
    corners = [torch.unravel_index(indices.flatten()[n].long(), step.shape) for n in (0, -1)]
    first, last = [[int(number) for number in corner] for corner in corners]
    is_block = [end - start + 1 for start, end in zip(first, last, strict=True)] == [*placed.shape]
    return first if is_block else None


def assign_part(step: Step) -> Layout | None:
    """An assignment to a part of a feature, which moves nothing else; or of a feature to a part of a constant."""
    known = step.known_inputs[0]
    if known.shape == step.shape:
        return known.layout
    if len(known.shape) != len(step.shape) or len(step.known_inputs) > 1:
        return None
    starts, layout = find_starts(step, known), known.layout
    for number, start in enumerate(starts or ()):
        layout = layout.crop_axis(number, -start, step.shape[number])
    return None if starts is None else layout


def stack_axes(step: Step) -> Layout | None:
    number = signed_number(step.saved["dim"]) % len(step.shape)
    axes = (*step.layout.axes[:number], unplaced_axis(step.shape[number]), *step.layout.axes[number:])
    return step.layout._replace(axes=axes) if len({each.layout for each in step.known_inputs}) == 1 else None


def choose_indices(step: Step) -> Layout | None:
    """What was chosen or put in another order: where it comes from is not followed."""
    layout = step.layout
    if len(step.shape) != len(layout.axes):
        return None
    chosen = [number for number, index in enumerate(step.saved.get("indices", ())) if index is not None]
    for number in chosen or step.axis_numbers("dim"):
        layout = layout.forget_axis(number, step.shape[number])
    return layout if tuple(map(axis_size, layout.axes)) == step.shape else None


def write_indices(step: Step) -> Layout | None:
    """Numbers that are written by indices: if they are constants, the others stay where they are."""
    is_constant = len(step.node.edges) == 1 and step.known_inputs[0].input_nr == 0
    return step.layout if is_constant and step.known_inputs[0].shape == step.shape else None


def forget_axes(step: Step) -> None:
    """Numbers may come from anywhere."""


def unfold_axis(step: Step) -> Layout:
    number, size = step.axis_number("dimension"), step.saved["size"]
    count, part = step.shape[number], step.layout.axes[number][0]
    if size == step.saved["step"] and step.layout.has_all_lines(number) and part.step == 1 and not part.is_flipped:
        layout = step.layout.crop_axis(number, 0, count * size)
        part = layout.axes[number][0]
        layout = layout.replace_axis(number, (part._replace(size=count, step=size),))
        return layout._replace(axes=(*layout.axes, (part._replace(size=size),)))
    layout = step.layout.resize_axis(number, count)
    return layout._replace(axes=(*layout.axes, unplaced_axis(size)))


def transform_axes(step: Step) -> Layout | None:
    """Fourier transforms: from rows or columns to frequencies, which have no place, and back."""
    layout = step.layout
    for number in step.axis_numbers("dim"):
        part, size = layout.axes[number][0], step.shape[number]
        if part.along in FREQUENCIES.values() and len(layout.axes[number]) == 1:
            along = ROWS if part.along == FREQUENCIES[ROWS] else COLUMNS
            layout = layout.replace_axis(
                number, (part._replace(along=along, size=size, line_count=size, image_lines=size),)
            )
        elif layout.has_all_lines(number) and part.first_line == 0 and not layout.roll_along(part.along):
            layout = layout.replace_axis(number, (part._replace(along=FREQUENCIES[part.along], size=size),))
        else:
            layout = layout.forget_axis(number, size)
    return layout
