"""`metrics.jsonl`: a line per member and epoch, and one for the end."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

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


@contextmanager
def thread_count(threads: int) -> Iterator[None]:
    """Sums in float32 depend on it, so that a run keeps to one."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)
