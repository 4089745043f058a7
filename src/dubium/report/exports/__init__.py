"""Results in the formats of other tools: one module each, and the table of them."""

from collections.abc import Callable
from pathlib import Path

from dubium.choices import EXPORTS
from dubium.errors import OptionError, lookup
from dubium.path_checks import refuse_other_suffix
from dubium.report.exports.coco import write_coco
from dubium.report.exports.earlier import refuse_own_export
from dubium.report.exports.fiftyone import write_fiftyone
from dubium.report.exports.masks import write_masks
from dubium.report.exports.regions import ExportRegions
from dubium.report.exports.review import write_review
from dubium.run.store import open_results

Writer = Callable[[ExportRegions, Path], int]
"""Writes a file or folder, and says how many images or regions are in it."""

WRITERS: dict[str, Writer] = {
    "coco": write_coco,
    "csv": write_review,
    "png": write_masks,
    "fiftyone": write_fiftyone,
}


def write_export(
    folder: Path | str,
    to: str,
    out: Path | str | None = None,
    *,
    kind: str | None = None,
    level: float | None = None,
    smooth: float | None = None,
) -> tuple[Path, int]:
    """Write a run's results in another tool's format.

    Args:
        folder: a run's.
        to: a name of `dubium.choices.EXPORTS`.
        out: the file or folder to write; a name of its own in the run's folder if it is not given.
        kind: whose regions; the run's first kind if it is not given.
        level, smooth: as for `Explanation.regions`; the stored regions if neither is given.

    Returns:
        What was written, and how many rows, regions or files it has.
    """
    writer = lookup("export", WRITERS, to)
    results = open_results(folder)
    kinds = results.about["settings"]["kinds"]
    kind = kind or kinds[0]
    if to != "csv" and kind not in kinds:
        raise OptionError(f"kind={kind!r}, but the maps in {folder} are of {', '.join(kinds)}.")
    name = EXPORTS[to]
    what = f"--to {to} writes a {'file' if '.' in name else 'folder'} such as {name}"
    refuse_other_suffix(out or name, Path(name).suffix, what)
    path = Path(out) if out else Path(folder) / name
    refuse_own_export(path, to)
    return path, writer(ExportRegions(results, kind, level, smooth), path)
