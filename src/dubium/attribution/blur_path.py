"""The path from blurred copies: integrated gradients whose starts are the image itself, out of focus."""

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from dubium.attribution._blur import WIDTHS, blurred_copies
from dubium.attribution._paths import slopes_along
from dubium.attribution._vjp import DEFAULT_MEMORY
from dubium.checks import check_number, silent
from dubium.types import Images, Kind, Maps, Progress, Scores, Target

TERMS: tuple[Kind, ...] = ("aleatoric", "epistemic")
"""The kinds that are followed along the path; total is their sum."""


def blur_path(
    network: nn.Module,
    x: Images,
    target: Target,
    *,
    passes: int = 8,
    memory: int = DEFAULT_MEMORY,
    progress: Progress = silent,
) -> Maps:
    """Credit each pixel with its part of the change while x comes into focus on straight lines, signed.

    `E(x) = mean over sigma of (x - x_sigma) * mean over a of dU(x_sigma + a (x - x_sigma)) / dx`, summed over channels;
    x_sigma is x after a Gaussian blur. As `passes`, the number of points on all lines together, grows, the sum of a map
    converges to `U(x) - mean over sigma of U(x_sigma)`.
    """
    check_number("passes", passes, whole=True)
    lines, places, weights = points_on_lines(passes, x)

    def path(images: slice, some: Int[Tensor, " n"]) -> Float[Tensor, "n b C H W"]:
        return x[images] - (1 - places[some]).view(-1, 1, 1, 1, 1) * detail(images, some)

    def detail(images: slice, some: Int[Tensor, " n"]) -> Float[Tensor, "n b C H W"]:
        """What the blur of each point's line takes from the images."""
        return (x[images] - blurred_copies(x[images]))[lines[some]]

    maps = []
    for images, some, slopes in slopes_along(network, x, target, path, passes, memory=memory, progress=progress):
        if some[0] == 0:
            maps.append(torch.zeros_like(slopes[0, :, :, 0]))
        maps[-1] += torch.einsum("n,nbtchw,nbchw->bthw", weights[some], slopes, detail(images, some))
    return torch.cat(maps)


def points_on_lines(
    passes: int, x: Images
) -> tuple[Int[Tensor, " passes"], Float[Tensor, " passes"], Float[Tensor, " passes"]]:
    """For each point: its line, its place there from 0 (blurred) to 1 (x), and its weight. Each line has midpoints."""
    numbers = torch.arange(passes, device=x.device)
    used = min(len(WIDTHS), passes)
    lines = numbers % used
    steps = lines.bincount()[lines].to(x)
    return lines, (numbers // used + 0.5) / steps, 1 / (used * steps)


def sum_of_terms(signed: Float[Tensor, "B 2 H W"], kinds: Sequence[Kind]) -> Float[Tensor, "B kinds H W"]:
    """The signed maps of `kinds`, from those of TERMS: the map of total is exactly the sum of the other two."""
    by_kind = dict(zip(TERMS, signed.unbind(1), strict=True))
    return torch.stack([by_kind[kind] if kind in by_kind else signed.sum(1) for kind in kinds], 1)


def scale_to_scores(signed: Maps, scores: Scores) -> Maps:
    """What raises each target, scaled to sum to its score: uniform where nothing does, zero where the score is zero."""
    raises = signed.double().clamp_min(0)
    total = raises.sum((2, 3), keepdim=True)
    parts = torch.where(total > 0, raises / total.clamp_min(torch.finfo(total.dtype).tiny), 1 / raises[0, 0].numel())
    return (scores.double()[:, :, None, None] * parts).to(signed)
