"""`classes=n`: trace n classes to pixels instead of all K, and let them carry the whole uncertainty.

Systematic sampling: classes lie end to end on a line, each as long as its inclusion probability, and points one apart,
from a random offset on, draw the classes that they hit. Probabilities are proportional to shares, so every class drawn
has the same weight; a class whose probability would exceed 1 is always included, with its own share. Weights are
unbiased, and sum to the score in every draw.

Aleatoric and epistemic shares are drawn separately, so that both sums are exact. The part that they have in common,
their elementwise minimum, is drawn once for both: n classes are traced if they are nearly equal, 2n if disjoint.
"""

from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor

TOLERANCE = 0.25  # of `classes="auto"`: the relative L1 error aimed at
SAFETY_FACTOR = 1.2  # the L1 distance of two maps ends at 2, so that a small pilot may underestimate the error
PILOT = 5  # classes in each of the two draws that `classes="auto"` compares
ALWAYS_ALL = 4 * PILOT  # so few classes are all traced by `classes="auto"`: comparing draws would not pay
TINY = 1e-300


ToPixels = Callable[[Float[Tensor, "S N B K"]], Float[Tensor, "B N H W"]]
"""The pixel maps of N sets of weights on classes."""


def sample_classes(
    share: Float[Tensor, "S kinds=3 B K"], classes: int | str, seed: int, to_pixels: ToPixels
) -> tuple[Float[Tensor, "S kinds=3 B K"], Int[Tensor, " B"] | None]:
    """The shares, moved to as many classes as `classes` says; for "auto", also how many it chose for each image."""
    network_count, _, image_count, class_count = share.shape
    offset = start_offsets(network_count, seed).to(share.device)
    counts = torch.full((image_count,), min(classes, class_count) if isinstance(classes, int) else class_count)
    if classes == "auto" and class_count > ALWAYS_ALL:
        counts = enough_classes(to_pixels(pilot_weights(share, offset)), class_count)
    weights = class_weights(share, counts, offset) if bool((counts < class_count).any()) else share
    return weights, counts if classes == "auto" else None


def start_offsets(network_count: int, seed: int) -> Float[Tensor, "S 1 1"]:
    """Where each network's points begin: evenly spaced, so that networks with similar shares draw different classes."""
    generator = torch.Generator().manual_seed(seed)
    first = torch.rand((), generator=generator, dtype=torch.float32).double() + 2**-25  # never a whole number
    return ((first + torch.arange(network_count, dtype=torch.float64) / network_count) % 1)[:, None, None]


def class_weights(
    share: Float[Tensor, "S kinds=3 B K"], count: Int[Tensor, " B"], offset: Float[Tensor, "S 1 1"]
) -> Float[Tensor, "S kinds=3 B K"]:
    """The shares, moved to at most `count` classes each for aleatoric and epistemic; the total is their sum.

    Where there are no more than `count` classes, the shares stay as they are.
    """
    scores = share[:, 1:].sum(-1, keepdim=True)  # (S, 2, B, 1)
    aleatoric, epistemic = (share[:, 1:] / scores.clamp(min=TINY)).unbind(1)
    has_aleatoric, has_epistemic = (scores > 0).unbind(1)
    aleatoric = torch.where(has_aleatoric, aleatoric, epistemic)  # where one is zero, the other is all there is to draw
    epistemic = torch.where(has_epistemic, epistemic, aleatoric)
    common = torch.minimum(aleatoric, epistemic)  # (S, B, K)
    rest_mass = (aleatoric - common).sum(-1, keepdim=True)  # (S, B, 1); the sum of epistemic - common is the same
    count = count[:, None].to(share.device)  # (B, 1)
    rate = sampling_rate(common, rest_mass, count)  # (S, B, 1)
    chances = rate * common  # (S, B, K)
    is_certain = chances >= 1  # (S, B, K)
    point_counts = torch.stack(
        [
            count_points(torch.cat([chances.masked_fill(is_certain, 0), rate * (share_of_kind - common)], -1), offset)
            for share_of_kind in (aleatoric, epistemic)
        ],
        1,
    )  # (S, 2, B, 2 K): points on what is common, points on the rest
    drawn_mass = point_counts.unflatten(-1, (2, -1)).sum(-2) / rate[:, None]  # (S, 2, B, K)
    weights = scores * (drawn_mass + (common * is_certain)[:, None])  # (S, 2, B, K)
    has_all_classes = count >= share.shape[-1]  # (B, 1)
    return torch.where(has_all_classes, share, torch.cat([weights.sum(1, keepdim=True), weights], 1))


def sampling_rate(
    common: Float[Tensor, "S B K"], rest_mass: Float[Tensor, "S B 1"], count: Int[Tensor, "B 1"]
) -> Float[Tensor, "S B 1"]:
    """Inclusion probability per unit of a class's share.

    Classes whose probability would exceed 1 are removed with one point each; the rate is the number of points that
    remain, divided by the mass that remains.
    """
    descending = common.sort(-1, descending=True).values
    left = descending.flip(-1).cumsum(-1).flip(-1) + rest_mass  # (S, B, K): mass of a class and all that are no larger
    is_certain = (count - torch.arange(common.shape[-1], device=common.device)) * descending > left  # (S, B, K)
    certain_count = is_certain.sum(-1, keepdim=True).clamp(max=common.shape[-1] - 1)  # (S, B, 1)
    return (count - certain_count) / left.gather(-1, certain_count).clamp(min=TINY)


def count_points(chances: Float[Tensor, "S B N"], offset: Float[Tensor, "S 1 1"]) -> Float[Tensor, "S B N"]:
    """How many of the points offset, offset + 1, ... fall on each of intervals laid end to end from 0 on."""
    ends = (chances.cumsum(-1) - offset).ceil()
    return ends.diff(dim=-1, prepend=torch.zeros_like(ends[..., :1]))


def pilot_weights(share: Float[Tensor, "S kinds=3 B K"], offset: Float[Tensor, "S 1 1"]) -> Float[Tensor, "S 2 B K"]:
    """Two draws of `PILOT` classes for the total, with offsets half a step apart: weights (S, 2, B, K)."""
    pilot_counts = torch.full((share.shape[2],), PILOT)
    return torch.stack([class_weights(share, pilot_counts, start)[:, 0] for start in (offset, (offset + 0.5) % 1)], 1)


def enough_classes(pilot: Float[Tensor, "B 2 H W"], classes: int) -> Int[Tensor, " B"]:
    """How many classes bring the error down to the tolerance, if two draws of `PILOT` differ as these maps do.

    The variance of a draw falls as 1/n - 1/K. The difference of two draws is used as the error of one. It is larger, so
    that the number errs upwards.
    """
    pilot = pilot.double().flatten(2)
    difference = (pilot[:, 0] - pilot[:, 1]).abs().sum(-1) / pilot.mean(1).sum(-1).clamp(min=TINY)
    wanted_inverse = (TOLERANCE / (SAFETY_FACTOR * difference)) ** 2 * (1 / PILOT - 1 / classes)
    return (1 / (wanted_inverse + 1 / classes)).ceil().long().clamp(min(PILOT, classes), classes).cpu()
