"""`metrics.jsonl`: a line per member and epoch, and one for the end."""

import json
from pathlib import Path
from typing import Any

from dubium.files import write_atomically
from dubium.training.checkpoint import read_checkpoint
from dubium.training.members import member_checkpoint
from dubium.training.plan import Plan

METRICS = "metrics.jsonl"


def past_metrics(plan: Plan, out: Path) -> list[dict[str, Any]]:
    """The lines of all epochs that the members' checkpoints have done."""
    lines = []
    for index in range(plan.runs):
        if member_checkpoint(out, index).exists():
            _, header = read_checkpoint(member_checkpoint(out, index))
            lines += [{"member": index, **record} for record in header["history"]]
    return lines


def write_metrics(out: Path, lines: list[dict[str, Any]]) -> None:
    """Write `metrics.jsonl` anew."""
    write_atomically(out / METRICS, "".join(json.dumps(line) + "\n" for line in lines))
