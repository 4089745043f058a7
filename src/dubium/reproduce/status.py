"""What is known of a job before it is measured."""

from dataclasses import dataclass

from dubium.reproduce.job import Job

DONE, CHANGED, MISSING = "done", "made with other settings", "missing"


@dataclass(frozen=True)
class JobStatus:
    """Whether a job's result is there, and the seconds it took or will take; None where they are not known."""

    entry: str
    job: Job
    state: str
    seconds: float | None
