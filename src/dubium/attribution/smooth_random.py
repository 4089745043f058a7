"""Smooth random maps: a control with regions instead of dots."""

import torch
from torch import nn

from dubium.attribution._blur import blur_images
from dubium.attribution._context import DEFAULT_CONTEXT, Context
from dubium.attribution._controls import draw_maps
from dubium.types import Images, Maps, Target

WIDTH = 1 / 16  # sigma of the blur, as a part of the image's shorter side: 2 pixels of 32


def smooth_random(network: nn.Module, x: Images, target: Target, *, context: Context = DEFAULT_CONTEXT) -> Maps:
    """Gaussian noise that is blurred, less its lowest value; drawn for each image as `random` draws."""
    noise = draw_maps(torch.randn, network, x, target, context.seed)
    smooth = blur_images(noise, [WIDTH * min(x.shape[2:])])[0]
    return smooth - smooth.amin((2, 3), keepdim=True)
