"""Where jobs run is not what they do: an executor calls one function for every job, here or on other machines."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar, runtime_checkable

import torch

S = TypeVar("S")
J = TypeVar("J")
R = TypeVar("R")
EventListener = Callable[[Any], None]
"""Called with an event of a job, for people to see; an event may be late or, if a worker dies, missing."""


@runtime_checkable
class Executor(Protocol):
    """`function(shared, job, listener)` for every job; results in the order of the jobs.

    Args:
        function: can be imported, since it may run in another process. It leaves files whole or not at all,
            and the same ones whenever it is called, since a job that was cut short is done again.
        shared: what all jobs need; sent to a machine once.
        jobs: plain data.
        threads: of torch in each job; float32 sums depend on it in the last digits.
        device: what `function` computes on; "cpu" needs `threads` cores, "cuda" a GPU too.
    """

    def __call__(
        self,
        function: Callable[[S, J, EventListener], R],
        shared: S,
        jobs: Iterable[J],
        listener: EventListener,
        *,
        threads: int,
        device: str = "cpu",
    ) -> Iterator[R]: ...


def in_turn(
    function: Callable[[S, J, EventListener], R],
    shared: S,
    jobs: Iterable[J],
    listener: EventListener,
    *,
    threads: int,
    device: str = "cpu",
) -> Iterator[R]:
    """The executor that runs jobs in this process, one after another."""
    for job in jobs:
        with thread_count(threads):
            result = function(shared, job, listener)
        yield result


@contextmanager
def thread_count(threads: int) -> Iterator[None]:
    """torch uses this many threads inside the block."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)
