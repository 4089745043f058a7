"""`metrics.jsonl`: a line per member and epoch, and one for the end."""

import json
from pathlib import Path
from typing import Any

from dubium.files import write_atomically
from dubium.training import checkpoint as checkpoints
from dubium.training.members import checkpoint_of
from dubium.training.plan import Plan

METRICS = "metrics.jsonl"


def past_metrics(plan: Plan, out: Path) -> list[dict[str, Any]]:
    """The epochs that the checkpoints of an earlier start have behind them."""
    lines = []
    for index in range(plan.runs):
        if checkpoint_of(out, index).exists():
            _, header = checkpoints.read(checkpoint_of(out, index))
            lines += [{"member": index, **record} for record in header["history"]]
    return lines


def write_metrics(out: Path, lines: list[dict[str, Any]]) -> None:
    write_atomically(out / METRICS, "".join(json.dumps(line) + "\n" for line in lines))
