"""Intervals, paired tests and effect sizes, so that a difference never stands alone. Seeds are fixed."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dubium.errors import OptionError
from dubium.evaluation.ranks import tied_ranks

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
    """Percentile interval of a statistic under resampling of the images.

    Args:
        values: one number or one curve for each image, images on the first axis.
        statistic: `(values, axis) -> numbers`, such as `mean` or `murr`.
        resamples: how often the images are drawn again, with replacement.
        seed: of the draws.
        level: of confidence.

    Returns:
        The statistic of `values` with its interval.

    Example:
        >>> bootstrap(np.full(20, 3.0), np.median)
        Interval(value=3.0, low=3.0, high=3.0)
    """
    value = float(statistic(_check_not_empty(values), 0))
    estimates = resample_statistic([values], statistic, resamples, seed)[0]
    return Interval(value, *_percentiles(estimates, level))


def band(
    values: Array, statistic: Statistic, *, resamples: int = RESAMPLES, seed: int = 0, level: float = LEVEL
) -> tuple[Array, Array, Array]:
    """The statistic of curves at every step, with its percentile interval.

    Args:
        values: (images, steps).

    Returns:
        The statistic, the low and the high end of its interval, each (steps,); other arguments as of `bootstrap`.
    """
    estimates = resample_statistic([_check_not_empty(values)], statistic, resamples, seed)[0]
    low, high = np.quantile(estimates, [(1 - level) / 2, (1 + level) / 2], axis=0)
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

    Args:
        a: one number or one curve for each image.
        b: of the same images, in the same order.
        statistic: `(values, axis) -> numbers`.
        per_image: the numbers to test where `a` and `b` are curves.
    """
    if len(a) != len(b):
        raise OptionError(f"{len(a)} and {len(b)} values cannot be paired; both must be of the same images.")
    value = float(statistic(_check_not_empty(a), 0)) - float(statistic(b, 0))
    in_a, in_b = resample_statistic([a, b], statistic, resamples, seed)
    first, second = per_image or (a, b)
    p, effect = signed_rank(first - second, seed=seed)
    return Comparison(Interval(value, *_percentiles(in_a - in_b, level)), p, effect, len(a))


def resample_statistic(samples: Sequence[Array], statistic: Statistic, resamples: int, seed: int) -> list[Array]:
    """The statistic of each sample in every resample, (resamples, ...); all samples take the same images."""
    images = len(samples[0])
    rows = np.random.default_rng(seed).integers(images, size=(resamples, images))
    chunk = max(1, AT_ONCE // max(1, samples[0].size))
    parts = [rows[start : start + chunk] for start in range(0, resamples, chunk)]
    return [np.concatenate([np.asarray(statistic(sample[part], 1)) for part in parts]) for sample in samples]


def signed_rank(differences: Array, *, flips: int = FLIPS, seed: int = 0) -> tuple[float, float]:
    """Wilcoxon's signed-rank test by flipping signs: two-sided p, and the rank-biserial correlation.

    Exact up to 12 differences that are not zero; zeros say nothing and are left out.

    Example:
        >>> signed_rank(np.array([1.0, 2.0, 3.0, 4.0, 5.0]))
        (0.0625, 1.0)
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
    """p-values corrected for how many there are (Holm, 1979).

    Example:
        >>> holm([0.25, 0.5])
        [0.5, 0.5]
    """
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    corrected, highest = [0.0] * len(p_values), 0.0
    for position, index in enumerate(order):
        highest = max(highest, min(1.0, (len(p_values) - position) * p_values[index]))
        corrected[index] = highest
    return corrected


def mean_interval(values: Array, *, level: float = LEVEL) -> Interval:
    """Mean of a few runs with Student's interval; a bootstrap of five numbers would be far too narrow."""
    value, count = float(np.mean(_check_not_empty(values))), len(values)
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


def _percentiles(estimates: Array, level: float) -> tuple[float, float]:
    low, high = np.quantile(estimates, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def _check_not_empty(values: Array) -> Array:
    if not len(values):
        raise OptionError("There is no image to average over: every image was left out, or none was given.")
    return values
