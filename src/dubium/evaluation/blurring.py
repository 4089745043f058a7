"""The blurring test (Sec. 5.2.1): does the uncertainty fall when the pixels that are blamed for it are blurred?"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np
import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from dubium.errors import OptionError
from dubium.evaluation.gaussian_blur import gaussian_blur
from dubium.evaluation.scoring import BATCH_SIZE, Uncertainty
from dubium.evaluation.statistics import Array
from dubium.types import Images

HIGHER_IS_BETTER = {"murr": True, "auc-urr": False}
FRACTIONS = (0.02, 0.05)
STEP = 0.2
Search = Literal["ranked", "whole"]
"""Which image the search for sigma scores: blurred at the method's own pixels, or blurred as a whole."""


@dataclass(frozen=True)
class Blurring:
    """Uncertainty while up to T pixels are blurred, and the sigma that was chosen for each image."""

    curves: Float[Tensor, "B T1"]  # T1 = T + 1: column t is U(x_t), the first one U(x)
    sigma: Float[Tensor, " B"]


def sigma_grid(step: float = STEP, most: float = 20.0) -> tuple[float, ...]:
    """0, step, 2 step, ... up to `most`."""
    return tuple(round(step * n, 10) for n in range(round(most / step) + 1))


def pixel_counts(height: int, width: int, fractions: Sequence[float] = FRACTIONS) -> tuple[int, ...]:
    """How many pixels each fraction of an image is: 20 and 51 for 32 x 32."""
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
    search: Search = "ranked",
    batch_size: int = BATCH_SIZE,
) -> list[Blurring]:
    """Blur the highest pixels one by one, with the sigma that leaves the least uncertainty: a result a count."""
    blurred, rank = gaussian_blur(x, sigmas), pixel_ranks(maps)
    pixels, images, strengths = rank[0].numel(), torch.arange(len(x)), torch.arange(len(sigmas))
    searched = counts if search == "ranked" else [pixels]
    score = partial(_scores, uncertainty, x, blurred, rank, torch.tensor(sigmas) == 0, batch_size)
    found = score(torch.cartesian_prod(images, strengths, torch.tensor(searched)))
    lowest = found.view(len(x), len(sigmas), len(searched)).numpy(force=True).argmin(1)  # NumPy's: the first of equals
    best = torch.from_numpy(lowest).expand(len(x), len(counts))
    steps = [torch.arange(count + 1) for count in counts]
    wanted = [
        torch.stack([images[:, None].expand(-1, len(t)), best[:, [c]].expand(-1, len(t)), t.expand(len(x), -1)], -1)
        for c, t in enumerate(steps)
    ]
    left = score(torch.cat([rows.flatten(0, 1) for rows in wanted]))
    curves = left.split([len(x) * len(t) for t in steps])
    grid = torch.tensor(sigmas, dtype=torch.float64)
    return [Blurring(curve.view(len(x), -1), grid[best[:, c]]) for c, curve in enumerate(curves)]


def _scores(
    uncertainty: Uncertainty,
    x: Images,
    blurred: Float[Tensor, "N B C H W"],
    rank: Int64[Tensor, "B H W"],
    unblurred: Bool[Tensor, " N"],
    batch_size: int,
    wanted: Int64[Tensor, "rows 3"],
) -> Float[Tensor, " rows"]:
    """Uncertainty of (image, sigma, count) candidates, each different one once, in full batches."""
    image, sigma, count = wanted.unbind(1)
    count = torch.where(unblurred[sigma], 0, count)
    sigma = torch.where(count == 0, 0, sigma)  # the image itself, whatever sigma
    candidates, where = torch.stack([image, sigma, count], 1).unique(dim=0, return_inverse=True)
    scores = []
    for part in candidates.split(batch_size):
        image, sigma, count = part.unbind(1)
        chosen = (rank[image] < count[:, None, None])[:, None]
        scores.append(uncertainty(torch.where(chosen, blurred[sigma, image], x[image])))
    return torch.cat(scores)[where]


def reduction_rates(curves: Array) -> Array:
    """U(x_t) a row -> `max_{i <= t} 1 - U(x_i) / U(x)`, from 0 at t = 0; a row of NaN where U(x) is 0."""
    start = curves[:, :1]
    with np.errstate(divide="ignore", invalid="ignore"):
        rates = np.where(start > 0, 1 - curves / start, np.nan)
    return np.asarray(np.maximum.accumulate(rates, axis=1))


def murr(rates: Array, axis: int) -> Array:
    """Maximum uncertainty reduction rate: the highest point of the median curve, which never falls."""
    return np.asarray(np.median(rates[..., -1], axis))


def auc_urr(rates: Array, axis: int) -> Array:
    """Mean over t = 0 .. T of what the median curve leaves of the uncertainty."""
    return np.asarray(1 - np.median(rates, axis).mean(-1))


def areas(rates: Array) -> Array:
    """Each image's own area."""
    return np.asarray(1 - rates.mean(-1))
