"""Paths from blurred copies: integrated gradients that start from the image itself, out of focus.

For each blur sigma, `E_sigma(x) = (x - x_sigma) * mean over a of dU(x_sigma + a (x - x_sigma)) / dx`, summed over
channels: which pixels raise the uncertainty, and which lower it, while the detail that the blur took comes back. As the
points on the line grow in number, the sum of E_sigma over pixels converges to `U(x) - U(x_sigma)`. The signed map is
the mean of E_sigma over the blurs. The map is the mean of their positive parts: what raises doubt at one scale is not
cancelled at another.

Pixels that a blur moves together raise and lower the doubt side by side. With `net`, that many times the local mean of
the negative part (a Gaussian mean, with the sigma of the line's own blur) is subtracted from the positive part. For
noise, whose positive and negative parts balance, `net=2` subtracts the mean absolute change.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from dubium.attribution._blur import WIDTHS, blur_at_widths, blurred_copies
from dubium.attribution._context import DEFAULT_CONTEXT, Context
from dubium.attribution._paths import MOST_STEPS, sum_along_path
from dubium.checks import check_number
from dubium.shares import UncertaintyTarget
from dubium.types import Attribution, Images, Kind, Maps, Target

PARTS_OF_TOTAL: tuple[Kind, ...] = ("aleatoric", "epistemic")
"""The kinds that are followed along the paths; total is their sum."""

MOST_NET = 1_000_000  # much smaller values leave nothing of any rise; much larger ones overflow

BlurCredits = Float[Tensor, "B blurs T H W"]
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
    if not (isinstance(net, int | float) and net == 0):
        check_number("net", net, most=MOST_NET)
    if isinstance(target, UncertaintyTarget):
        followed_kinds = tuple(kind for kind in PARTS_OF_TOTAL if kind in target.kinds or "total" in target.kinds)
        credits = blur_credits(network, x, UncertaintyTarget(followed_kinds), passes, context)
        credits = credits_of_kinds(credits, followed_kinds, target.kinds)
    else:
        credits = blur_credits(network, x, target, passes, context)
    return Attribution(mean_rise(credits, net), {"signed": credits.mean(1)})


def blur_credits(network: nn.Module, x: Images, target: Target, passes: int, context: Context) -> BlurCredits:
    """E_sigma of every blur and target."""
    check_number("passes", passes, most=MOST_STEPS, whole=True)
    blur_index, fraction, weight = path_points(passes, x)

    def points(
        image_slice: slice, step_numbers: Int[Tensor, " n"]
    ) -> tuple[Float[Tensor, "n b C H W"], Float[Tensor, "n b C H W"]]:
        images = x[image_slice]
        detail = (images - blurred_copies(images))[blur_index[step_numbers]]  # what each point's blur takes
        return images - (1 - fraction[step_numbers]).view(-1, 1, 1, 1, 1) * detail, detail

    def credit(
        gradients: Float[Tensor, "n b T C H W"], detail: Float[Tensor, "n b C H W"], step_numbers: Int[Tensor, " n"]
    ) -> BlurCredits:
        by_point = torch.einsum("n,nbtchw,nbchw->bnthw", weight[step_numbers], gradients, detail)
        by_blur = by_point.new_zeros(len(by_point), int(blur_index.max()) + 1, *by_point.shape[2:])
        return by_blur.index_add_(1, blur_index[step_numbers], by_point)

    return sum_along_path(network, x, target, points, passes, credit, context)


def path_points(
    passes: int, x: Images
) -> tuple[Int[Tensor, " passes"], Float[Tensor, " passes"], Float[Tensor, " passes"]]:
    """For each point: the index of its blur, how far on that line it is, from 0 (blurred) to 1 (x), and its weight.

    Points are the midpoints of equal parts of their line.
    """
    numbers = torch.arange(passes, device=x.device)
    blur_count = min(len(WIDTHS), passes)
    blur_index = numbers % blur_count
    points_on_line = blur_index.bincount()[blur_index].to(x)
    return blur_index, ((numbers // blur_count).to(x) + 0.5) / points_on_line, 1 / points_on_line


def credits_of_kinds(
    credits: Float[Tensor, "B blurs followed H W"], followed_kinds: Sequence[Kind], kinds: Sequence[Kind]
) -> Float[Tensor, "B blurs kinds H W"]:
    """The credits of `kinds`, from those of the kinds that were followed: total is exactly the sum of the other two."""
    by_kind = dict(zip(followed_kinds, credits.unbind(2), strict=True))
    return torch.stack([by_kind[kind] if kind in by_kind else credits.sum(2) for kind in kinds], 2)


def mean_rise(credits: BlurCredits, net: int | float = 0) -> Maps:
    """The mean over blurs of the positive parts. The same of `-credits` is what lowers the targets.

    With `net`, `net` times the local mean fall is subtracted first, and what is positive is kept. If nothing of a map
    is left, it is made without `net`.
    """
    positive = credits.clamp_min(0)
    if net:
        falls = (-credits).clamp_min(0).movedim(1, 0)
        around = blur_at_widths(falls).movedim(0, 1)
        beyond = (positive - net * around).clamp_min(0)
        positive = torch.where(beyond.amax((1, 3, 4), keepdim=True) > 0, beyond, positive)
    return positive.mean(1)
