"""The blurring test (Sec. 5.2.1): does the uncertainty fall when the pixels that are blamed for it are blurred?"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor

from dubium.errors import OptionError
from dubium.evaluation.metrics.gaussian_blur import gaussian_blur
from dubium.evaluation.metrics.scoring import BATCH_SIZE, Uncertainty
from dubium.evaluation.statistics import Array
from dubium.types import Images

HIGHER_IS_BETTER = {"murr": True, "auc-urr": False}
FRACTIONS = (0.02, 0.05)
STEP = 0.2
SigmaSearch = Literal["ranked", "whole"]
"""Which image the search for sigma scores: blurred at the method's own pixels, or blurred as a whole."""


@dataclass(frozen=True)
class BlurringCurves:
    """Uncertainty while up to T pixels are blurred, and the sigma that was chosen for each image."""

    curves: Float[Tensor, "B steps"]  # column t is U(x_t), the first one U(x)
    sigma: Float[Tensor, " B"]


@dataclass(frozen=True)
class BlurredImages:
    """Images, their copies at every sigma, and the order in which their pixels are blurred."""

    x: Images
    sigmas: Float[Tensor, " N"]
    copies: Float[Tensor, "N B C H W"]
    ranks: Int64[Tensor, "B H W"]


def sigma_grid(step: float = STEP, most: float = 20.0) -> tuple[float, ...]:
    """Evenly spaced sigmas: 0, step, 2 step, ... up to `most`.

    Example:
        >>> sigma_grid(5.0)
        (0.0, 5.0, 10.0, 15.0, 20.0)
    """
    return tuple(round(step * n, 10) for n in range(round(most / step) + 1))


def pixel_counts(height: int, width: int, fractions: Sequence[float] = FRACTIONS) -> tuple[int, ...]:
    """How many pixels each fraction of an image is.

    Example:
        >>> pixel_counts(32, 32)
        (20, 51)
    """
    for fraction in fractions:
        if not 0 < fraction <= 1 or round(fraction * height * width) < 1:
            raise OptionError(f"A fraction is {fraction}; from one pixel in {height * width} to 1 is needed.")
    return tuple(round(fraction * height * width) for fraction in fractions)


def pixel_ranks(maps: Float[Tensor, "B H W"]) -> Int64[Tensor, "B H W"]:
    """0 for the pixel with the highest attribution; the sign counts, and the first of equal pixels comes first."""
    order = maps.flatten(1).argsort(dim=1, descending=True, stable=True)
    return order.argsort(dim=1).view_as(maps)


def blurring_test(
    uncertainty: Uncertainty,
    x: Images,
    maps: Float[Tensor, "B H W"],
    *,
    counts: Sequence[int],
    sigmas: Sequence[float],
    search: SigmaSearch = "ranked",
    batch_size: int = BATCH_SIZE,
) -> list[BlurringCurves]:
    """Blur the highest pixels one by one, with the sigma that leaves the least uncertainty.

    Args:
        uncertainty: nats of a batch of images, see `scorer`.
        maps: the attribution that ranks the pixels.
        counts: pixels to blur, see `pixel_counts`.
        sigmas: strengths to choose from, see `sigma_grid`; of equally good ones the first is taken.
        search: whether sigma is chosen for the image with its highest pixels blurred, or blurred as a whole.
        batch_size: images scored at a time.

    Returns:
        The curves and the chosen sigmas, for each count.

    Example:
        >>> x = torch.zeros(1, 1, 4, 4)
        >>> x[..., 1, 1] = 1
        >>> found = blurring_test(lambda x: x.amax((1, 2, 3)), x, x[:, 0], counts=[1], sigmas=[0.0, 2.0])
        >>> found[0].sigma.item(), found[0].curves.shape
        (2.0, torch.Size([1, 2]))
    """
    grid = torch.tensor(sigmas, dtype=torch.float64)
    blurred = BlurredImages(x, grid, gaussian_blur(x, sigmas), pixel_ranks(maps))
    images, searched = torch.arange(len(x)), counts if search == "ranked" else [maps[0].numel()]
    candidates = torch.cartesian_prod(images, torch.arange(len(sigmas)), torch.tensor(searched))
    scores = candidate_scores(uncertainty, blurred, candidates, batch_size).view(len(x), len(sigmas), len(searched))
    lowest = scores.numpy(force=True).argmin(1)  # NumPy's: the first of equal ones
    best = torch.from_numpy(lowest).expand(len(x), len(counts))
    steps = [torch.arange(count + 1) for count in counts]
    wanted = [
        torch.stack([images[:, None].expand(-1, len(t)), best[:, [c]].expand(-1, len(t)), t.expand(len(x), -1)], -1)
        for c, t in enumerate(steps)
    ]
    left = candidate_scores(uncertainty, blurred, torch.cat([rows.flatten(0, 1) for rows in wanted]), batch_size)
    curves = left.split([len(x) * len(t) for t in steps])
    return [BlurringCurves(curve.view(len(x), -1), grid[best[:, c]]) for c, curve in enumerate(curves)]


def candidate_scores(
    uncertainty: Uncertainty, blurred: BlurredImages, candidates: Int64[Tensor, "rows columns=3"], batch_size: int
) -> Float[Tensor, " rows"]:
    """Uncertainty of (image, sigma, count) candidates, each different one scored once, in full batches."""
    image, sigma, count = candidates.unbind(1)
    count = torch.where(blurred.sigmas[sigma] == 0, 0, count)
    sigma = torch.where(count == 0, 0, sigma)  # the image itself, whatever sigma
    different, where = torch.stack([image, sigma, count], 1).unique(dim=0, return_inverse=True)
    scores = []
    for part in different.split(batch_size):
        image, sigma, count = part.unbind(1)
        chosen = (blurred.ranks[image] < count[:, None, None])[:, None]
        scores.append(uncertainty(torch.where(chosen, blurred.copies[sigma, image], blurred.x[image])))
    return torch.cat(scores)[where]


def reduction_rates(curves: Array) -> Array:
    """Uncertainty reduction rates (URR): the largest part of U(x) that has gone up to each step.

    Args:
        curves: U(x_t), one row for each image and one column for each step.

    Returns:
        `max_{i <= t} 1 - U(x_i) / U(x)`, from 0 at t = 0; a row of NaN where U(x) is 0.

    Example:
        >>> reduction_rates(np.array([[2.0, 3.0, 1.0, 1.5]])).tolist()
        [[0.0, 0.0, 0.5, 0.5]]
    """
    start = curves[:, :1]
    with np.errstate(divide="ignore", invalid="ignore"):
        rates = np.where(start > 0, 1 - curves / start, np.nan)
    return np.asarray(np.maximum.accumulate(rates, axis=1))


def murr(rates: Array, axis: int) -> Array:
    """Maximum uncertainty reduction rate: the highest point of the median curve, which never falls.

    Args:
        rates: (..., steps) of `reduction_rates`.
        axis: that of the images.

    Example:
        >>> float(murr(np.array([[0.0, 0.25], [0.0, 0.5], [0.0, 1.0]]), 0))
        0.5
    """
    return np.asarray(np.median(rates[..., -1], axis))


def auc_urr(rates: Array, axis: int) -> Array:
    """Mean over t = 0 .. T of what the median curve leaves of the uncertainty; arguments as those of `murr`.

    Example:
        >>> float(auc_urr(np.array([[0.0, 0.25], [0.0, 0.5], [0.0, 1.0]]), 0))
        0.75
    """
    return np.asarray(1 - np.median(rates, axis).mean(-1))


def image_areas(rates: Array) -> Array:
    """Mean over t of what is left of the uncertainty, for each image by itself."""
    return np.asarray(1 - rates.mean(-1))
