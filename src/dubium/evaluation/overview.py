"""One table over several protocols: who is first in which metric, and who cannot be told from the first."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dubium.errors import FileFormatError
from dubium.evaluation.ranks import tied_ranks
from dubium.evaluation.summary_checks import check_overview
from dubium.path_checks import OVERVIEW
from dubium.protocols import PROTOCOLS
from dubium.reading import read_json
from dubium.registry import CONTROL_NAMES

FILE = OVERVIEW
LEVEL = 0.05  # of the corrected p below which a difference is significant
ROUNDING = 1e-6  # relative difference of values that are equal but for float32


@dataclass(frozen=True)
class OverviewCell:
    """One method in one metric; `rank` counts from 1, and None where no direction is better.

    Methods of equal values share the mean of their ranks, as in Friedman's test. `first`: none is better. `level`: no
    significant difference from those; `beats` and `loses_to` name the methods that do differ.
    """

    protocol: str
    metric: str
    method: str
    value: float
    low: float
    high: float
    rank: float | None
    first: bool
    level: bool
    beats: tuple[str, ...]
    loses_to: tuple[str, ...]

    @property
    def is_control(self) -> bool:
        return is_control(self.method)


def read_overview(folder: Path | str) -> dict[str, Any]:
    """What `evaluate_all` left in a folder."""
    file = Path(folder) / FILE
    content = read_json(file)
    if not isinstance(content, dict) or not {"cells", "mean ranks", "notes"} <= content.keys():
        raise FileFormatError(f"{file} is not of dubium evaluate all: it has no cells, mean ranks and notes.")
    check_overview(content, file)
    return content


def is_control(label: str) -> bool:
    """Whether a method's label is that of a map that knows nothing of the networks."""
    return label.partition(":")[0] in CONTROL_NAMES


def overview_cells(summary: Mapping[str, Any], metrics: Sequence[str] | None = None) -> list[OverviewCell]:
    """The key metrics of one protocol's summary, method by method; those without a better direction have no ranks."""
    cells = []
    protocol = PROTOCOLS.get(summary["protocol"])
    key_metrics = protocol.key_metrics if protocol else ()
    for metric in key_metrics if metrics is None else metrics:
        found = {method: values[metric] for method, values in summary["results"].items() if metric in values}
        if found:
            cells += _metric_cells(summary, metric, found)
    return cells


def _metric_cells(
    summary: Mapping[str, Any], metric: str, found: Mapping[str, Mapping[str, float]]
) -> list[OverviewCell]:
    better = summary["better"].get(metric)
    sign = -1 if better == "higher" else 1
    values = np.array([sign * found[method]["value"] for method in found])
    ranks = dict(zip(found, tied_ranks(merge_rounded(values)).tolist(), strict=True))
    order = sorted(ranks, key=ranks.__getitem__)
    wins = {method: set[str]() for method in found}
    for row in summary["comparisons"]:
        if better and row["metric"] == metric and row["p_holm"] < LEVEL:
            a_wins = (row["effect"] > 0) == (better == "higher")
            winner, loser = (row["a"], row["b"]) if a_wins else (row["b"], row["a"])
            wins[winner].add(loser)
    cells = []
    for method in found:
        losses = tuple(other for other in order if method in wins[other])
        cells.append(
            OverviewCell(
                summary["protocol"],
                metric,
                method,
                **{end: found[method][end] for end in ("value", "low", "high")},
                rank=ranks[method] if better else None,
                first=ranks[method] == ranks[order[0]],
                level=not any(ranks[other] == ranks[order[0]] for other in losses),
                beats=tuple(other for other in order if other in wins[method]),
                loses_to=losses,
            )
        )
    return cells


def merge_rounded(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """The values, where those that are equal but for rounding are the lowest of them.

    Example:
        >>> merge_rounded(np.array([1.0, 0.99999988, 0.5])).tolist()
        [0.99999988, 0.99999988, 0.5]
    """
    merged = values.copy()
    order = np.argsort(values)
    for before, here in pairwise(order):
        if values[here] - values[before] <= ROUNDING * abs(values[before]):
            merged[here] = merged[before]
    return merged


def mean_ranks(cells: Sequence[OverviewCell]) -> dict[str, float]:
    """The mean rank of each method over the metrics that have ranks, lowest first."""
    ranks: dict[str, list[float]] = {}
    for cell in cells:
        if cell.rank is not None:
            ranks.setdefault(cell.method, []).append(cell.rank)
    means = {method: sum(found) / len(found) for method, found in ranks.items()}
    return dict(sorted(means.items(), key=lambda item: item[1]))
