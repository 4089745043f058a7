"""A small copy of an evaluation's summary for the repository: python -m benchmarks.auto.keep FOLDER NAME.

It goes to benchmarks/results/auto/NAME.json: settings, versions, results, notes, and the comparisons of the key
metrics; values of single images stay in the evaluation's own folder.
"""

import json
import sys
from pathlib import Path
from typing import Any

from dubium.evaluation.summary import read_summary
from dubium.files import write_atomically
from dubium.protocols import PROTOCOLS

RESULTS = Path(__file__).parents[1] / "results" / "auto"
KEPT = ("protocol", "settings", "versions", "results", "better", "notes")
DIGITS = 5


def keep_summary(folder: Path, path: Path) -> None:
    """Write what is worth keeping of a folder's summary."""
    summary = read_summary(folder)
    metrics = set(PROTOCOLS[summary["protocol"]].key_metrics)
    kept = {key: summary[key] for key in KEPT}
    kept["comparisons"] = [row for row in summary["comparisons"] if row["metric"] in metrics]
    kept |= {"reactions": summary["reactions"]} if "reactions" in summary else {}
    write_atomically(path, json.dumps(round_numbers(kept), separators=(",", ":")) + "\n")


def round_numbers(value: Any) -> Any:
    """The same with numbers of five digits."""
    if isinstance(value, dict):
        return {key: round_numbers(item) for key, item in value.items()}
    if isinstance(value, list):
        return [round_numbers(item) for item in value]
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value


if __name__ == "__main__":
    keep_summary(Path(sys.argv[1]), RESULTS / f"{sys.argv[2]}.json")
