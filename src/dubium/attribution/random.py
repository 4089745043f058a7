"""Random maps: the control that every method must beat."""

import torch
from torch import nn

from dubium.attribution._controls import count_targets, image_generator
from dubium.types import Images, Maps, Target


def random(network: nn.Module, x: Images, target: Target, *, seed: int = 0) -> Maps:
    """Uniform noise in [0, 1], drawn anew for each image from the seed and its pixels, so not by its place in x."""
    targets = count_targets(network, x, target)
    return torch.stack([torch.rand(targets, *x.shape[2:], generator=image_generator(im, seed)) for im in x]).to(x)
