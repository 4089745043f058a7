"""Random maps: the control that every method must beat."""

import zlib

import torch
from torch import nn

from dubium.types import Images, Maps, Target


def random(network: nn.Module, x: Images, target: Target, *, seed: int = 0) -> Maps:
    """Uniform noise in [0, 1], drawn anew for each image from the seed and its pixels, so not by its place in x."""
    targets = target(network(x[:1].clone())).shape[1]
    maps = []
    for image in x:
        own = zlib.crc32(image.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes(), seed & 0xFFFFFFFF)
        maps.append(torch.rand(targets, *x.shape[2:], generator=torch.Generator().manual_seed(own)))
    return torch.stack(maps).to(x)
