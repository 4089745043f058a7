"""What a page says about all images, gathered in one pass over the store."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import log
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from dubium.data.fit import from_size
from dubium.run.store import Array, Results, Row
from dubium.types import KINDS

BINS = 10  # of confidence, in the reliability diagram
FLOOR = 1e-4  # nats; lower scores share the first bar
BARS = 24


@dataclass
class Summary:
    """Counts over all images; `edges` are those of the score histograms, in nats."""

    edges: NDArray[np.float64]
    classes: Sequence[str] | None
    images: int = 0
    labelled: int = 0
    right: int = 0
    counts: dict[str, NDArray[np.int64]] = field(default_factory=dict)
    sums: dict[str, float] = field(default_factory=lambda: dict.fromkeys(KINDS, 0.0))
    reliability: NDArray[np.float64] = field(default_factory=lambda: np.zeros((BINS, 3)))  # count, confidence, right
    doubt: Counter[tuple[int, int]] = field(default_factory=Counter)
    mistakes: Counter[tuple[int, int]] = field(default_factory=Counter)

    @property
    def accuracy(self) -> float | None:
        return self.right / self.labelled if self.labelled else None

    @property
    def calibration_error(self) -> float | None:
        """Mean distance between confidence and accuracy, over the bins (ECE)."""
        _, confidence, right = self.reliability.T
        return float(np.abs(confidence - right).sum() / self.labelled) if self.labelled else None

    def name(self, index: int) -> str:
        """A class by its name, or else its number."""
        return str(self.classes[index]) if self.classes and index < len(self.classes) else str(index)


def summarise(results: Results) -> Summary:
    """Read scores, labels and predictions of all images, a row group at a time."""
    found: Summary | None = None
    for table in results.columns(["label", "prediction", "probs", *KINDS]):
        if not table["probs"]:
            continue
        probs = np.asarray(table["probs"], np.float64)
        found = found or Summary(edges(probs.shape[1]), results.about.get("classes"))
        add(found, table, probs)
    return found or Summary(edges(2), results.about.get("classes"))


def edges(classes: int) -> NDArray[np.float64]:
    return np.geomspace(FLOOR, log(max(2, classes)), BARS + 1)


def add(summary: Summary, table: dict[str, list[Any]], probs: NDArray[np.float64]) -> None:
    summary.images += len(probs)
    for kind in KINDS:
        scores = np.asarray(table[kind], np.float64)
        summary.sums[kind] += float(scores.sum())
        inside = np.clip(scores, summary.edges[0], summary.edges[-1])
        counts, _ = np.histogram(inside, summary.edges)
        summary.counts[kind] = summary.counts.get(kind, np.zeros(BARS, np.int64)) + counts
    first, second = np.argsort(-probs, axis=1, kind="stable")[:, :2].T
    chances = probs[np.arange(len(probs)), second]
    confidence = probs[np.arange(len(probs)), first]
    places = np.minimum((confidence * BINS).astype(int), BINS - 1)
    for row, (a, b) in enumerate(zip(first.tolist(), second.tolist(), strict=True)):
        summary.doubt[min(a, b), max(a, b)] += float(chances[row])  # type: ignore[assignment]
        label = table["label"][row]
        if label is None:
            continue
        right = label == table["prediction"][row]
        summary.labelled += 1
        summary.right += right
        summary.reliability[places[row]] += (1, confidence[row], right)
        if not right:
            summary.mistakes[label, table["prediction"][row]] += 1


class MeanMap:
    """A running mean of maps; those of other sizes are brought to the first one's."""

    def __init__(self) -> None:
        self.sums: dict[str, Array] = {}
        self.count = 0

    def add(self, row: Row) -> None:
        for kind, array in row.maps().items():
            shape = self.sums[kind].shape if kind in self.sums else array.shape
            fitted = from_size(torch.from_numpy(array.copy()), shape).numpy()
            self.sums[kind] = self.sums[kind] + fitted if kind in self.sums else fitted
        self.count += bool(row.maps())

    def means(self) -> dict[str, Array]:
        return {kind: np.asarray(array / max(1, self.count), np.float32) for kind, array in self.sums.items()}
