"""The file of a job's result: numbers with intervals, and all that is needed to trace them. No path, no host name."""

import json
import os
import platform
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from dubium.errors import FileFormatError
from dubium.files import write_atomically
from dubium.reading import read_json
from dubium.reproduce.job import CONTROL, NONE, Job

KEPT = ("protocol", "settings", "versions", "results", "better", "notes")
METRICS = ("murr@2%", "murr@5%", "auc-urr@2%", "auc-urr@5%", "iou", "ada", "accuracy", "nll")
REFERENCES = ("ua-backprop", NONE, "No attention", "Ours", "plain", "0.0", "Epistemic", "Ours-latent")
"""Comparisons are kept where one side is one of these; all pairs are in the evaluation's own folder."""

DIGITS = 5


def write_result(folder: Path, job: Job, summary: Mapping[str, Any], facts: Mapping[str, Any]) -> Path:
    """Write a small copy of a job's summary as `JOB.json`.

    Args:
        facts: fingerprint, command, scale, seconds, and others that the caller knows.
    """
    kept = {key: summary[key] for key in KEPT if key in summary}
    comparisons = [
        row
        for row in summary.get("comparisons", ())
        if row["metric"].partition("/")[0] in METRICS and is_worth_keeping(row["a"], row["b"])
    ]
    content = {"job": job.name, **facts, "commit": source_commit(), "machine": describe_machine(), **kept}
    content["comparisons"] = comparisons
    content["pictures"] = list(summary.get("pictures", ()))
    for name, picture in summary.get("pictures", {}).items():
        write_atomically(folder / name, picture)
    path = folder / f"{job.name}.json"
    write_atomically(path, json.dumps(round_numbers(content), indent=1, allow_nan=False) + "\n")
    return path


def is_worth_keeping(first: str, second: str) -> bool:
    """Whether one of two rows is a reference or the other's control, or both are one setting with two sorts of maps.

    >>> is_worth_keeping("edges, alpha 1, image", "random, alpha 1, image"), is_worth_keeping("Grad", "IG")
    (True, False)
    """
    setting = first.partition(", ")[2]
    is_one_setting = bool(setting) and setting == second.partition(", ")[2]
    is_control = second == first + CONTROL or first == second + CONTROL
    return first in REFERENCES or second in REFERENCES or is_control or is_one_setting


def read_result(folder: Path, name: str) -> dict[str, Any] | None:
    """A job's result, or None if there is none."""
    path = folder / f"{name}.json"
    if not path.is_file():
        return None
    content = read_json(path)
    if not isinstance(content, dict) or "results" not in content:
        raise FileFormatError(f"{path} is not a result of `dubium reproduce`. Delete it, and it is made again.")
    return content


def round_numbers(value: Any) -> Any:
    """The same with numbers of five digits; NaN and infinity become None."""
    if isinstance(value, Mapping):
        return {str(key): round_numbers(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [round_numbers(item) for item in value]
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}") if abs(value) < float("inf") else None
    return value


def describe_machine() -> dict[str, Any]:
    """Processor, cores, threads and system."""
    return {
        "processor": processor_name(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "system": platform.system(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
    }


def processor_name() -> str:
    """The model of the processor, as far as the system tells."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def source_commit() -> str | None:
    """The commit that this package was started from, `-dirty` if its files were changed; None outside a checkout."""
    here = Path(__file__).parent
    command = ["git", "-C", str(here), "describe", "--always", "--dirty", "--exclude", "*", "--abbrev=12"]
    try:
        known = subprocess.run(["git", "-C", str(here), "ls-files", "job.py"], capture_output=True, text=True)
        found = subprocess.run(command, capture_output=True, text=True) if known.stdout.strip() else None
    except OSError:
        return None
    return (found.stdout.strip() or None) if found is not None else None
