"""Nodes of autograd's graph. The only module that reads the attributes by which torch shows what is in them.

Where a version of torch does not have one, `MissingAttributeError` is raised, and callers leave the node, or the whole
graph, to autograd itself.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

Node = Any  # torch's own type for nodes does not know what they have saved


class MissingAttributeError(AttributeError):
    """An attribute of autograd's nodes that this version of torch does not have."""


class OutputInfo(NamedTuple):
    """Shape, type and device of one output of a node: of the gradient that the node receives there."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device

    def zeros(self, *batch: int) -> Tensor:
        """A gradient of zeros, (*batch, *shape), that takes no memory."""
        return torch.zeros((), dtype=self.dtype, device=self.device).expand(*batch, *self.shape)


def read_attribute(node: Node, name: str) -> Any:
    try:
        return getattr(node, name)
    except AttributeError as error:
        raise MissingAttributeError(f"{type(node).__name__} has no {name} in torch {torch.__version__}.") from error


def saved(node: Node, name: str) -> Any:
    """What the forward pass saved under a name of torch's, e.g. "weight" in a convolution."""
    return read_attribute(node, f"_saved_{name}")


def next_nodes(node: Node) -> Sequence[tuple[Node | None, int]]:
    """For each input of the node: the node that made it and the number of that node's output; None for a constant."""
    found: Sequence[tuple[Node | None, int]] = read_attribute(node, "next_functions")
    return found


def outputs_of(node: Node) -> list[OutputInfo]:
    """What is known about each output of the node."""
    return [OutputInfo(tuple(m.shape), m.dtype, m.device) for m in read_attribute(node, "_input_metadata")]


def autograd_function(node: Node) -> Callable[..., Any]:
    """Autograd's own backward function of the node: gradients at its outputs -> gradients at its inputs."""
    function: Callable[..., Any] = node if callable(node) else node.apply  # `apply`: of a Function written in Python
    return function
