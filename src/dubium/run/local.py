"""Jobs in this process, one after another."""

from collections.abc import Callable, Iterable, Iterator

import torch

from dubium.run.job import Done, Job, Tick, run_job
from dubium.run.work import Work

Engine = Callable[[Work, Iterable[Job], Tick], Iterator[Done]]
"""Where jobs run is not what they do: engines are interchangeable, and results come as they finish."""


def run_local(work: Work, jobs: Iterable[Job], tick: Tick) -> Iterator[Done]:
    """Do the jobs here, with the settings' number of threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(work.settings.threads or before)
    try:
        for job in jobs:
            yield run_job(work, job, tick)
    finally:
        torch.set_num_threads(before)
