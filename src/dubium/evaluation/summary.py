"""From values per image to a table with intervals, comparisons, and the files that hold them."""

import csv
import io
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import torch

from dubium.evaluation.statistics import Array, Statistic, bootstrap, compare, holm, mean_interval
from dubium.files import write_atomically, write_json

FORMAT = 1


@dataclass(frozen=True)
class Measured:
    """One metric of one method: what the statistic is taken of (images first), and a number an image to test with."""

    values: Array
    statistic: Statistic
    per_image: Array
    higher_is_better: bool | None = None


@dataclass
class Summary:
    """All that a run found; `results[method][metric]` is {"value", "low", "high"}."""

    protocol: str
    settings: dict[str, Any]
    images: dict[str, list[Any]]
    measured: dict[str, dict[str, Measured]]
    few: bool = False  # a handful of runs instead of images: Student's intervals instead of the bootstrap
    notes: list[str] = field(default_factory=list)
    more: dict[str, Any] = field(default_factory=dict)

    def write(self, folder: Path) -> dict[str, Any]:
        """`summary.json`, `results.csv`, `comparisons.csv` and `images.csv`."""
        results = {
            method: {metric: self._interval(found) for metric, found in metrics.items()}
            for method, metrics in self.measured.items()
        }
        per_image = {
            method: {metric: [_number(v) for v in found.per_image] for metric, found in metrics.items()}
            for method, metrics in self.measured.items()
        }
        better = {
            metric: "higher" if found.higher_is_better else "lower"
            for metrics in self.measured.values()
            for metric, found in metrics.items()
            if found.higher_is_better is not None
        }
        comparisons = compared(self.measured, few=self.few)
        content = {
            "format": FORMAT,
            "protocol": self.protocol,
            "settings": self.settings,
            "versions": versions(),
            "results": results,
            "better": better,
            "comparisons": comparisons,
            "notes": self.notes,
            "images": {**self.images, "values": per_image},
            **self.more,
        }
        rows = [
            {"method": method, "metric": metric, **interval}
            for method, metrics in results.items()
            for metric, interval in metrics.items()
        ]
        write_csv(folder / "results.csv", rows)
        write_csv(folder / "comparisons.csv", comparisons)
        write_csv(folder / "images.csv", _image_rows(self.images, per_image))
        write_json(folder / "summary.json", content)
        return content

    def _interval(self, found: Measured) -> dict[str, float]:
        return asdict(mean_interval(found.per_image) if self.few else bootstrap(found.values, found.statistic))


def compared(measured: Mapping[str, Mapping[str, Measured]], *, few: bool = False) -> list[dict[str, Any]]:
    """Every pair of methods on every metric, with p-values corrected for the pairs of that metric (Holm)."""
    rows: list[dict[str, Any]] = []
    for metric in dict.fromkeys(name for metrics in measured.values() for name in metrics):
        having = [method for method, metrics in measured.items() if metric in metrics]
        found = []
        for first, second in combinations(having, 2):
            a, b = measured[first][metric], measured[second][metric]
            result = compare(a.values, b.values, a.statistic, (a.per_image, b.per_image))
            if few:
                result = replace(result, difference=mean_interval(a.per_image - b.per_image))
            found.append({"metric": metric, "a": first, "b": second, **_flat(asdict(result))})
        for row, corrected in zip(found, holm([row["p"] for row in found]), strict=True):
            rows.append({**row, "p_holm": corrected})
    return rows


def versions() -> dict[str, str]:
    """What else the numbers depend on."""
    from dubium import __version__

    return {
        "dubium": __version__,
        "torch": torch.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
    }


def write_csv(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """A table whose columns are the first row's names."""
    text = io.StringIO()
    table = csv.DictWriter(text, list(rows[0]) if rows else [], lineterminator="\n")
    table.writeheader()
    table.writerows(rows)
    write_atomically(path, text.getvalue())


def _image_rows(images: Mapping[str, Sequence[Any]], per_image: Mapping[str, Any]) -> list[dict[str, Any]]:
    rows = []
    for method, metrics in per_image.items():
        for position in range(len(next(iter(metrics.values()), []))):
            about = {name: values[position] for name, values in images.items()}
            rows.append({"method": method, **about, **{metric: values[position] for metric, values in metrics.items()}})
    return rows


def _flat(comparison: dict[str, Any]) -> dict[str, Any]:
    interval = comparison.pop("difference")
    return {"difference": interval["value"], "low": interval["low"], "high": interval["high"], **comparison}


def _number(value: float) -> float | None:
    """JSON knows no NaN."""
    return None if np.isnan(value) else float(value)
