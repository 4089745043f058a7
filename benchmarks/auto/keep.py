"""A small copy of an evaluation's summary for the repository: python -m benchmarks.auto.keep FOLDER NAME.

It goes to benchmarks/results/auto/NAME.json: settings, versions, results, notes, and the comparisons of the key
metrics; values of single images stay in the evaluation's own folder. Methods of a copy that is there already and that
the folder lacks stay in it, with their comparisons: p-values are corrected anew, over all pairs there are. They are of
the same networks and images, or it is refused.
"""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dubium.evaluation.statistics import holm
from dubium.evaluation.summary import read_summary
from dubium.files import write_atomically
from dubium.protocols import PROTOCOLS

RESULTS = Path(__file__).parents[1] / "results" / "auto"
SAME = ("run", "dataset", "split", "dataset images", "members", "kinds", "seed", "images", "candidates")
KEPT = ("protocol", "settings", "versions", "results", "better", "notes")
DIGITS = 5


def keep_summary(folder: Path, path: Path) -> None:
    """Write what is worth keeping of a folder's summary."""
    summary = read_summary(folder)
    metrics = set(PROTOCOLS[summary["protocol"]].key_metrics)
    kept = {key: summary[key] for key in KEPT}
    kept["comparisons"] = [row for row in summary["comparisons"] if row["metric"] in metrics]
    kept |= {"reactions": summary["reactions"]} if "reactions" in summary else {}
    if path.exists():
        kept = join_summaries(kept, json.loads(path.read_text(encoding="utf-8")))
    write_atomically(path, json.dumps(round_numbers(kept), separators=(",", ":")) + "\n")


def join_summaries(now: dict[str, Any], before: Mapping[str, Any]) -> dict[str, Any]:
    """`now`, and what `before` has of methods that it lacks; p-values corrected over the pairs of each metric."""
    for key in SAME:
        if now["settings"].get(key) != before["settings"].get(key):
            raise SystemExit(f"{key} was {before['settings'].get(key)!r}, and is {now['settings'].get(key)!r}.")
    results = {**now["results"], **{m: found for m, found in before["results"].items() if m not in now["results"]}}
    order = list(dict.fromkeys([*now["settings"]["methods"], *before["settings"]["methods"]]))
    there = [row for row in before["comparisons"] if not {row["a"], row["b"]} <= now["results"].keys()]
    rows = [dict(row) for row in (*now["comparisons"], *there)]
    for metric in dict.fromkeys(row["metric"] for row in rows):
        pairs = [row for row in rows if row["metric"] == metric]
        for row, corrected in zip(pairs, holm([row["p"] for row in pairs]), strict=True):
            row["p_holm"] = corrected
    return {
        **now,
        "settings": {**now["settings"], "methods": order},
        "results": {method: results[method] for method in order},
        "comparisons": rows,
    }


def round_numbers(value: Any) -> Any:
    """The same with numbers of five digits."""
    if isinstance(value, dict):
        return {key: round_numbers(item) for key, item in value.items()}
    if isinstance(value, list):
        return [round_numbers(item) for item in value]
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value


if __name__ == "__main__":
    keep_summary(Path(sys.argv[1]), RESULTS / f"{sys.argv[2]}.json")
