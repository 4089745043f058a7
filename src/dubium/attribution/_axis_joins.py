"""What operations that join features, or choose and write parts of them, do to the layout of a feature."""

import torch

from dubium.attribution._autograd.nodes import call_backward, output_precision, signed_number
from dubium.attribution._axis_moves import KnownInput, NodeOutput
from dubium.attribution._layouts import TOKENS, Layout, axis_size, is_unplaced, token_axis, unplaced_axis


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
    if layout.spans_feature(number):
        return layout.cut_or_pad_axis(number, -skipped, size)
    is_tokens = axis[0].along == TOKENS
    token_parts, skipped = (axis[0].token_parts, skipped + axis[0].skipped) if is_tokens else (axis, skipped)
    return layout.replace_axis(number, token_axis(token_parts, skipped, size))


def find_starts(output: NodeOutput, placed: KnownInput) -> list[int] | None:
    """Where, on each axis of the output, the numbers of an input begin that were copied there as a block.

    On an axis that kept its size, and is the only one of this size, they begin at 0; of others the backward tells.
    """
    if len(placed.shape) != len(output.shape) or 0 in placed.shape:
        return None
    starts = [0] * len(output.shape)
    for number, size in enumerate(placed.shape):
        if size == output.shape[number] and placed.shape.count(size) == 1:
            continue
        lines = copied_lines(output, placed, number)
        if lines is None:
            return None
        starts[number] = lines[0][0]
        for axis, line in enumerate(lines):
            if line != [starts[number] + (n if axis == number else 0) for n in range(len(line))]:
                return None
    return starts


def copied_lines(output: NodeOutput, placed: KnownInput, number: int) -> list[list[int]] | None:
    """For one axis of the output: at which index the elements of an input are, by each axis of the input.

    Only elements along the input's axes through its first element are looked at. The node's backward tells: given the
    index of each of the output's elements, it returns those of the input's. It computes in the type of the output; if
    that cannot count so far, the index is given digit by digit.
    """
    node, size, axes = output.node_to_ask, output.shape[number], range(len(output.shape))
    base, place_value, lines = int(2 / output_precision(node)), 1, [[0] * length for length in placed.shape]
    while place_value < max(2, size):
        digits = torch.arange(size) // place_value % base
        found = call_backward(node, digits.view([size if axis == number else 1 for axis in axes]))[placed.input_nr]
        if found is None or tuple(found.shape) != placed.shape:
            return None
        for axis, line in enumerate(lines):
            numbers = found[tuple([slice(None) if other == axis else 0 for other in axes])].real.tolist()
            lines[axis] = [before + place_value * int(digit) for before, digit in zip(line, numbers, strict=True)]
        place_value *= base
    return lines


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
    number = signed_number(output.arguments["dim"]) % len(output.shape)
    axes = (*output.input_layout.axes[:number], unplaced_axis(output.shape[number]), *output.input_layout.axes[number:])
    return output.input_layout._replace(axes=axes) if len({each.layout for each in output.known_inputs}) == 1 else None


def choose_indices(output: NodeOutput) -> Layout | None:
    """What was chosen or put in another order: where it comes from is not followed."""
    layout = output.input_layout
    if len(output.shape) != len(layout.axes):
        return None
    chosen = [number for number, has_index in enumerate(output.arguments.get("indices", ())) if has_index]
    for number in chosen or output.axis_numbers("dim"):
        layout = layout.forget_axis(number, output.shape[number])
    return layout if tuple(map(axis_size, layout.axes)) == output.shape else None


def write_indices(output: NodeOutput) -> Layout | None:
    """Numbers that are written by indices: if they are constants, the others stay where they are."""
    is_constant = len(output.operation.inputs) == 1 and output.known_inputs[0].input_nr == 0
    return output.input_layout if is_constant and output.known_inputs[0].shape == output.shape else None
