"""Whole datasets: score every image, explain the most uncertain ones, store the results."""

from typing import TYPE_CHECKING, Any

from dubium.executor import Executor
from dubium.run.dataset import explain_dataset
from dubium.run.settings import Settings
from dubium.run.store import Results, Row, open_results
from dubium.run.work import Work, open_work

if TYPE_CHECKING:
    from dubium.run.ray import ray_cluster

run = explain_dataset  # the name of earlier versions

__all__ = [
    "Results", "Row", "Settings", "Work", "engine_on", "explain_dataset", "open_results", "open_work", "ray_cluster",
    "run",
]  # fmt: skip


def engine_on(executor: Executor) -> Executor:
    """The executor itself: earlier versions wrapped it, and code that was written for them still runs."""
    return executor


def __getattr__(name: str) -> Any:
    """`ray_cluster` is imported on first use."""
    if name != "ray_cluster":
        raise AttributeError(f"module 'dubium.run' has no attribute {name!r}")
    from dubium.run.ray import ray_cluster

    return ray_cluster
