"""Engines: jobs in this process, one after another, or wherever a `dubium.executor.Spread` has them done."""

from collections.abc import Callable, Iterable, Iterator
from time import monotonic

import torch

from dubium.executor import Report, Spread, in_turn
from dubium.run.job import Done, Job, Tick, run_job
from dubium.run.work import Work

Engine = Callable[[Work, Iterable[Job], Tick], Iterator[Done]]
"""Where jobs run is not what they do: engines are interchangeable."""

SELDOM = 0.1  # seconds between two reports, each of which may be a message to another machine


def engine_on(spread: Spread) -> Engine:
    """The engine that spreads jobs so."""

    def engine(work: Work, jobs: Iterable[Job], tick: Tick) -> Iterator[Done]:
        seen: dict[str, float] = {}

        def report(event: tuple[str, float]) -> None:
            file, images = event
            tick(images - seen.get(file, 0.0))  # back to its beginning, if a job had to start again
            seen[file] = images

        threads = work.settings.threads or torch.get_num_threads()
        return spread(counted, work, jobs, report, threads=threads, device=work.settings.device)

    return engine


def counted(work: Work, job: Job, report: Report) -> Done:
    """Do a job, and say now and then how many of its images are done."""
    images, last = 0.0, monotonic()

    def tick(more: float) -> None:
        nonlocal images, last
        images += more
        if monotonic() - last > SELDOM:
            last = monotonic()
            report((job.file, images))

    done = run_job(work, job, tick)
    report((job.file, float(len(job.indices))))
    return done


run_local = engine_on(in_turn)
