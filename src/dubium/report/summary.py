"""What a page says about all images, gathered in one pass over the store."""

from collections import Counter
from dataclasses import dataclass, field
from math import log
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from dubium.data.fit import place_map
from dubium.evaluation.metrics.calibration import BINS, reliability_error, reliability_table
from dubium.run.row import Array, Row
from dubium.run.store import Results
from dubium.types import KINDS

FLOOR = 1e-4  # nats; lower scores share the first bar
BARS = 24


@dataclass
class RunSummary:
    """Counts over all images of a run.

    `edges` are those of the score histograms, in nats: from `FLOOR` to the highest entropy of so many classes, on a
    logarithmic scale.
    """

    edges: NDArray[np.float64] = field(default_factory=lambda: np.geomspace(FLOOR, log(2), BARS + 1))
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


def summarise_results(results: Results) -> RunSummary:
    """Read scores, labels and predictions of all images, a row group at a time."""
    summary = RunSummary()
    for table in results.columns(["label", "prediction", "probs", *KINDS]):
        probs = np.asarray(table["probs"], np.float64)
        if not summary.images:
            summary.edges = np.geomspace(FLOOR, log(max(2, probs.shape[1])), BARS + 1)
        summary.images += len(probs)
        for kind in KINDS:
            scores = np.asarray(table[kind], np.float64)
            summary.sums[kind] += float(scores.sum())
            counts, _ = np.histogram(np.clip(scores, summary.edges[0], summary.edges[-1]), summary.edges)
            summary.counts[kind] = summary.counts.get(kind, np.zeros(BARS, np.int64)) + counts
        count_predictions(summary, table, probs)
    return summary


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


@dataclass
class MeanMap:
    """Sums of a method's maps by kind, and of how many images; maps of other sizes are brought to the first one's."""

    method: str
    sums: dict[str, Array] = field(default_factory=dict)
    count: int = 0

    def add(self, row: Row) -> None:
        for kind, array in row.coarse_maps().items():
            size = self.sums.get(kind, array).shape
            resized = place_map(torch.from_numpy(array.copy()), size, (0, 0, *size)).numpy()
            self.sums[kind] = self.sums[kind] + resized if kind in self.sums else resized
        self.count += bool(row.stored_maps())
