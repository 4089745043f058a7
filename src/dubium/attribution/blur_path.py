"""Paths from blurred copies: integrated gradients that start from the image itself, out of focus.

For each blur sigma, `E_sigma(x) = (x - x_sigma) * mean over a of dU(x_sigma + a (x - x_sigma)) / dx`, summed over
channels: which pixels raise the uncertainty, and which lower it, while the detail that the blur took comes back. As the
points on the line grow in number, its sum converges to `U(x) - U(x_sigma)`. The signed map is the mean of E_sigma over
the blurs. The map is the mean of their positive parts: what raises doubt at one scale is not cancelled at another.
"""

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
"""The kinds that are followed along the paths; total is their sum."""

Lines = Float[Tensor, "lines B T H W"]
"""E_sigma of every blur."""


def blur_path(
    network: nn.Module,
    x: Images,
    target: Target,
    *,
    passes: int = 16,
    memory: int = DEFAULT_MEMORY,
    progress: Progress = silent,
    extras: dict[str, Tensor] | None = None,
) -> Maps:
    """Credit each pixel with what it raises each target by, while x comes into focus from some blurred copies.

    `passes` is the number of points on all lines together. The signed maps go to `extras["signed"]`.
    """
    lines = blur_lines(network, x, target, passes=passes, memory=memory, progress=progress)
    if extras is not None:
        extras["signed"] = lines.mean(0)
    return rises(lines)


def blur_lines(network: nn.Module, x: Images, target: Target, *, passes: int, memory: int, progress: Progress) -> Lines:
    """E_sigma of every target, line by line."""
    check_number("passes", passes, whole=True)
    line, place, weight = points_on_lines(passes, x)

    def detail(images: slice, some: Int[Tensor, " n"]) -> Float[Tensor, "n b C H W"]:
        """What the blur of each point's line takes from the images."""
        return (x[images] - blurred_copies(x[images]))[line[some]]

    def path(images: slice, some: Int[Tensor, " n"]) -> Float[Tensor, "n b C H W"]:
        return x[images] - (1 - place[some]).view(-1, 1, 1, 1, 1) * detail(images, some)

    found: list[Tensor] = []
    for images, some, slopes in slopes_along(network, x, target, path, passes, memory=memory, progress=progress):
        if some[0] == 0:
            found.append(x.new_zeros(int(line.max()) + 1, *slopes.shape[1:3], *x.shape[2:]))
        credit = torch.einsum("n,nbtchw,nbchw->nbthw", weight[some], slopes, detail(images, some))
        found[-1].index_add_(0, line[some], credit)
    return torch.cat(found, 1)


def points_on_lines(
    passes: int, x: Images
) -> tuple[Int[Tensor, " passes"], Float[Tensor, " passes"], Float[Tensor, " passes"]]:
    """For each point: its line, its place there from 0 (blurred) to 1 (x), and its weight. Each line has midpoints."""
    numbers = torch.arange(passes, device=x.device)
    lines = min(len(WIDTHS), passes)
    line = numbers % lines
    steps = line.bincount()[line].to(x)
    return line, (numbers // lines + 0.5) / steps, 1 / steps


def sum_of_terms(lines: Float[Tensor, "lines B 2 H W"], kinds: Sequence[Kind]) -> Float[Tensor, "lines B kinds H W"]:
    """The lines of `kinds`, from those of TERMS: total is exactly the sum of the other two."""
    by_kind = dict(zip(TERMS, lines.unbind(2), strict=True))
    return torch.stack([by_kind[kind] if kind in by_kind else lines.sum(2) for kind in kinds], 2)


def rises(lines: Lines) -> Maps:
    """The mean of the lines' positive parts. The same with `-lines` is what lowers the targets."""
    return lines.clamp_min(0).mean(0)


def scale_to_scores(maps: Maps, scores: Scores) -> Maps:
    """Non-negative maps that sum to the scores: uniform where nothing raises a target, zero where its score is zero."""
    total = maps.double().sum((2, 3), keepdim=True)
    parts = torch.where(total > 0, maps / total.clamp_min(torch.finfo(total.dtype).tiny), 1 / maps[0, 0].numel())
    return (scores.double()[:, :, None, None] * parts).to(maps)
