"""Ranks of values, and how alike two rankings are."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray


def rank_correlation(a: ArrayLike, b: ArrayLike) -> float:
    """Spearman's correlation, with mean ranks for ties; 0 where one of the two is constant.

    Example:
        >>> rank_correlation([1, 2, 3], [9, 5, 1])
        -1.0
    """
    first, second = (tied_ranks(np.asarray(values, np.float64)) for values in (a, b))
    first, second = first - first.mean(), second - second.mean()
    norm = float(np.sqrt((first @ first) * (second @ second)))
    return float(first @ second) / norm if norm > 0 else 0.0


def tied_ranks(values: NDArray[Any]) -> NDArray[np.float64]:
    """Ranks from 1; equal values share the mean of their ranks."""
    _, which, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return np.asarray((last - (counts - 1) / 2)[which], np.float64)
