"""All protocols on one posterior and dataset, with one set of maps for each method."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from dubium.errors import OptionError, lookup
from dubium.evaluation.overview import FILE, OverviewCell, mean_ranks, overview_cells
from dubium.evaluation.protocols import run_protocol
from dubium.evaluation.protocols.evaluation import Evaluation
from dubium.evaluation.summary import write_csv
from dubium.files import write_json
from dubium.folder_lock import own_folder
from dubium.path_checks import PAGE, SETTINGS, refuse_own_files, refuse_run_folder
from dubium.protocols import PROTOCOLS, TOGETHER
from dubium.registry import load_function

MAPS = "maps"
TABLE = "overview.csv"


def evaluate_all(
    evaluation: Evaluation, protocols: Sequence[str] = TOGETHER, *, scale: str = "cpu", **changes: Any
) -> dict[str, Any]:
    """Run the protocols, each in a folder of its own below the evaluation's, and write one table over them.

    Args:
        evaluation: as for `run_protocol`.
        protocols: of `TOGETHER`.
        scale: of every protocol.
        changes: options of single protocols, by name: `removal={"images": 10}`.

    Returns:
        What is in `overview.json`: `cells` (one for each protocol, metric and method), `mean ranks`, `notes`, `scale`
        and how many `images` each protocol measured.
        Protocols that need labels are left out where there are none, and `notes` say so.
    """
    check_together(protocols)
    chosen, left_out = leave_out_unlabelled(evaluation, protocols)
    refuse_run_folder(evaluation.out)
    with own_folder(evaluation.out):
        if not any((evaluation.out / name / SETTINGS).is_file() for name in TOGETHER):
            refuse_own_files(evaluation.out, (PAGE, FILE, TABLE))
        return run_together(evaluation, chosen, scale, changes, left_out)


def check_together(protocols: Sequence[str]) -> None:
    """Raise an error unless all of these can be run together."""
    for name in protocols:
        lookup("protocol that can be run together with others", dict.fromkeys(TOGETHER), name)


def leave_out_unlabelled(evaluation: Evaluation, protocols: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """The protocols that can be run on these images, and why the others cannot; an error where none can."""
    left_out = [name for name in protocols if PROTOCOLS[name].needs_labels and evaluation.data.labels is None]
    chosen = [name for name in protocols if name not in left_out]
    if not left_out:
        return chosen, {}
    why = f"needs labels, and the images of {evaluation.data.shown_name} have none. {evaluation.note}".strip()
    if not chosen:
        raise OptionError(f"{left_out[0]} {why}")
    return chosen, {
        name: f"{name} is left out: it {why} Without it: --protocols {','.join(chosen)}." for name in left_out
    }


def run_together(
    evaluation: Evaluation,
    protocols: Sequence[str],
    scale: str,
    changes: Mapping[str, Mapping[str, Any]],
    left_out: Mapping[str, str],
) -> dict[str, Any]:
    """`evaluate_all` on a folder that this process owns."""
    candidates = load_function(PROTOCOLS["blurring"].options_path)(scale, evaluation.data).candidates
    same_images: dict[str, dict[str, Any]] = {"sanity": {"candidates": candidates}}
    cells: list[OverviewCell] = []
    notes: dict[str, list[str]] = {}
    images: dict[str, int] = {}
    for name in protocols:
        part = replace(evaluation, out=evaluation.out / name)
        if PROTOCOLS[name].needs_posterior:
            part = replace(part, map_folder=evaluation.out / MAPS)
        options = {**same_images.get(name, {}), **changes.get(name, {})}
        summary = run_protocol(name, part, scale=scale, **options)
        cells += overview_cells(summary)
        notes[name] = summary["notes"]
        images[name] = image_count(summary)
    rows = [asdict(cell) | {"control": cell.is_control} for cell in cells]
    content = {
        "scale": scale,
        "dataset": evaluation.data.name,
        "images": images,
        "cells": rows,
        "mean ranks": mean_ranks(cells),
        "notes": notes | {name: [why] for name, why in left_out.items()},
    }
    write_json(evaluation.out / FILE, content)
    write_csv(evaluation.out / TABLE, [flatten_lists(row) for row in rows])
    return content


def image_count(summary: Mapping[str, Any]) -> int:
    """How many images a protocol measured; the most of one kind, where each has images of its own."""
    return max((len(found) for name, found in summary["images"].items() if name.startswith("index")), default=0)


def flatten_lists(row: dict[str, Any]) -> dict[str, Any]:
    """A row for a CSV file: lists of methods as words."""
    return {name: " ".join(value) if isinstance(value, tuple | list) else value for name, value in row.items()}
