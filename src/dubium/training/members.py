"""Training several networks, in turn or in parallel processes; each leaves a checkpoint, or the reason it diverged."""

import json
import os
import signal
from collections.abc import Callable
from multiprocessing import get_context
from multiprocessing.context import SpawnProcess
from multiprocessing.queues import Queue
from pathlib import Path
from queue import Empty
from typing import Any

import torch

from dubium.data import Dataset, load
from dubium.errors import DivergedError, DubiumError
from dubium.executor import Executor, in_turn
from dubium.files import write_json
from dubium.training.kinds import collector
from dubium.training.loop import fit, network_for
from dubium.training.plan import Plan

Report = Callable[[dict[str, Any]], None]
"""Called with what happened: "member" and either a step's or an epoch's figures, or "diverged"."""


def checkpoint_of(folder: Path, index: int) -> Path:
    return folder / "training" / f"member-{index}.safetensors"


def diverged_note(folder: Path, index: int) -> Path:
    return folder / "training" / f"member-{index}.diverged.json"


def train_member(plan: Plan, index: int, folder: Path, data: Dataset, report: Report) -> None:
    """Train one network to its end, from its checkpoint if there is one."""
    note = diverged_note(folder, index)
    if note.exists():
        report({"member": index, "diverged": json.loads(note.read_text())["message"]})
        return
    recipe = plan.recipe_of(index)
    try:
        fit(
            network_for(recipe, plan.seed_of(index)).to(plan.device),
            data,
            recipe,
            seed=plan.seed_of(index),
            checkpoint=checkpoint_of(folder, index),
            on_epoch=collector(plan),
            on_step=lambda figures: report({"member": index, **figures}),
            on_record=lambda record: report({"member": index, "record": record}),
        )
    except DivergedError as error:
        write_json(note, {"message": str(error)})
        report({"member": index, "diverged": str(error)})


def train_one(shared: tuple[Plan, Path, Dataset], index: int, report: Report) -> None:
    """`train_member` as a job of `dubium.executor`."""
    plan, folder, data = shared
    train_member(plan, index, folder, data, report)


def train_members(
    plan: Plan, folder: Path, data: Dataset, jobs: int, report: Report, spread: Executor = in_turn
) -> None:
    """Train every network of the plan; with `jobs` above 1, so many at a time in processes of their own."""
    if jobs <= 1 or plan.runs == 1:
        shared = plan, folder, data
        for _ in spread(train_one, shared, range(plan.runs), report, threads=plan.threads, device=plan.device):
            pass
        return
    context = get_context("spawn")
    events: Queue[dict[str, Any]] = context.Queue()
    waiting = list(range(plan.runs))
    running: dict[int, SpawnProcess] = {}
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                index = waiting.pop(0)
                arguments = (plan.to_json(), index, str(folder), events)
                running[index] = context.Process(target=_in_process, args=arguments, daemon=True)
                running[index].start()
            _pass_on(events, report)
            for index in [index for index, process in running.items() if process.exitcode is not None]:
                code = running.pop(index).exitcode
                _pass_on(events, report)
                if code:
                    raise DubiumError(
                        f"The process that trained member {index} ended with exit code {code}. The same command goes on"
                        " from the last whole epoch; with fewer --jobs, less memory is needed."
                    )
    finally:
        for process in running.values():
            process.kill()


def _pass_on(events: "Queue[dict[str, Any]]", report: Report) -> None:
    try:
        report(events.get(timeout=0.1))
        while True:
            report(events.get_nowait())
    except Empty:
        return


def _in_process(settings: dict[str, Any], index: int, folder: str, events: "Queue[dict[str, Any]]") -> None:
    """One member in a process of its own, which ends when its parent does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the parent, which ends this process
    parent = os.getppid()

    def report(event: dict[str, Any]) -> None:
        if os.getppid() != parent:
            os._exit(1)
        events.put(event)

    plan = Plan.from_json(settings)
    torch.set_num_threads(plan.threads)
    train_member(plan, index, Path(folder), load(plan.dataset, "train"), report)
