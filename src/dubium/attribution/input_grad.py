"""Gradient times input (Shrikumar et al., 2016, arXiv:1605.01713)."""

from torch import nn

from dubium.attribution._context import DEFAULT_CONTEXT, Context
from dubium.attribution._gradients import batched_vjp
from dubium.types import Images, Maps, Target


def input_grad(network: nn.Module, x: Images, target: Target, *, context: Context = DEFAULT_CONTEXT) -> Maps:
    """Credit each pixel with its value times the slope of each target there."""
    return batched_vjp(network, x, target, memory=context.memory).mul_(x[:, None]).abs_().mean(2)
