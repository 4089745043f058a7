"""Random maps: the weakest control."""

import torch
from torch import nn

from dubium.attribution._context import DEFAULT_CONTEXT, Context
from dubium.attribution._controls import draw_maps
from dubium.types import Images, Maps, Target


def random(network: nn.Module, x: Images, target: Target, *, context: Context = DEFAULT_CONTEXT) -> Maps:
    """Uniform noise in [0, 1], drawn anew for each image from the seed and its pixels, so not by its place in x."""
    return draw_maps(torch.rand, network, x, target, context.seed)
