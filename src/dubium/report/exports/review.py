"""A list for a labelling team: every image with something to do, in the order in which to go through them."""

import csv
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np

from dubium.advice import LOOK
from dubium.errors import OptionError
from dubium.files import write_atomically
from dubium.kinds import KINDS
from dubium.report.exports.regions import ExportRegions
from dubium.report.what_to_do import review_rows
from dubium.run.row import Row

COLUMNS = (
    *("rank", "advice", "reason", "id", "path", "label", "says", "sure", "or", "or_sure"),
    *(*KINDS, "top", "left", "bottom", "right", "share", "region_kind"),
)


def write_review(regions: ExportRegions, path: Path) -> int:
    """Write the file; the number of its lines. One that differs is not replaced: a team may have filled it in."""
    rows = [row for found in review_rows(regions.results).values() for row in found]
    lines = StringIO(newline="")
    writer = csv.DictWriter(lines, COLUMNS)
    writer.writeheader()
    for rank, row in enumerate(rows, 1):
        cells = {"rank": rank, **review_line(regions, row)}
        writer.writerow({name: plain_cell(value) for name, value in cells.items()})
    content = lines.getvalue().encode()
    if path.is_file() and path.read_bytes() != content:
        raise OptionError(
            f"{path} is there and differs from what would be written: somebody may have edited it, or it is of other "
            "results. Move it away, or choose another place with --out (out= in Python)."
        )
    write_atomically(path, content)
    return len(rows)


def plain_cell(value: Any) -> Any:
    """A cell that no spreadsheet takes for a formula: file names come from anywhere."""
    return f"'{value}" if isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r", "\n")) else value


def review_line(regions: ExportRegions, row: Row) -> dict[str, Any]:
    """A row's cells; those of the largest region are empty where the image was not explained."""
    advice, second = row.full_advice(), second_class(row)
    cells: dict[str, Any] = {
        "advice": advice.name, "reason": advice.reason, "id": row.id, "path": row.path,
        "label": None if row.label is None else regions.class_name(row.label),
        "says": regions.class_name(row.prediction), "sure": f"{row.confidence:.4f}",
        "or": regions.class_name(second), "or_sure": f"{row.probs[second]:.4f}",
    }  # fmt: skip
    cells |= {kind: f"{score:.4f}" for kind, score in row.scores().items()}
    kind = "aleatoric" if advice is LOOK else regions.kind  # what is ambiguous is not what the networks disagree about
    bright = [region for region in row.regions or () if not region.is_remainder]
    for region in sorted(bright, key=lambda region: region.kind != kind)[:1]:  # another kind's where it has none
        box = {"top": region.top, "left": region.left, "bottom": region.bottom, "right": region.right}
        return {**cells, **box, "share": f"{region.share:.4f}", "region_kind": region.kind}
    return cells


def second_class(row: Row) -> int:
    """The likeliest class but one."""
    return int(np.argsort(-row.probs, kind="stable")[1])
