"""Paths from blurred copies: integrated gradients that start from the image itself, out of focus.

For each blur sigma, `E_sigma(x) = (x - x_sigma) * mean over a of dU(x_sigma + a (x - x_sigma)) / dx`, summed over
channels: which pixels raise the uncertainty, and which lower it, while the detail that the blur took comes back. As the
points on the line grow in number, its sum converges to `U(x) - U(x_sigma)`. The signed map is the mean of E_sigma over
the blurs. The map is the mean of their positive parts: what raises doubt at one scale is not cancelled at another.

Pixels that a blur moves together raise and lower the doubt side by side. With `net`, a rise counts by how far it is
above `net` times the mean fall around it, within the line's own blur. Where rises and falls are noise and balance,
twice the mean fall is the mean change.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from dubium.attribution._blur import WIDTHS, blur_images, blurred_copies
from dubium.attribution._context import DEFAULT_CONTEXT, Context
from dubium.attribution._paths import sum_along_path
from dubium.checks import check_number
from dubium.shares import UncertaintyTarget
from dubium.types import Attribution, Images, Kind, Maps, Target

PARTS_OF_TOTAL: tuple[Kind, ...] = ("aleatoric", "epistemic")
"""The kinds that are followed along the paths; total is their sum."""

Lines = Float[Tensor, "B lines T H W"]
"""E_sigma of every blur."""


def blur_path(
    network: nn.Module,
    x: Images,
    target: Target,
    *,
    passes: int = 16,
    net: int | float = 0,
    context: Context = DEFAULT_CONTEXT,
) -> Attribution:
    """Credit each pixel with what it raises each target by, while x comes into focus from some blurred copies.

    Args:
        passes: points on all lines together: so many forward and backward passes does an image take.
        net: how many times the mean fall around a pixel is taken from its rise.

    Returns:
        Maps of what raises each target, and among the extras as "signed" those that also say what lowers it.
    """
    if net != 0:
        check_number("net", net)
    if isinstance(target, UncertaintyTarget):
        terms = tuple(kind for kind in PARTS_OF_TOTAL if kind in target.kinds or "total" in target.kinds)
        lines = blur_lines(network, x, UncertaintyTarget(terms), passes, context)
        lines = sum_of_terms(lines, terms, target.kinds)
    else:
        lines = blur_lines(network, x, target, passes, context)
    return Attribution(rises(lines, net), {"signed": lines.mean(1)})


def blur_lines(network: nn.Module, x: Images, target: Target, passes: int, context: Context) -> Lines:
    """E_sigma of every target, line by line."""
    check_number("passes", passes, whole=True)
    line, place, weight = points_on_lines(passes, x)

    def points(
        images: slice, steps: Int[Tensor, " n"]
    ) -> tuple[Float[Tensor, "n b C H W"], Float[Tensor, "n b C H W"]]:
        detail = (x[images] - blurred_copies(x[images]))[line[steps]]  # what the blur of each point's line takes
        return x[images] - (1 - place[steps]).view(-1, 1, 1, 1, 1) * detail, detail

    def credit(
        gradients: Float[Tensor, "n b T C H W"], detail: Float[Tensor, "n b C H W"], steps: Int[Tensor, " n"]
    ) -> Lines:
        credits = torch.einsum("n,nbtchw,nbchw->bnthw", weight[steps], gradients, detail)
        lines = credits.new_zeros(len(credits), int(line.max()) + 1, *credits.shape[2:])
        return lines.index_add_(1, line[steps], credits)

    return sum_along_path(network, x, target, points, passes, credit, context)


def points_on_lines(
    passes: int, x: Images
) -> tuple[Int[Tensor, " passes"], Float[Tensor, " passes"], Float[Tensor, " passes"]]:
    """For each point: its line, its place there from 0 (blurred) to 1 (x), and its weight. Each line has midpoints."""
    numbers = torch.arange(passes, device=x.device)
    lines = min(len(WIDTHS), passes)
    line = numbers % lines
    steps = line.bincount()[line].to(x)
    return line, (numbers // lines + 0.5) / steps, 1 / steps


def sum_of_terms(
    lines: Float[Tensor, "B lines terms H W"], terms: Sequence[Kind], kinds: Sequence[Kind]
) -> Float[Tensor, "B lines kinds H W"]:
    """The lines of `kinds`, from those of the terms: total is exactly the sum of the other two."""
    by_kind = dict(zip(terms, lines.unbind(2), strict=True))
    return torch.stack([by_kind[kind] if kind in by_kind else lines.sum(2) for kind in kinds], 2)


def rises(lines: Lines, net: int | float = 0) -> Maps:
    """The mean of the lines' positive parts. The same with `-lines` is what lowers the targets.

    With `net`, the mean of what is above so many times the mean fall around it; where nothing is, as without `net`.
    """
    positive = lines.clamp_min(0)
    if net:
        widths = [width * min(lines.shape[3:]) for width in WIDTHS]
        falls = zip((-lines).clamp_min(0).unbind(1), widths, strict=False)
        around = torch.stack([blur_images(fall, [width])[0] for fall, width in falls], 1)
        beyond = (positive - net * around).clamp_min(0)
        positive = torch.where(beyond.amax((1, 3, 4), keepdim=True) > 0, beyond, positive)
    return positive.mean(1)
