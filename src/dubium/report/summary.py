"""What a page says about all images, gathered in one pass over the store."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import log
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from dubium.data.fit import from_size
from dubium.evaluation.metrics.calibration import BINS, reliability_error, reliability_table
from dubium.run.store import Array, Results, Row
from dubium.types import KINDS

FLOOR = 1e-4  # nats; lower scores share the first bar
BARS = 24


@dataclass
class RunSummary:
    """Counts over all images of a run; `edges` are those of the score histograms, in nats."""

    edges: NDArray[np.float64]
    classes: Sequence[str] | None
    images: int = 0
    labelled: int = 0
    right: int = 0
    counts: dict[str, NDArray[np.int64]] = field(default_factory=dict)
    sums: dict[str, float] = field(default_factory=lambda: dict.fromkeys(KINDS, 0.0))
    reliability: Float[Tensor, "bins columns=3"] = field(default_factory=lambda: torch.zeros(BINS, 3).double())
    doubt: Counter[tuple[int, int]] = field(default_factory=Counter)
    mistakes: Counter[tuple[int, int]] = field(default_factory=Counter)

    @property
    def accuracy(self) -> float | None:
        return self.right / self.labelled if self.labelled else None

    @property
    def calibration_error(self) -> float | None:
        """What `dubium.evaluation.calibration_error` gives for the labelled images."""
        return reliability_error(self.reliability) if self.labelled else None

    def name(self, index: int) -> str:
        """A class by its name, or else its number."""
        return str(self.classes[index]) if self.classes and index < len(self.classes) else str(index)


def summarise_results(results: Results) -> RunSummary:
    """Read scores, labels and predictions of all images, a row group at a time."""
    summary: RunSummary | None = None
    for table in results.columns(["label", "prediction", "probs", *KINDS]):
        if not table["probs"]:
            continue
        probs = np.asarray(table["probs"], np.float64)
        summary = summary or RunSummary(histogram_edges(probs.shape[1]), results.about.get("classes"))
        count_scores(summary, table)
        count_predictions(summary, table, probs)
    return summary or RunSummary(histogram_edges(2), results.about.get("classes"))


def histogram_edges(classes: int) -> NDArray[np.float64]:
    """From `FLOOR` to the highest entropy of so many classes, on a logarithmic scale."""
    return np.geomspace(FLOOR, log(max(2, classes)), BARS + 1)


def count_scores(summary: RunSummary, table: dict[str, list[Any]]) -> None:
    """Add the scores of some rows to the summary."""
    summary.images += len(table["probs"])
    for kind in KINDS:
        scores = np.asarray(table[kind], np.float64)
        summary.sums[kind] += float(scores.sum())
        inside = np.clip(scores, summary.edges[0], summary.edges[-1])
        counts, _ = np.histogram(inside, summary.edges)
        summary.counts[kind] = summary.counts.get(kind, np.zeros(BARS, np.int64)) + counts


def count_predictions(summary: RunSummary, table: dict[str, list[Any]], probs: NDArray[np.float64]) -> None:
    """Add the likeliest classes of some rows to the summary, and how they compare with the labels."""
    first, second = np.argsort(-probs, axis=1, kind="stable")[:, :2].T
    chances = probs[np.arange(len(probs)), second]
    for a, b, chance in zip(first.tolist(), second.tolist(), chances.tolist(), strict=True):
        summary.doubt[min(a, b), max(a, b)] += chance
    labelled = [row for row, label in enumerate(table["label"]) if label is not None]
    answers = [(table["label"][row], table["prediction"][row]) for row in labelled]
    is_right = torch.tensor([label == prediction for label, prediction in answers], dtype=torch.bool)
    confidence = torch.from_numpy(probs[labelled, first[labelled]])
    summary.labelled += len(labelled)
    summary.right += int(is_right.sum())
    summary.reliability += reliability_table(confidence, is_right)
    summary.mistakes.update((label, prediction) for label, prediction in answers if label != prediction)


class MeanMap:
    """A running mean of maps; those of other sizes are brought to the first one's."""

    def __init__(self) -> None:
        self.sums: dict[str, Array] = {}
        self.count = 0

    def add(self, row: Row) -> None:
        for kind, array in row.coarse_maps().items():
            shape = self.sums[kind].shape if kind in self.sums else array.shape
            resized = from_size(torch.from_numpy(array.copy()), shape).numpy()
            self.sums[kind] = self.sums[kind] + resized if kind in self.sums else resized
        self.count += bool(row.stored_maps())

    def means(self) -> dict[str, Array]:
        return {kind: np.asarray(array / max(1, self.count), np.float32) for kind, array in self.sums.items()}
