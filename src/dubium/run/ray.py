"""Jobs on a Ray cluster: one here, of as many processes as there are cores, or one that is there already."""

import logging
import os
import socket
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from dubium.errors import ClusterError
from dubium.executor import EventListener, Executor, J, R, S, thread_count
from dubium.posteriors.optional_imports import import_extra

RETRIES = 4  # of a job whose worker died; one that always dies, of too little memory say, must end some time
ANSWER = 10  # seconds that a cluster may take to answer
POLL = 0.2  # seconds between two looks at what workers report
AHEAD = 2  # jobs handed out for each that can run, so that no worker waits for the next one


@contextmanager
def ray_cluster(address: str | None = None, *, threads: int = 1) -> Iterator[Executor]:
    """Join the cluster at `address` ("auto", "host:port"), or start one here for as long as the block lasts.

    Args:
        threads: of a job; a cluster here has at least so many cores to offer.
    """
    ray = import_extra("ray", "ray")
    theirs = ray.is_initialized()  # the caller's own cluster is used, and left alone
    if not theirs:
        join_cluster(ray, address, threads)
    board = ray.remote(EventBoard).options(num_cpus=0, max_restarts=-1, max_task_retries=-1).remote()
    try:
        yield partial(run_on_ray, ray, board)
    finally:
        ray.kill(board)
        if not theirs:
            ray.shutdown()


def join_cluster(ray: Any, address: str | None, threads: int) -> None:
    """Start a cluster, or become part of one."""
    here = {"num_cpus": max(threads, usable_cores()), "include_dashboard": False} if address is None else {}
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nobody asked to be counted
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Ray's, about its future versions
        try:
            check_answer(address)
            ray.init(address or "local", logging_level=logging.CRITICAL, **here)
        except (OSError, ValueError, RuntimeError) as error:
            raise ClusterError(
                f"No Ray cluster could be {'joined at ' + address if address else 'started'} ({error}). Start one "
                "with `ray start --head`; without --address, one is started for this command alone."
            ) from error


def check_answer(address: str | None) -> None:
    """Raise at once if nobody is at a host and port; Ray itself tries for minutes."""
    host, _, port = (address or "").rpartition(":")
    if host and port.isdigit() and "/" not in host:
        socket.create_connection((host, int(port)), timeout=ANSWER).close()


def usable_cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def has_gpus() -> bool:
    """Whether the cluster has any GPU."""
    return bool(import_extra("ray", "ray").cluster_resources().get("GPU", 0))


def run_on_ray(
    ray: Any,
    board: Any,
    function: Callable[[S, J, EventListener], R],
    shared: S,
    jobs: Iterable[J],
    listener: EventListener,
    *,
    threads: int,
    device: str = "cpu",
) -> Iterator[R]:
    """`dubium.executor.Executor` on a cluster that was joined; a job whose worker dies is done again elsewhere."""
    needs = {"num_cpus": threads, "num_gpus": int(device.startswith("cuda"))}
    task = ray.remote(run_in_worker).options(**needs, max_retries=RETRIES)
    where = os.getcwd(), [path for path in sys.path if path]
    reference = put_shared(ray, shared)
    common = function, [reference], board, where, threads  # a list, or Ray would unpack it for every job
    running: dict[Any, int] = {}
    results: dict[int, R] = {}
    waiting, turn = enumerate(jobs), 0
    while True:
        room = AHEAD * max(1, int(ray.cluster_resources().get("CPU", 1) // threads)) - len(running)
        for _, (number, job) in zip(range(room), waiting, strict=False):
            running[task.remote(*common, job)] = number
        for event in take_events(ray, board, reference):
            listener(event)
        if not running:
            return
        done, _ = ray.wait(list(running), timeout=POLL)
        for one in done:
            results[running.pop(one)] = job_result(ray, one)  # if it raises, others go on: force-cancelling crashes Ray
        while turn in results:
            yield results.pop(turn)
            turn += 1


def put_shared(ray: Any, shared: Any) -> Any:
    """A reference by which every worker can get `shared`."""
    try:
        return ray.put(shared)
    except (TypeError, AttributeError) as error:
        raise ClusterError(
            f"Something in this posterior or these options cannot be sent to another process: {error}. Without "
            "--engine ray, everything stays in this one."
        ) from error


def job_result(ray: Any, done: Any) -> Any:
    """What a job returned, or what it raised."""
    try:
        return ray.get(done)
    except ray.exceptions.RayTaskError as error:
        raise error.cause from error
    except ray.exceptions.RayError as error:
        raise ClusterError(
            f"A job's worker died {RETRIES + 1} times ({type(error).__name__}). Too little memory is the usual reason. "
            "What is finished is kept: the same command goes on from there."
        ) from error


def run_in_worker(
    function: Callable[[S, J, EventListener], R],
    shared: list[Any],
    board: Any,
    where: tuple[str, list[str]],
    threads: int,
    job: J,
) -> R:
    """One job in a worker, in the folder and with the modules of whoever asked for it."""
    folder, paths = where
    if not Path(folder).is_dir():
        raise ClusterError(f"A worker does not see {folder}. Start from a folder that all machines share.")
    os.chdir(folder)
    sys.path.extend(path for path in paths if path not in sys.path)
    with thread_count(threads):
        return function(shared_object(shared[0]), job, partial(board.tell.remote, shared[0].hex()))


@lru_cache(maxsize=1)
def shared_object(reference: Any) -> Any:
    """What all jobs need, unpacked once in a worker."""
    return import_extra("ray", "ray").get(reference)


class EventBoard:
    """What workers report of the jobs that share something, until it is taken."""

    def __init__(self) -> None:
        self.events = list[tuple[str, Any]]()

    def tell(self, of: str, event: Any) -> None:
        self.events.append((of, event))

    def take(self, of: str) -> list[Any]:
        found, self.events = self.events, []
        return [event for about, event in found if about == of]  # those of earlier jobs are late, and of no use


def take_events(ray: Any, board: Any, reference: Any) -> list[Any]:
    """What workers reported since the last call; if the board cannot be asked, the work goes on without."""
    try:
        return list(ray.get(board.take.remote(reference.hex())))
    except ray.exceptions.RayError:
        return []
