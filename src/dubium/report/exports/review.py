"""A list for a labelling team: every image with something to do, in the order in which to go through them."""

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from dubium.advice import ADVICE, NOTHING, Advice, advise
from dubium.files import written_atomically
from dubium.kinds import KINDS
from dubium.report.exports.regions import ExportRegions
from dubium.run.store import Results, Row

COLUMNS = (
    *("rank", "advice", "reason", "id", "path", "label", "says", "sure", "or", "or_sure"),
    *(*KINDS, "top", "left", "bottom", "right", "share"),
)


def write_review(regions: ExportRegions, path: Path) -> int:
    """Write the file; the number of its lines."""
    rows = review_rows(regions.results)
    with written_atomically(path) as beside, beside.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        for rank, row in enumerate(rows, 1):
            writer.writerow({"rank": rank, **review_line(regions, row)})
    return len(rows)


def review_rows(results: Results) -> list[Row]:
    """Images with something to do, without maps: labels to check first, the surest first; then the most uncertain."""
    rows = [row for row in results.rows(pictures=False) if row_advice(row) is not NOTHING]
    return sorted(rows, key=review_order)


def review_order(row: Row) -> tuple[int, float, int]:
    """Advice by advice; in each, what is plainest first: confidence, or the score that the advice is about."""
    advice = row_advice(row)
    strength = {"check-label": confidence_of(row), "look": row.aleatoric, "collect": row.epistemic}
    return list(ADVICE).index(advice.name), -strength.get(advice.name, row.total), row.id


def row_advice(row: Row) -> Advice:
    """The advice that is stored, or, in results of earlier versions, the one that would be."""
    if row.advice in ADVICE:
        return ADVICE[row.advice]
    return advise(confidence_of(row), row.prediction, row.label, total=row.total, epistemic=row.epistemic)


def confidence_of(row: Row) -> float:
    return float(row.probs[row.prediction])


def review_line(regions: ExportRegions, row: Row) -> dict[str, Any]:
    """A row's cells; those of the largest region are empty where the image was not explained."""
    advice, second = row_advice(row), second_class(row)
    cells: dict[str, Any] = {
        "advice": advice.name, "reason": advice.reason, "id": row.id, "path": row.path,
        "label": None if row.label is None else regions.class_name(row.label),
        "says": regions.class_name(row.prediction), "sure": f"{confidence_of(row):.4f}",
        "or": regions.class_name(second), "or_sure": f"{row.probs[second]:.4f}",
    }  # fmt: skip
    cells |= {kind: f"{score:.4f}" for kind, score in row.scores().items()}
    for region in (region for region in row.regions or () if region.kind == regions.kind and not region.is_remainder):
        box = {"top": region.top, "left": region.left, "bottom": region.bottom, "right": region.right}
        return {**cells, **box, "share": f"{region.share:.4f}"}
    return cells


def second_class(row: Row) -> int:
    """The likeliest class but one."""
    return int(np.argsort(-row.probs, kind="stable")[1])


def rows_by_advice(rows: list[Row]) -> Iterator[tuple[Advice, list[Row]]]:
    """The rows of each advice, in the order of the list; only those that there are."""
    for advice in ADVICE.values():
        found = [row for row in rows if row_advice(row) is advice]
        if found:
            yield advice, found
