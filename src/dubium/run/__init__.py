"""Whole datasets: score, explain, store. A job is plain data, and where it runs is not what it does."""

from dubium.run.job import Done, Job, run_job
from dubium.run.local import engine_on, run_local
from dubium.run.ray import ray_cluster
from dubium.run.run import Outcome, outcome, run
from dubium.run.settings import Settings
from dubium.run.store import Results, Row, open_results
from dubium.run.work import Work, open_work

__all__ = [
    "Done", "Job", "Outcome", "Results", "Row", "Settings", "Work", "engine_on", "open_results", "open_work", "outcome",
    "ray_cluster", "run", "run_job", "run_local",
]  # fmt: skip
