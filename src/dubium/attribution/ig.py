"""Integrated gradients (Sundararajan et al., 2017, arXiv:1703.01365)."""

import torch
from torch import nn

from dubium.attribution._context import DEFAULT_CONTEXT, Context
from dubium.attribution._paths import Start, integrate_line, start_images, sum_channels
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
    check_number("steps", steps, whole=True)
    starts = start_images(start, x)
    by_start = [
        integrate_line(network, x, target, begin, steps, context.part(index, len(starts)))
        for index, begin in enumerate(starts)
    ]
    return sum_channels(torch.stack(by_start).mean(0), context.signed)
