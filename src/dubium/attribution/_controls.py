"""What the random controls share: maps of random numbers that belong to an image."""

import zlib
from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from dubium.attribution._target import count_targets
from dubium.shares import UncertaintyTarget
from dubium.types import Images, Kind, Maps, Target

DRAW_ORDER: tuple[Kind, ...] = ("epistemic", "aleatoric", "total")
"""The order in which random maps are drawn; version 1 drew them as they were asked for, epistemic ones mostly first."""


def draw_maps(draw: Callable[..., Tensor], network: nn.Module, x: Images, target: Target, seed: int) -> Maps:
    """A map of `torch.rand` or `torch.randn` for each image and target; a kind's does not depend on other kinds."""
    if isinstance(target, UncertaintyTarget):
        places = [DRAW_ORDER.index(kind) for kind in target.kinds]
    else:
        places = list(range(count_targets(network, x, target)))
    maps = []
    for image in x:
        generator = image_generator(image, seed)
        draws = [draw(*x.shape[2:], generator=generator, dtype=torch.float32) for _ in range(max(places) + 1)]
        maps.append(torch.stack([draws[place] for place in places]))
    return torch.stack(maps).to(x)


def image_generator(image: Float[Tensor, "C H W"], seed: int) -> torch.Generator:
    """A generator seeded by the seed and the image's pixels, so not by its place in a batch."""
    pixels = image.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes()
    return torch.Generator().manual_seed(zlib.crc32(pixels, seed & 0xFFFFFFFF))
