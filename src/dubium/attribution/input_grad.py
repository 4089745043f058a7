"""Gradient times input (Shrikumar et al., 2016, arXiv:1605.01713)."""

from torch import nn

from dubium.attribution._vjp import DEFAULT_MEMORY, batched_vjp
from dubium.types import Images, Maps, Target


def input_grad(network: nn.Module, x: Images, target: Target, *, memory: int = DEFAULT_MEMORY) -> Maps:
    """Credit each pixel with its value times the slope of each target there."""
    return batched_vjp(network, x, target, memory=memory).mul_(x[:, None]).abs_().mean(2)
