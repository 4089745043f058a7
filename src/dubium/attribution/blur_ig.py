"""Blur integrated gradients (Xu et al., 2020, arXiv:2004.03383)."""

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from dubium.attribution._blur import blurred
from dubium.attribution._paths import reduced, slopes_along
from dubium.attribution._vjp import DEFAULT_MEMORY
from dubium.checks import check_number, silent
from dubium.types import Images, Maps, Progress, Target


def blur_ig(
    network: nn.Module,
    x: Images,
    target: Target,
    *,
    steps: int = 100,
    sigma_max: float = 20.0,
    signed: bool = True,
    memory: int = DEFAULT_MEMORY,
    progress: Progress = silent,
) -> Maps:
    """Credit each pixel with its part of the change while x comes into focus, from blur `sigma_max` to none."""
    check_number("steps", steps, whole=True)
    check_number("sigma_max", sigma_max)
    radius = math.ceil(4 * sigma_max)

    def sigmas(some: Int[Tensor, " n"]) -> Float[Tensor, " n"]:
        return sigma_max * (1 - (some + 0.5) / steps).to(x.dtype)  # midpoints, from blurred to sharp

    def path(images: slice, some: Int[Tensor, " n"]) -> Float[Tensor, "n b C H W"]:
        return blurred(x[images], sigmas(some), radius)[0]

    total: list[Tensor] = []
    for images, some, slopes in slopes_along(network, x, target, path, steps, memory=memory, progress=progress):
        if some[0] == 0:
            total.append(torch.zeros_like(slopes[0]))
        _, direction = blurred(x[images], sigmas(some), radius)
        total[-1] -= torch.einsum("nbtchw,nbchw->btchw", slopes, direction)
    return reduced(torch.cat(total) * (sigma_max / steps), signed)
