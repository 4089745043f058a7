"""Blur integrated gradients (Xu et al., 2020, arXiv:2004.03383)."""

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from dubium.attribution._blur import blur_with_derivative
from dubium.attribution._context import DEFAULT_CONTEXT, Context
from dubium.attribution._paths import sum_along_path, sum_channels
from dubium.checks import check_number
from dubium.types import Images, Maps, Target


def blur_ig(
    network: nn.Module,
    x: Images,
    target: Target,
    *,
    steps: int = 100,
    sigma_max: float = 20.0,
    context: Context = DEFAULT_CONTEXT,
) -> Maps:
    """Credit each pixel with its part of the change while x comes into focus.

    Args:
        steps: blurs between the strongest and none.
        sigma_max: standard deviation of the strongest blur, in pixels.
    """
    check_number("steps", steps, whole=True)
    check_number("sigma_max", sigma_max)
    radius = math.ceil(4 * sigma_max)

    def blur(images: slice, some: Int[Tensor, " n"]) -> tuple[Float[Tensor, "n b C H W"], Float[Tensor, "n b C H W"]]:
        sigmas = sigma_max * (1 - (some + 0.5) / steps).to(x.dtype)  # midpoints, from blurred to sharp
        return blur_with_derivative(x[images], sigmas, radius)

    def change(gradients: Float[Tensor, "n b T C H W"], blurring: Float[Tensor, "n b C H W"], _: object) -> Tensor:
        return torch.einsum("nbtchw,nbchw->btchw", gradients, -blurring)

    changes = sum_along_path(network, x, target, blur, steps, change, context)
    return sum_channels(changes * (sigma_max / steps), context.signed)
