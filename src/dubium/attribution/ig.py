"""Integrated gradients (Sundararajan et al., 2017, arXiv:1703.01365)."""

import torch
from torch import nn

from dubium.attribution._paths import Start, reduced, starts, straight_line
from dubium.attribution._vjp import DEFAULT_MEMORY
from dubium.checks import check_number, silent
from dubium.types import Images, Maps, Progress, Target


def ig(
    network: nn.Module,
    x: Images,
    target: Target,
    *,
    steps: int = 100,
    start: Start = "white",
    signed: bool = True,
    memory: int = DEFAULT_MEMORY,
    progress: Progress = silent,
) -> Maps:
    """Credit each pixel with its part of the change from a start image to x; several starts are averaged."""
    check_number("steps", steps, whole=True)
    origins = starts(start, x)
    each = [straight_line(network, x, target, origin, steps, memory=memory, progress=progress) for origin in origins]
    return reduced(torch.stack(each).mean(0), signed)
