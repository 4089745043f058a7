"""The backward pass by autograd alone, one target and one network at a time: the oracle, and the way out."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge

from dubium.attribution._autograd.nodes import Reduction, refuse_operation, zeros_at


class AutogradBackward:
    """Like `Backward`, but by `torch.autograd.grad`, where torch does not show its graph.

    The only private attribute that it reads is the shape of an edge that no gradient reaches.
    """

    largest_output = 1  # not known

    def __init__(
        self, outputs: Sequence[Tensor], wanted: Sequence[Sequence[GradientEdge]], reductions: Sequence[Reduction]
    ) -> None:
        self.outputs, self.wanted, self.reductions = outputs, wanted, reductions

    def __call__(self, cotangents: Tensor) -> list[Tensor]:
        """The reduced gradients at all edges, from cotangents (T, S, *shape of the output)."""
        rows = [
            [
                autograd_row(output, edges, cotangent)
                for output, edges, cotangent in zip(self.outputs, self.wanted, by_network, strict=True)
            ]
            for by_network in cotangents
        ]
        return [
            reduce(torch.stack([torch.stack([network[index] for network in row]) for row in rows]))
            for index, reduce in enumerate(self.reductions)
        ]


def grad_or_refuse(
    output: Tensor, edges: Sequence[Any], cotangent: Tensor, owner: str = "the networks", **options: bool
) -> tuple[Any, ...]:
    """`torch.autograd.grad` at leaves or edges, with None where no way leads if `allow_unused`.

    An error says whose operation cannot be differentiated: the `owner`'s.
    """
    try:
        return torch.autograd.grad(output, edges, cotangent, **options)
    except torch.OutOfMemoryError:
        raise
    except RuntimeError as error:
        refuse_operation(owner, error)


def autograd_row(output: Tensor, edges: Sequence[GradientEdge], cotangent: Tensor) -> list[Tensor]:
    """The gradient of one target at each place: zeros where no way leads, which autograd does not give at an edge."""
    gradients = grad_or_refuse(output, edges, cotangent, retain_graph=True, allow_unused=True)
    return [zeros_at(edge) if gradient is None else gradient for gradient, edge in zip(gradients, edges, strict=True)]
