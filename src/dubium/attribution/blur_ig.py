"""Blur integrated gradients (Xu et al., 2020, arXiv:2004.03383)."""

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from dubium.attribution._blur import blur_with_derivative
from dubium.attribution._context import DEFAULT_CONTEXT, Context
from dubium.attribution._paths import MOST_STEPS, sum_along_path, sum_channels
from dubium.checks import check_number
from dubium.errors import OptionError
from dubium.types import Images, Maps, Target

WEAKEST = 1e-6  # pixels: the third power of a smaller one is 0 in float32
STRONGEST = 10_000  # pixels: a wider kernel takes memory, and no image is left to blur


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
    check_number("steps", steps, most=MOST_STEPS, whole=True)
    check_number("sigma_max", sigma_max)
    if not WEAKEST <= sigma_max <= STRONGEST:
        raise OptionError(f"sigma_max={sigma_max!r}; {WEAKEST:g} or more and {STRONGEST} pixels or fewer are needed.")
    radius = math.ceil(4 * sigma_max)

    def blur(
        image_slice: slice, some: Int[Tensor, " n"]
    ) -> tuple[Float[Tensor, "n b C H W"], Float[Tensor, "n b C H W"]]:
        sigmas = sigma_max * (1 - (some.to(x) + 0.5) / steps)  # midpoints, from blurred to sharp
        return blur_with_derivative(x[image_slice], sigmas, radius)

    def change(gradients: Float[Tensor, "n b T C H W"], blurring: Float[Tensor, "n b C H W"], _: object) -> Tensor:
        return torch.einsum("nbtchw,nbchw->btchw", gradients, -blurring)

    def mean_over_steps(changes: Float[Tensor, "b T C H W"]) -> Maps:
        return sum_channels(changes * (sigma_max / steps), context.signed)

    return sum_along_path(network, x, target, blur, steps, change, context, mean_over_steps)
