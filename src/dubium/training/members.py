"""Training several networks, in turn or in parallel processes; each leaves a checkpoint, or the reason it diverged."""

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

from dubium.data import Dataset
from dubium.errors import DivergedError, DubiumError, FileFormatError
from dubium.executor import Executor, in_turn
from dubium.files import write_json
from dubium.reading import read_json
from dubium.training.loop import fit, network_for
from dubium.training.plan import Plan, load_images
from dubium.training.trainers import TRAINERS, member_recipe

OnEvent = Callable[[dict[str, Any]], None]
"""Called with {"member": ...} and the figures of a step, or the "record" of an epoch, or "diverged" and why."""


def member_checkpoint(folder: Path, index: int) -> Path:
    """The file that a member's training continues from."""
    return folder / "training" / f"member-{index}.safetensors"


def divergence_file(folder: Path, index: int) -> Path:
    """The file that says why a member's training was given up."""
    return folder / "training" / f"member-{index}.diverged.json"


def read_divergence_note(file: Path) -> str:
    """Why a member's training was given up, as `divergence_file` says."""
    content = read_json(file)
    if not isinstance(content, dict) or not isinstance(content.get("message"), str):
        raise FileFormatError(f"{file} is damaged: it has no message. Delete it, and the member is trained again.")
    return str(content["message"])


def train_member(plan: Plan, index: int, folder: Path, data: Dataset, report: OnEvent) -> None:
    """Train one network to its end, from its checkpoint if there is one."""
    note = divergence_file(folder, index)
    if note.exists():
        report({"member": index, "diverged": read_divergence_note(note)})
        return
    recipe = member_recipe(plan, index)
    try:
        fit(
            network_for(recipe, plan.seed_of(index)).to(plan.device),
            data,
            recipe,
            seed=plan.seed_of(index),
            checkpoint=member_checkpoint(folder, index),
            on_epoch=TRAINERS[plan.posterior].collector(plan),
            on_step=lambda figures: report({"member": index, **figures}),
            on_record=lambda record: report({"member": index, "record": record}),
        )
    except DivergedError as error:
        write_json(note, {"message": str(error)})
        report({"member": index, "diverged": str(error)})


def train_member_job(shared: tuple[Plan, Path, Dataset], index: int, report: OnEvent) -> None:
    """`train_member` as a job of `dubium.executor`."""
    plan, folder, data = shared
    train_member(plan, index, folder, data, report)


def train_members(
    plan: Plan, folder: Path, data: Dataset, jobs: int, report: OnEvent, spread: Executor = in_turn
) -> None:
    """Train every network of the plan; with `jobs` above 1, so many at a time in processes of their own."""
    if jobs <= 1 or plan.runs == 1:
        shared = plan, folder, data
        for _ in spread(train_member_job, shared, range(plan.runs), report, threads=plan.threads, device=plan.device):
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
                running[index] = context.Process(target=train_in_process, args=arguments, daemon=True)
                running[index].start()
            forward_events(events, report)
            for index in [index for index, process in running.items() if process.exitcode is not None]:
                code = running.pop(index).exitcode
                forward_events(events, report)
                if code:
                    raise DubiumError(
                        f"The process that trained member {index} ended with exit code {code}. The same command goes on"
                        " from the last whole epoch; with fewer --jobs, less memory is needed."
                    )
    finally:
        for process in running.values():
            process.kill()


def forward_events(events: "Queue[dict[str, Any]]", report: OnEvent) -> None:
    """Report the events that are waiting; wait a tenth of a second for the first."""
    try:
        report(events.get(timeout=0.1))
        while True:
            report(events.get_nowait())
    except Empty:
        return


def train_in_process(settings: dict[str, Any], index: int, folder: str, events: "Queue[dict[str, Any]]") -> None:
    """Train one member in this process, which ends when its parent does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the parent, which ends this process
    parent = os.getppid()

    def report(event: dict[str, Any]) -> None:
        if os.getppid() != parent:
            os._exit(1)
        events.put(event)

    plan = Plan.from_json(settings)
    torch.set_num_threads(plan.threads)
    train_member(plan, index, Path(folder), load_images(plan, "train"), report)
