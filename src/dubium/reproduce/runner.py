"""Run the jobs of entries: those whose result is missing or was made with other settings, one after the other."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from dubium.checks import list_some
from dubium.choices import SCALES
from dubium.data.find import data_folders, find_files
from dubium.errors import MissingExtraError, OptionError
from dubium.reproduce.clock import JobClock
from dubium.reproduce.costs import estimated_seconds
from dubium.reproduce.dependencies import are_dependencies_same, job_dependencies
from dubium.reproduce.entries import ENTRIES, Entry
from dubium.reproduce.figures import FIGURES
from dubium.reproduce.job import Job
from dubium.reproduce.measures import MEASURES
from dubium.reproduce.networks import OWN_NAME, describe_networks, is_at_hand
from dubium.reproduce.result import read_result, write_result
from dubium.reproduce.status import CHANGED, DONE, MISSING, JobStatus
from dubium.reproduce.study import Study

ALL = "all"


def entry_names() -> list[str]:
    """Names of all tables and figures."""
    return [*ENTRIES, *FIGURES]


def entry_jobs(name: str, scale: str, datasets: Sequence[str] = ()) -> Iterator[tuple[str, Job]]:
    """The jobs of one entry, or of all of them, on all datasets or on some."""
    entries: dict[str, Entry] = {**ENTRIES, **FIGURES}
    for entry in entries.values() if name == ALL else [entries[name]]:
        for job in entry.jobs(scale):
            if not datasets or job.dataset in datasets:
                yield entry.name, job


def check_has_jobs(name: str, scale: str, datasets: Sequence[str]) -> None:
    """Refuse an entry that has nothing to measure at a scale or on these datasets, and say where it has."""
    if any(entry_jobs(name, scale, datasets)):
        return
    there = list(dict.fromkeys(job.dataset for _, job in entry_jobs(name, scale)))
    if not there:
        scales = " or ".join(other for other in SCALES if any(entry_jobs(name, other)))
        raise OptionError(f"{name} has nothing to measure at --scale {scale}; it has at {scales}.")
    given = ", ".join(datasets)
    if not any(there):
        raise OptionError(f"{name} needs no dataset: leave out --dataset {given}.")
    raise OptionError(f"{name} is not measured on {given}; it is on {', '.join(there)}.")


def check_has_results(results: Path, scale: str, out: Path) -> None:
    """Refuse a folder without results, of which a page would say nothing."""
    if not any(results.glob("*.json")):
        others = [name for name in SCALES if any((out / name / "results").glob("*.json"))]
        there = f" {out} has some of --scale {' and '.join(others)}." if others else ""
        own = sorted({file.parent for file in (out / scale).glob(f"{OWN_NAME}-*/results/*.json")})
        there += f" Those of networks of yours are in {list_some(own)}: give that by --results." if own else ""
        raise OptionError(
            f"There are no results in {results}, so that there is nothing to write a page of.{there} Measure them "
            f"first: `dubium reproduce all --scale {scale} --out {out}`; or name their folder: --results FOLDER."
        )


def jobs_on_networks(jobs: Iterable[tuple[str, Job]], networks: str) -> list[tuple[str, Job]]:
    """Those of the jobs that measure an ensemble, with other networks in its place; the others train their own."""
    found = [(entry, replace(job, networks=networks)) for entry, job in jobs if is_measured_on_ensemble(job)]
    if not found:
        raise OptionError("None of these tables and figures measures an ensemble, so that yours could take its place.")
    return found


def is_measured_on_ensemble(job: Job) -> bool:
    return job.networks == "ensemble" and job.measure in ("blurring", "anomaly", "runtime") and bool(job.dataset)


def job_status(entry: str, job: Job, scale: str, results: Path) -> JobStatus:
    """Compare a job with the result that is there, without computing anything."""
    found = read_result(results, job.name)
    if found is None:
        return JobStatus(entry, job, MISSING, estimated_seconds(job, scale))
    is_same = found.get("fingerprint") == job_fingerprint(job, scale) and are_dependencies_same(found, job, scale)
    return JobStatus(entry, job, DONE if is_same else CHANGED, found.get("seconds"))


def job_fingerprint(job: Job, scale: str) -> str:
    networks = describe_networks(job.dataset, job.networks, scale) if job.dataset else {}
    return job.fingerprint(scale, networks)


def check_data(statuses: Sequence[JobStatus], scale: str) -> None:
    """Raise `DataNotFoundError` before anything is computed, where a dataset is missing that a job will need."""
    names = [status.job.dataset for status in statuses if status.state != DONE and status.job.dataset]
    for name in dict.fromkeys(names) if scale != "smoke" else ():
        for split in ("train", "test"):
            find_files(name, split, data_folders())


def measure_jobs(
    study: Study, jobs: Sequence[tuple[str, Job]], results: Path, on_done: Callable[[JobStatus], Any]
) -> list[JobStatus]:
    """Measure what is missing or has changed; a result's file appears as soon as its job is done."""
    found = []
    for entry, job in jobs:
        status = job_status(entry, job, study.scale, results)
        if status.state != DONE:
            status = measure_job(study, entry, job, results)
            on_done(status)
        found.append(status)
    return found


def measure_job(study: Study, entry: str, job: Job, results: Path) -> JobStatus:
    """Measure a job and write its result; one that needs a library that is not installed is left out."""
    clock = JobClock(study.folder / "clocks" / f"{job.name}.json", job_fingerprint(job, study.scale))

    def listen(words: str) -> None:
        clock.note()
        study.on_step(words)

    try:
        summary = MEASURES[job.measure](replace(study, on_step=listen), job)
    except MissingExtraError as error:
        return JobStatus(entry, job, f"left out: {error}", None)
    seconds = clock.seconds()
    write_result(results, job, summary, job_facts(study, entry, job, seconds))
    clock.stop()
    return JobStatus(entry, job, DONE, seconds)


def job_facts(study: Study, entry: str, job: Job, seconds: float) -> dict[str, Any]:
    """What a result's file says besides its numbers."""
    return {
        "entry": entry,
        "fingerprint": job_fingerprint(job, study.scale),
        "dependencies": job_dependencies(job, study.scale),
        "command": f"dubium reproduce {entry} --scale {study.scale}" + f" --dataset {job.dataset}" * bool(job.dataset),
        "scale": study.scale,
        "seed": 0,
        "seconds": seconds,
        "images": "of the dataset" if not job.dataset or is_at_hand(job.dataset) else "drawn: it is not at hand",
    }
