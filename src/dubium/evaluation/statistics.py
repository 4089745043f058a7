"""Intervals, paired tests and effect sizes, so that a difference never stands alone. Seeds are fixed."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dubium.errors import OptionError

Array = NDArray[np.floating[Any]]
Statistic = Callable[[Array, int], Array]
"""`(values, axis) -> numbers`: one number from the values along an axis, such as `np.median`."""

RESAMPLES, FLIPS, LEVEL = 2000, 9999, 0.95
EXACT = 12  # up to so many pairs, all signs are tried
AT_ONCE = 2**22  # numbers resampled at a time


@dataclass(frozen=True)
class Interval:
    """An estimate and its 95 % confidence interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Comparison:
    """What one method has over another on the same images.

    `effect` is the matched-pairs rank-biserial correlation: 1 if `a` is larger on every image, -1 if `b` is.
    """

    difference: Interval
    p: float
    effect: float
    pairs: int


def mean(values: Array, axis: int) -> Array:
    return np.asarray(np.mean(values, axis))


def median(values: Array, axis: int) -> Array:
    return np.asarray(np.median(values, axis))


def bootstrap(
    values: Array, statistic: Statistic, *, resamples: int = RESAMPLES, seed: int = 0, level: float = LEVEL
) -> Interval:
    """Percentile interval of a statistic under resampling of the images, which stand on the first axis."""
    value = float(statistic(_images(values), 0))
    drawn = resampled([values], statistic, resamples, seed)[0]
    return Interval(value, *_percentiles(drawn, level))


def band(
    values: Array, statistic: Statistic, *, resamples: int = RESAMPLES, seed: int = 0, level: float = LEVEL
) -> tuple[Array, Array, Array]:
    """A curve (images, steps) -> its statistic at every step, with the low and high end of each step's interval."""
    drawn = resampled([_images(values)], statistic, resamples, seed)[0]
    low, high = np.quantile(drawn, [(1 - level) / 2, (1 + level) / 2], axis=0)
    return np.asarray(statistic(values, 0)), low, high


def compare(
    a: Array,
    b: Array,
    statistic: Statistic,
    per_image: tuple[Array, Array] | None = None,
    *,
    resamples: int = RESAMPLES,
    seed: int = 0,
    level: float = LEVEL,
) -> Comparison:
    """`statistic(a) - statistic(b)` under a paired bootstrap, and a signed-rank test on the images' own differences.

    `per_image` are the numbers to test where `a` and `b` are curves.
    """
    if len(a) != len(b):
        raise OptionError(f"{len(a)} and {len(b)} values cannot be paired; both must be of the same images.")
    value = float(statistic(_images(a), 0)) - float(statistic(b, 0))
    in_a, in_b = resampled([a, b], statistic, resamples, seed)
    first, second = per_image or (a, b)
    p, effect = signed_rank(first - second, seed=seed)
    return Comparison(Interval(value, *_percentiles(in_a - in_b, level)), p, effect, len(a))


def resampled(samples: Sequence[Array], statistic: Statistic, resamples: int, seed: int) -> list[Array]:
    """The statistic of each sample in every resample; all samples are drawn alike, image by image."""
    images = len(samples[0])
    rows = np.random.default_rng(seed).integers(images, size=(resamples, images))
    chunk = max(1, AT_ONCE // max(1, samples[0].size))
    parts = [rows[start : start + chunk] for start in range(0, resamples, chunk)]
    return [np.concatenate([np.asarray(statistic(sample[part], 1)) for part in parts]) for sample in samples]


def signed_rank(differences: Array, *, flips: int = FLIPS, seed: int = 0) -> tuple[float, float]:
    """Wilcoxon's signed-rank test by flipping signs: two-sided p, and the rank-biserial correlation.

    Exact up to 12 differences that are not zero; zeros say nothing and are left out.
    """
    found = differences[differences != 0]
    if not len(found):
        return 1.0, 0.0
    ranks = tied_ranks(np.abs(found))
    observed = abs(float(np.sign(found) @ ranks))
    if len(found) <= EXACT:
        signs = 1 - 2 * ((np.arange(2 ** len(found))[:, None] >> np.arange(len(found))) & 1)
        p = float(np.mean(np.abs(signs @ ranks) >= observed - 1e-9))
    else:
        signs = 1 - 2 * np.random.default_rng(seed).integers(2, size=(flips, len(found)))
        p = float((1 + np.sum(np.abs(signs @ ranks) >= observed - 1e-9)) / (1 + flips))
    return p, float(np.sign(found) @ ranks / ranks.sum())


def holm(p_values: Sequence[float]) -> list[float]:
    """p-values corrected for how many there are (Holm, 1979)."""
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    corrected, highest = [0.0] * len(p_values), 0.0
    for position, index in enumerate(order):
        highest = max(highest, min(1.0, (len(p_values) - position) * p_values[index]))
        corrected[index] = highest
    return corrected


def tied_ranks(values: Array) -> Array:
    """Ranks from 1; equal values share the mean of their ranks."""
    _, which, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return np.asarray((last - (counts - 1) / 2)[which])


def mean_interval(values: Array, *, level: float = LEVEL) -> Interval:
    """Mean of a few runs with Student's interval; a bootstrap of five would be far too narrow."""
    value, count = float(np.mean(_images(values))), len(values)
    if count == 1:
        return Interval(value, value, value)
    half = student_quantile((1 + level) / 2, count - 1) * float(np.std(values, ddof=1)) / math.sqrt(count)
    return Interval(value, value - half, value + half)


def student_quantile(p: float, freedom: int) -> float:
    """The quantile of Student's distribution for p >= .5: with x = sqrt(n) tan(a), the density of a is cos^(n-1)."""
    angles = (np.arange(200_000) + 0.5) / 200_000 * math.pi / 2
    below = np.cumsum(np.cos(angles) ** (freedom - 1))
    at = int(np.searchsorted(below / below[-1], 2 * p - 1))
    return float(math.sqrt(freedom) * math.tan(angles[min(at, len(angles) - 1)]))


def _percentiles(drawn: Array, level: float) -> tuple[float, float]:
    low, high = np.quantile(drawn, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def _images(values: Array) -> Array:
    if not len(values):
        raise OptionError("There is no image to average over: every image was left out, or none was given.")
    return values
