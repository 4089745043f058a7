"""Random maps: the control that every method must beat."""

import zlib

import torch
from torch import Tensor, nn

from dubium.attribution._context import DEFAULT_CONTEXT, Context
from dubium.attribution._target import count_targets
from dubium.types import Images, Maps, Target


def random(network: nn.Module, x: Images, target: Target, *, context: Context = DEFAULT_CONTEXT) -> Maps:
    """Uniform noise in [0, 1], drawn anew for each image from the seed and its pixels, so not by its place in x."""
    targets = count_targets(target, network(x[:1].clone()))
    maps = [torch.rand(targets, *x.shape[2:], generator=image_generator(image, context.seed)) for image in x]
    return torch.stack(maps).to(x)


def image_generator(image: Tensor, seed: int) -> torch.Generator:
    """Random numbers that depend on the seed and the image's pixels alone."""
    pixels = image.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes()
    return torch.Generator().manual_seed(zlib.crc32(pixels, seed & 0xFFFFFFFF))
