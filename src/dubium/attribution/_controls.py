"""What the controls share: how many maps to make, and random numbers that belong to an image."""

import zlib

import torch
from jaxtyping import Float
from torch import Tensor, nn

from dubium.attribution._target import target_for_images
from dubium.types import Images, Maps, Target


def count_targets(network: nn.Module, x: Images, target: Target) -> int:
    """T, from the first image."""
    return target_for_images(target, slice(1))(network(x[:1].clone())).shape[1]


def repeat_for_targets(maps: Float[Tensor, "B H W"], network: nn.Module, x: Images, target: Target) -> Maps:
    """The same map for every target."""
    return maps[:, None].repeat(1, count_targets(network, x, target), 1, 1)


def image_generator(image: Float[Tensor, "C H W"], seed: int) -> torch.Generator:
    """A generator seeded by the seed and the image's pixels, so not by its place in a batch."""
    pixels = image.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes()
    return torch.Generator().manual_seed(zlib.crc32(pixels, seed & 0xFFFFFFFF))
