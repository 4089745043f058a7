"""Guided integrated gradients (Kapishnikov et al., 2021, arXiv:2106.09788): a path around noisy slopes."""

from collections.abc import Callable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from dubium.attribution._autograd.autograd_backward import grad_or_refuse
from dubium.attribution._budget import measure_cost
from dubium.attribution._context import DEFAULT_CONTEXT, Context
from dubium.attribution._passes import forward_with_graph
from dubium.attribution._paths import MOST_STEPS, Start, start_images, sum_channels
from dubium.attribution._target import target_for_images
from dubium.checks import check_number
from dubium.types import Images, Maps, Target

FRACTION = 0.25  # of the pixels, those of least slope, move first
DISTANCE = 0.02  # how far a pixel may stray from the straight line

Rows = Float[Tensor, "rows N"]
Slope = Callable[[Rows], Rows]


def guided_ig(
    network: nn.Module,
    x: Images,
    target: Target,
    *,
    steps: int = 100,
    start: Start = "white",
    context: Context = DEFAULT_CONTEXT,
) -> Maps:
    """Credit each pixel with its part of the change along a path that moves pixels of small slope first.

    Each image and target has a path of its own; several starts are averaged.

    Args:
        steps: points on each path.
        start: as for `ig`.
    """
    check_number("steps", steps, most=MOST_STEPS, whole=True)
    start_images(start, x[:1])  # an error before any work
    cost = measure_cost(network, x, target)
    pairs = torch.cartesian_prod(torch.arange(len(x)), torch.arange(cost.target_count)).to(x.device)
    size, _ = cost._replace(target_count=1).chunk_sizes(len(pairs), context.memory)
    maps: list[Float[Tensor, "rows H W"]] = []
    for first in range(0, len(pairs), size):
        image_ids, target_ids = pairs[first : first + size].T
        end, row_target = x[image_ids], target_for_images(target, image_ids)

        def slope(at: Rows, row_target: Target = row_target, target_ids: Int[Tensor, " rows"] = target_ids) -> Rows:
            return row_slopes(network, at.view(-1, *x.shape[1:]), row_target, target_ids).flatten(1)

        origins = start_images(start, end)
        total = torch.zeros_like(end)
        for index, origin in enumerate(origins):
            begin = origin.expand_as(end).flatten(1)
            total += integrate_guided(slope, begin, end.flatten(1), steps).view_as(end)
            context.progress(len(origins) * first + (index + 1) * len(end), len(origins) * len(pairs))
        maps.append(sum_channels(total[:, None] / len(origins), context.signed)[:, 0])
    return torch.cat(maps).view(len(x), cost.target_count, *x.shape[2:])


def row_slopes(network: nn.Module, at: Images, target: Target, target_ids: Int[Tensor, " B"]) -> Images:
    """The gradient, at each point, of the target whose number that point has."""
    leaf, scores = forward_with_graph(network, at, target)
    cotangent = torch.zeros_like(scores).scatter_(1, target_ids[:, None], 1)
    slopes: Tensor = grad_or_refuse(scores, [leaf], cotangent)[0]  # pixels are sorted by slopes, to the last bit
    return slopes


def integrate_guided(slope: Slope, begin: Rows, end: Rows, steps: int) -> Rows:
    """Go from `begin` to `end`, an equal L1 distance a step; sum slope times movement.

    In each step the pixels of least slope go as far ahead as `DISTANCE` allows, then the next, until the distance of
    the step is covered; pixels that fall behind by more are pulled along first.
    """
    at, moved = begin.clone(), torch.zeros_like(begin)
    span = end - begin
    whole = span.abs().sum(1)
    for step in range(steps):
        done = (step + 1) / steps
        behind, ahead = (begin + min(max(done + shift, 0), 1) * span for shift in (-DISTANCE, DISTANCE))
        slopes, before = slope(at), at
        late = (at - behind) * span.sign() < 0
        at = torch.where(late, behind, at)
        left = (end - at).abs().sum(1) - whole * (1 - done)  # distance still to cover in this step
        waiting = at != ahead
        while (active := (left > 1e-6 * whole) & waiting.any(1)).any():
            least = has_small_slope(slopes, waiting) & active[:, None]
            gap = ((ahead - at).abs() * least).sum(1)
            share = torch.where(gap > 0, left / gap, torch.inf).clamp(max=1)
            at = torch.where(least, at + share[:, None] * (ahead - at), at)
            left = left - share * gap
            waiting = waiting & ~least
        moved += slopes * (at - before)
    return moved


def has_small_slope(slopes: Rows, waiting: Bool[Tensor, "rows N"]) -> Bool[Tensor, "rows N"]:
    """The waiting pixels of least |slope|, as many as a quarter (`FRACTION`) of all pixels; ties are included."""
    size = slopes.abs().masked_fill(~waiting | slopes.isnan(), torch.inf)  # NaN moves last
    limit = size.kthvalue(1 + int(FRACTION * (size.shape[1] - 1)), dim=1, keepdim=True).values
    return (size <= limit) & waiting
