"""Integrated gradients (Sundararajan et al., 2017, arXiv:1703.01365)."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from dubium.attribution._context import DEFAULT_CONTEXT, Context
from dubium.attribution._paths import MOST_STEPS, Start, integrate_lines, start_images
from dubium.checks import check_number
from dubium.types import Images, Maps, Target


def ig(
    network: nn.Module,
    x: Images,
    target: Target,
    *,
    steps: int = 100,
    start: Start = "white",
    context: Context = DEFAULT_CONTEXT,
) -> Maps:
    """Credit each pixel with its part of the change from a start image to x; several starts are averaged.

    Args:
        steps: points on the line from start to x.
        start: "white", "black", "blur" (the image itself, blurred by several widths), an image (C, H, W), or several.

    Returns:
        Maps that sum to the change of each target, up to the error of the sum over steps.
    """
    check_number("steps", steps, most=MOST_STEPS, whole=True)

    def starts(image_slice: slice) -> Float[Tensor, "lines b C H W"]:
        return torch.cat([begin.expand(1, *x[image_slice].shape) for begin in start_images(start, x[image_slice])])

    return integrate_lines(network, x, target, starts, steps, context)
