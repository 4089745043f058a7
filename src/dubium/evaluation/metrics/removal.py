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
from dubium.evaluation.metrics.gaussian_blur import gaussian_blur
from dubium.evaluation.metrics.scoring import BATCH_SIZE, Uncertainty
from dubium.types import Images

Removal = Literal["blur", "mean", "linear"]
REMOVALS: tuple[Removal, ...] = get_args(Removal)
SIGMA = 1 / 8  # of the blur, as a part of the image's shorter side: 4 pixels of 32
NOISE = 0.01  # standard deviation, added to linear imputation so that smoothness alone does not show what was removed
STENCIL = ((1 / 12, 1 / 6, 1 / 12), (1 / 6, 0.0, 1 / 6), (1 / 12, 1 / 6, 1 / 12))
TOLERANCE, ITERATIONS = 1e-4, 500
STEPS = 100  # in which all pixels go
Gone = Bool[Tensor, "B H W"]


def removal_order(maps: Float[Tensor, "B H W"], *, seed: int = 0) -> Int64[Tensor, "B H W"]:
    """0 for the highest pixel. Ties are broken at random, by the seed and the place in the batch: alike for methods."""
    flat = maps.double().flatten(1)
    shuffle = (
        torch.rand(flat.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float32)
        .argsort(1)
        .to(flat.device)
    )
    order = shuffle.gather(1, flat.gather(1, shuffle).argsort(dim=1, descending=True, stable=True))
    return order.argsort(1).view_as(maps)


def remover(removal: str, x: Images, *, seed: int = 0) -> Callable[[Gone], Images]:
    """A function that takes the pixels `gone` from x; `gone` may hold several masks of each image, (n * B, H, W)."""
    if removal == "linear":
        return lambda gone: impute_linearly(x.repeat(len(gone) // len(x), 1, 1, 1), gone, seed=seed)
    if removal == "blur":
        instead = gaussian_blur(x, [SIGMA * min(x.shape[2:])])[0]
    elif removal == "mean":
        instead = x.mean((2, 3), keepdim=True).expand_as(x)
    else:
        raise OptionError(f"removal={removal!r}; one of {', '.join(REMOVALS)} is needed.")

    def remove(gone: Gone) -> Images:
        copies = len(gone) // len(x)
        return torch.where(gone[:, None], instead.repeat(copies, 1, 1, 1), x.repeat(copies, 1, 1, 1))

    return remove


def impute_linearly(x: Images, gone: Gone, *, noise: float = NOISE, seed: int = 0) -> Images:
    """Noisy linear imputation (ROAD; Rong et al., 2022, arXiv:2202.00449).

    Each removed pixel is the weighted mean of its neighbours, removed or not: 1/6 for straight and 1/12 for diagonal
    ones, over those that exist. That is a symmetric positive system, solved by conjugate gradients for all images at
    once. An image without any pixel left becomes its channels' means.
    """
    free = gone[:, None].to(x)
    degree = neighbour_sum(torch.ones_like(x[:1, :1]))
    known = torch.where(gone[:, None], x.mean((2, 3), keepdim=True), x)
    change = torch.zeros_like(x)
    residual = free * (neighbour_sum(known) - degree * known)
    direction = residual / degree
    power = channel_sum(residual * direction)
    for _ in range(ITERATIONS):
        unsolved = residual.abs().amax((2, 3), keepdim=True) >= TOLERANCE
        if not unsolved.any():
            break
        pulled = free * (degree * direction - neighbour_sum(direction))
        step = unsolved * power / channel_sum(direction * pulled).clamp_min(1e-30)  # a solved system stays as it is
        change, residual = change + step * direction, residual - step * pulled
        conditioned = residual / degree
        before, power = power, channel_sum(residual * conditioned)
        direction = conditioned + power / before.clamp_min(1e-30) * direction
    draws = torch.randn(x.shape[1:], generator=torch.Generator().manual_seed(seed), dtype=torch.float32).to(x)
    return known + change + free * noise * draws


def neighbour_sum(x: Images) -> Images:
    """The weighted sum of each pixel's neighbours, channels apart; none beyond the border."""
    stencil = torch.tensor(STENCIL, dtype=x.dtype, device=x.device)[None, None]
    return conv2d(x.flatten(0, 1)[:, None], stencil, padding=1).view_as(x)


def channel_sum(x: Images) -> Float[Tensor, "B C 1 1"]:
    """The sum of each channel: every one is a system of its own."""
    return x.sum((2, 3), keepdim=True)


def removal_counts(pixels: int, steps: int = STEPS) -> list[int]:
    """How many pixels have gone after each of `steps` even steps; the last is all of them.

    Example:
        >>> removal_counts(10, steps=4)
        [2, 5, 8, 10]
    """
    return [round(pixels * step / steps) for step in range(1, steps + 1)]


def removal_curves(
    measure: Callable[[Images], Tensor],
    x: Images,
    order: Int64[Tensor, "B H W"],
    removal: str,
    counts: Sequence[int],
    *,
    seed: int = 0,
) -> Tensor:
    """What `measure` gives after the first `count` pixels of the order are removed, (B, counts, ...)."""
    remove, copies = remover(removal, x, seed=seed), max(1, BATCH_SIZE // len(x))
    parts = []
    for part in torch.tensor(counts).split(copies):
        gone = order < part.view(-1, 1, 1, 1)  # (n, B, H, W)
        found = measure(remove(gone.flatten(0, 1)))
        parts.append(found.view(len(part), len(x), *found.shape[1:]))
    return torch.cat(parts).transpose(0, 1)


def symmetric_gain(
    most: Float[Tensor, "B N"], least: Float[Tensor, "B N"], before: Float[Tensor, " B"]
) -> Float[Tensor, " B"]:
    """Symmetric relevance gain from the curves with the most and with the least relevant pixels first.

    Example:
        >>> symmetric_gain(torch.tensor([[1.0, 0.0]]), torch.tensor([[2.0, 1.0]]), torch.tensor([2.0])).item()
        0.5
    """
    return (least.mean(1) - most.mean(1)) / before


def relevance_gain(
    uncertainty: Uncertainty,
    x: Images,
    maps: Float[Tensor, "B H W"],
    removal: str,
    *,
    steps: int = STEPS,
    seed: int = 0,
) -> Float[Tensor, " B"]:
    """Symmetric relevance gain of each image; NaN where its uncertainty is 0.

    Args:
        uncertainty: nats of a batch of images, see `scorer`.
        x: images.
        maps: the attribution that ranks the pixels.
        removal: "blur", "mean" or "linear".
        steps: in how many steps all pixels go.
        seed: of the order of equal pixels, and of the noise of linear imputation.

    Returns:
        The area with the least relevant pixels first less that with the most relevant first, as parts of U(x).

    Example:
        >>> x = torch.zeros(1, 1, 2, 2)
        >>> x[0, 0, 0, 0] = 1
        >>> relevance_gain(lambda x: x[:, 0, 0, 0].double(), x, x[:, 0], "mean", steps=4).item()
        0.5625
    """
    order = removal_order(maps, seed=seed)
    pixels = order[0].numel()
    counts = removal_counts(pixels, steps)
    most, least = (
        removal_curves(uncertainty, x, ranks, removal, counts, seed=seed) for ranks in (order, pixels - 1 - order)
    )
    return symmetric_gain(most, least, uncertainty(x))
