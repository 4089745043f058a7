"""Removing pixels in a fixed way, most or least relevant first: nothing is searched, so no method is at home there.

Symmetric relevance gain (Bluecher et al., 2024, arXiv:2401.06654): the area under U(x_t) / U(x) when the least relevant
pixels go first, less the area when the most relevant do. Random orders cancel.
"""

from collections.abc import Callable, Sequence
from typing import Literal, get_args

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor
from torch.nn.functional import conv2d

from dubium.errors import OptionError
from dubium.evaluation.gaussian_blur import gaussian_blur
from dubium.evaluation.scoring import Uncertainty
from dubium.types import Images

Removal = Literal["blur", "mean", "linear"]
REMOVALS: tuple[Removal, ...] = get_args(Removal)
SIGMA = 1 / 8  # of the blur, as a part of the image's shorter side: 4 pixels of 32
NOISE = 0.01  # standard deviation, added to linear imputation so that smoothness alone does not show what was removed
STENCIL = ((1 / 12, 1 / 6, 1 / 12), (1 / 6, 0.0, 1 / 6), (1 / 12, 1 / 6, 1 / 12))
TOLERANCE, ITERATIONS = 1e-4, 500
Gone = Bool[Tensor, "B H W"]


def removal_order(maps: Float[Tensor, "B H W"], *, seed: int = 0) -> Int64[Tensor, "B H W"]:
    """0 for the highest pixel. Ties are broken at random, by the seed and the place in the batch: alike for methods."""
    flat = maps.double().flatten(1)
    shuffle = torch.rand(flat.shape, generator=torch.Generator().manual_seed(seed)).argsort(1).to(flat.device)
    order = shuffle.gather(1, flat.gather(1, shuffle).argsort(dim=1, descending=True, stable=True))
    return order.argsort(1).view_as(maps)


def remover(removal: str, x: Images, *, seed: int = 0) -> Callable[[Gone], Images]:
    """A function that takes the pixels `gone` from x."""
    if removal == "linear":
        return lambda gone: impute_linearly(x, gone, seed=seed)
    if removal == "blur":
        instead = gaussian_blur(x, [SIGMA * min(x.shape[2:])])[0]
    elif removal == "mean":
        instead = x.mean((2, 3), keepdim=True)
    else:
        raise OptionError(f"removal={removal!r}; one of {', '.join(REMOVALS)} is needed.")
    return lambda gone: torch.where(gone[:, None], instead, x)


def impute_linearly(x: Images, gone: Gone, *, noise: float = NOISE, seed: int = 0) -> Images:
    """Noisy linear imputation (ROAD; Rong et al., 2022, arXiv:2202.00449).

    Each removed pixel is the weighted mean of its neighbours, removed or not: 1/6 for straight and 1/12 for diagonal
    ones, over those that exist. That is a symmetric positive system, solved by conjugate gradients for all images at
    once. An image without any pixel left becomes its channels' means.
    """
    free = gone[:, None].to(x)
    degree = neighbours(torch.ones_like(x[:1, :1]))
    known = torch.where(gone[:, None], x.mean((2, 3), keepdim=True), x)
    change = torch.zeros_like(x)
    residual = free * (neighbours(known) - degree * known)
    direction = residual / degree
    power = total(residual * direction)
    for _ in range(ITERATIONS):
        if residual.abs().max() < TOLERANCE:
            break
        pulled = free * (degree * direction - neighbours(direction))
        step = power / total(direction * pulled).clamp_min(1e-30)
        change, residual = change + step * direction, residual - step * pulled
        conditioned = residual / degree
        before, power = power, total(residual * conditioned)
        direction = conditioned + power / before.clamp_min(1e-30) * direction
    draws = torch.randn(x.shape[1:], generator=torch.Generator().manual_seed(seed)).to(x)
    return known + change + free * noise * draws


def neighbours(x: Images) -> Images:
    """The weighted sum of each pixel's neighbours, channels apart; none beyond the border."""
    stencil = torch.tensor(STENCIL, dtype=x.dtype, device=x.device)[None, None]
    return conv2d(x.flatten(0, 1)[:, None], stencil, padding=1).view_as(x)


def total(x: Images) -> Float[Tensor, "B C 1 1"]:
    """The sum of each channel: every one is a system of its own."""
    return x.sum((2, 3), keepdim=True)


def removal_curves(
    uncertainty: Uncertainty,
    x: Images,
    order: Int64[Tensor, "B H W"],
    removal: str,
    counts: Sequence[int],
    *,
    seed: int = 0,
) -> Float[Tensor, "B N"]:
    """Uncertainty after the first `count` pixels of the order are removed, for each count."""
    remove = remover(removal, x, seed=seed)
    return torch.stack([uncertainty(remove(order < count)) for count in counts], 1)


def relevance_gain(
    uncertainty: Uncertainty,
    x: Images,
    maps: Float[Tensor, "B H W"],
    removal: str,
    *,
    steps: int = 100,
    seed: int = 0,
) -> Float[Tensor, " B"]:
    """Symmetric relevance gain of each image; NaN where its uncertainty is 0."""
    order = removal_order(maps, seed=seed)
    pixels = order[0].numel()
    counts = [round(pixels * step / steps) for step in range(1, steps + 1)]
    most = removal_curves(uncertainty, x, order, removal, counts, seed=seed).mean(1)
    least = removal_curves(uncertainty, x, pixels - 1 - order, removal, counts, seed=seed).mean(1)
    return (least - most) / uncertainty(x)
