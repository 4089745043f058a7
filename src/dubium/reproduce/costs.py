"""What jobs will take on one core with nothing else to do, and the trainings that come before them."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from dubium.estimate import Estimate
from dubium.reproduce.job import Job
from dubium.reproduce.networks import OWN, PUBLIC, public_name
from dubium.reproduce.settings import NETWORK
from dubium.reproduce.status import DONE, MISSING, JobStatus

MINUTES: Mapping[str, Mapping[str, float]] = {
    "blurring": {"mnist": 0.2, "svhn": 0.2, "cifar-10": 0.6, "cifar-100": 0.5},
    "anomaly": {"svhn": 0.1, "cifar-10": 0.4, "cifar-100": 0.3},
    "mitigation": {"mnist": 0.1, "cifar-10": 0.2, "svhn": 0.3, "cifar-100": 0.3},
    "attention": {"mnist": 0.03, "cifar-10": 0.04},
    "strategies": {"mnist": 0.04, "cifar-10": 0.09},
    "properties": {"": 0.1},
    "runtime": {"mnist": 0.1, "cifar-10": 2.0},
    "figure": {"mnist": 0.1, "svhn": 0.2, "cifar-10": 0.5, "cifar-100": 1.0},
    "networks": {"mnist": 12.0, "svhn": 2.0, "cifar-10": 100.0, "cifar-100": 26.0},
    "VAE": {"mnist": 2.0, "svhn": 0.2, "cifar-10": 0.4, "cifar-100": 0.2},
}
"""Of one core at scale `cpu`: for one method, one arm and seed, or one training; `attention` has small networks."""

ON_NETWORKS = ("blurring", "anomaly", "runtime", "figure")
"""Measures that need networks; the others train some of their own."""

FILES = {"networks": "{}/posterior.json", "VAE": "vae-{}/vae.json"}
"""The file of a training that is there when it is done."""


def estimated_seconds(job: Job, scale: str) -> float | None:
    """A guess for one core; None at scale `paper`, which was not run here."""
    if scale == "smoke":
        return 3.0
    measure = "attention" if job.measure == "mitigation" and NETWORK in job.options else job.measure
    minutes = MINUTES.get(measure, {}).get(job.dataset, 1.0)
    parts = max(1, len(job.methods) + len(job.arms)) * int(job.options.get("seeds", 1))
    return 60.0 * minutes * parts if scale == "cpu" else None


def training_statuses(statuses: Sequence[JobStatus], scale: str, networks: Path) -> list[JobStatus]:
    """The trainings that jobs without a result need first, once each.

    Args:
        networks: the folder of the networks that are there.
    """
    found = {}
    for status in statuses:
        for kind in needed_trainings(status.job, scale) if status.state != DONE else ():
            job = Job(f"{kind} of {status.job.dataset}", kind, status.job.dataset)
            is_done = (networks / FILES[kind].format(job.dataset)).exists()
            seconds = None if is_done else estimated_seconds(job, scale)
            found[job.name] = JobStatus("training", job, DONE if is_done else MISSING, seconds)
    return list(found.values())


def needed_trainings(job: Job, scale: str) -> Iterator[str]:
    """What a job needs trained before it begins: an ensemble, the VAE of the CLUE methods, or neither."""
    if scale == "smoke":
        return
    is_given = job.networks in (*PUBLIC, *OWN) or public_name(job.dataset, job.networks, scale) is not None
    if job.measure in ON_NETWORKS and job.options.get("figure") != "figure-attention" and not is_given:
        yield "networks"
    if any("clue" in text for text in (*job.methods, *(arm.method for arm in job.arms))):
        yield "VAE"


def estimate_jobs(statuses: Sequence[JobStatus]) -> Estimate:
    """What is left to do, for one core; times of jobs that were not measured are guesses."""
    left = [status for status in statuses if status.state != DONE]
    is_known = all(status.seconds is not None for status in left)
    seconds = sum((status.seconds or 0.0 for status in left), 0.0) if is_known else None
    images = sum(job_images(status.job) for status in left)
    task = f"{len(left)} of {len(statuses)} jobs to do, {images:,} images"
    return Estimate(task, images, seconds=seconds, bytes=sum(disk_bytes(status.job) for status in left))


def job_images(job: Job) -> int:
    return 0 if job.measure in FILES else int(job.options.get("images", 500))


def disk_bytes(job: Job) -> int:
    """About what maps and curves of a job take: float32 maps of each image and method, and JSON curves."""
    return job_images(job) * 32 * 32 * 8 * max(1, len(job.methods) + len(job.arms) // 3)
