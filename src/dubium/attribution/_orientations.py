"""How a feature lies against the image: upright, flipped, turned or transposed."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from torch import Tensor

from dubium.attribution._autograd.nodes import FLIP, PERMUTATION, TURN, signed_number


class AxisMove(NamedTuple):
    """What an operation did to axes: output axis i is input axis `order[i]`, and some output axes are flipped."""

    order: list[int]
    flipped: list[int]


def interpret_axis_move(name: str, saved: Sequence[Any], axis_count: int) -> AxisMove:
    """What a node of this name did to the axes of its input, by what it saved; see `read_axis_move`."""
    order = list(range(axis_count))
    if name == FLIP:
        return AxisMove(order, [order[signed_number(axis)] for axis in saved[0]])
    if name == PERMUTATION:
        return AxisMove([order[signed_number(axis)] for axis in saved[0]], [])
    first, second = (order[signed_number(axis)] for axis in (saved[0] if name == TURN else saved))
    turns = signed_number(saved[1]) % 4 if name == TURN else None
    if turns in (None, 1, 3):
        order[first], order[second] = second, first
    return AxisMove(order, {None: [], 0: [], 1: [first], 2: [first, second], 3: [second]}[turns])


class Orientation(NamedTuple):
    """A feature lies as the image does, transposed if it `is_transposed`, and then flipped along its own axes."""

    is_transposed: bool = False
    flips_rows: bool = False  # its first row is the last one of the (transposed) image
    flips_columns: bool = False

    def after(self, move: AxisMove, row_axis: int) -> "Orientation":
        """The orientation after a move of axes; rows were on axis `row_axis`, columns on the next."""
        rows, columns = move.order.index(row_axis), move.order.index(row_axis + 1)
        flips = self.flips_rows ^ (rows in move.flipped), self.flips_columns ^ (columns in move.flipped)
        is_swap = rows > columns
        return Orientation(self.is_transposed ^ is_swap, *(flips[::-1] if is_swap else flips))

    def upright(self, maps: Tensor, row_axis: int) -> Tensor:
        """Maps of this orientation, laid as the image."""
        flipped = [row_axis + n for n, flips in enumerate((self.flips_rows, self.flips_columns)) if flips]
        maps = maps.flip(flipped) if flipped else maps
        return maps.transpose(row_axis, row_axis + 1) if self.is_transposed else maps


UPRIGHT = Orientation()
