"""Plain gradients (Simonyan et al., 2013, arXiv:1312.6034)."""

from torch import nn

from dubium.attribution._context import DEFAULT_CONTEXT, Context
from dubium.attribution._gradients import pixel_gradients
from dubium.types import Images, Maps, Target


def grad(network: nn.Module, x: Images, target: Target, *, context: Context = DEFAULT_CONTEXT) -> Maps:
    """Credit each pixel with the steepness of each target there."""
    return pixel_gradients(network, x, target, memory=context.memory, finish=lambda slopes, _: slopes.abs_().mean(2))
