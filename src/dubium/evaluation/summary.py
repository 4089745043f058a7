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

from dubium.errors import FileFormatError
from dubium.evaluation.statistics import Array, Statistic, bootstrap, compare, holm, mean_interval
from dubium.evaluation.summary_checks import check_summary
from dubium.files import write_atomically
from dubium.reading import JSON_BYTES, parse_json, read_regular_file
from dubium.seals import BLANK_SEAL, MARK, SEAL, damage_of, is_sealed, sealed_json

FORMAT = 1
FILE = "summary.json"


@dataclass(frozen=True)
class Measurement:
    """One metric of one method: the values of which a statistic is taken (images on the first axis), and one number for
    each image, for tests between methods."""

    values: Array
    statistic: Statistic
    per_image: Array
    higher_is_better: bool | None = None
    bounds: tuple[float, float] = (-np.inf, np.inf)  # that no value can leave, so that no interval should


@dataclass
class EvaluationSummary:
    """What a protocol measured: `images` describes them, `measurements[method][metric]` holds the values."""

    protocol: str
    settings: dict[str, Any]
    images: dict[str, list[Any]]
    measurements: dict[str, dict[str, Measurement]]
    few_runs: bool = False  # a handful of runs instead of images: Student's intervals instead of the bootstrap
    notes: list[str] = field(default_factory=list)
    extra: dict[str, Any] = field(default_factory=dict)  # further keys of summary.json

    def write(self, folder: Path) -> dict[str, Any]:
        """Write `summary.json`, `results.csv`, `comparisons.csv` and `images.csv`; return what is in the first.

        `results[method][metric]` there is {"value", "low", "high"}.
        """
        results = {
            method: {metric: self._interval(found) for metric, found in metrics.items()}
            for method, metrics in self.measurements.items()
        }
        per_image = {
            method: {metric: [_json_number(v) for v in found.per_image] for metric, found in metrics.items()}
            for method, metrics in self.measurements.items()
        }
        better = {
            metric: "higher" if found.higher_is_better else "lower"
            for metrics in self.measurements.values()
            for metric, found in metrics.items()
            if found.higher_is_better is not None
        }
        comparisons = compare_methods(self.measurements, few_runs=self.few_runs)
        content = {
            "format": FORMAT,
            "protocol": self.protocol,
            "settings": self.settings,
            "versions": library_versions(),
            "results": results,
            "better": better,
            "comparisons": comparisons,
            "notes": [*self.notes, *self._one_image_notes()],
            "images": {**self.images, "values": per_image},
            **self.extra,
        }
        rows = [
            {"method": method, "metric": metric, **interval}
            for method, metrics in results.items()
            for metric, interval in metrics.items()
        ]
        write_csv(folder / "results.csv", rows)
        write_csv(folder / "comparisons.csv", comparisons)
        write_csv(folder / "images.csv", _image_rows(self.images, per_image))
        write_atomically(folder / FILE, sealed_json({**content, SEAL: BLANK_SEAL}))
        return content

    def _one_image_notes(self) -> list[str]:
        """What to say where a bootstrap has one image to draw from, again and again."""
        found = [each for metrics in self.measurements.values() for each in metrics.values()]
        if self.few_runs or all(len(each.values) > 1 for each in found):
            return []
        return ["One image has no interval, and shows no difference between methods. Give more images."]

    def _interval(self, found: Measurement) -> dict[str, float]:
        interval = mean_interval(found.per_image) if self.few_runs else bootstrap(found.values, found.statistic)
        low, high = np.clip([interval.low, interval.high], *found.bounds).tolist()
        return asdict(replace(interval, low=low, high=high))


def read_summary(folder: Path | str) -> dict[str, Any]:
    """What `EvaluationSummary.write` left in a folder."""
    file = Path(folder) / FILE
    if not file.is_file():
        raise FileFormatError(f"{folder} has no {FILE}: its evaluation is not finished. Start `dubium evaluate` again.")
    data = read_regular_file(file, most=JSON_BYTES)
    content = parse_json(data, file)
    if not isinstance(content, dict) or not {"protocol", "settings", "results"} <= content.keys():
        raise FileFormatError(f"{file} is not of dubium evaluate: it has no protocol, settings and results.")
    if (MARK in data or SEAL in content) and not is_sealed(data):
        raise damage_of(file)
    content.pop(SEAL, None)
    check_summary(content, file)
    return content


def compare_methods(
    measurements: Mapping[str, Mapping[str, Measurement]], *, few_runs: bool = False
) -> list[dict[str, Any]]:
    """Every pair of methods on every metric, with p-values corrected for the pairs of that metric (Holm)."""
    rows: list[dict[str, Any]] = []
    for metric in dict.fromkeys(name for metrics in measurements.values() for name in metrics):
        having = [method for method, metrics in measurements.items() if metric in metrics]
        found = []
        for first, second in combinations(having, 2):
            a, b = measurements[first][metric], measurements[second][metric]
            result = compare(a.values, b.values, a.statistic, (a.per_image, b.per_image))
            if few_runs:
                result = replace(result, difference=mean_interval(a.per_image - b.per_image))
            found.append({"metric": metric, "a": first, "b": second, **_flatten_interval(asdict(result))})
        for row, corrected in zip(found, holm([row["p"] for row in found]), strict=True):
            rows.append({**row, "p_holm": corrected})
    return rows


def library_versions() -> dict[str, str]:
    """Versions that the numbers depend on besides the settings."""
    from dubium import __version__

    return {
        "dubium": __version__,
        "torch": torch.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
    }


def write_csv(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """A table with the columns of all rows, in the order of their first appearance; a row may lack some."""
    text = io.StringIO()
    table = csv.DictWriter(text, list(dict.fromkeys(name for row in rows for name in row)), lineterminator="\n")
    table.writeheader()
    table.writerows(rows)
    write_atomically(path, text.getvalue())


def _image_rows(images: Mapping[str, Sequence[Any]], per_image: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One row for each method and image; kinds with fewer images leave their columns empty at the end."""
    rows = []
    for method, metrics in per_image.items():
        for position in range(max(map(len, metrics.values()), default=0)):
            columns = {name: values[position] for name, values in images.items() if position < len(values)}
            columns |= {name: values[position] for name, values in metrics.items() if position < len(values)}
            rows.append({"method": method, **columns})
    return rows


def _flatten_interval(comparison: dict[str, Any]) -> dict[str, Any]:
    interval = comparison.pop("difference")
    return {"difference": interval["value"], "low": interval["low"], "high": interval["high"], **comparison}


def _json_number(value: float) -> float | None:
    """None for NaN, which JSON does not have."""
    return None if np.isnan(value) else float(value)
