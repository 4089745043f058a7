"""Whole datasets: score, explain, store. A job is plain data, and where it runs is not what it does."""

from dubium.run.job import Done, Job, run_job
from dubium.run.local import run_local
from dubium.run.run import Outcome, outcome, run
from dubium.run.settings import Settings
from dubium.run.store import Results, Row, open_results
from dubium.run.work import Work, open_work

__all__ = [
    "Done", "Job", "Outcome", "Results", "Row", "Settings", "Work", "open_results", "open_work", "outcome", "run",
    "run_job", "run_local",
]  # fmt: skip
