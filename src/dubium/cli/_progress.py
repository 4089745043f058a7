"""Progress bars on a terminal; elsewhere, in a log say, a line now and then."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.text import Text

from dubium.durations import duration_text

LINE_EVERY = 10.0  # seconds; what takes no longer is not worth a line
SEEN = 1.0  # seconds after which a guess about the rest is worth something


class RateColumn(ProgressColumn):
    """Images a second."""

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text("" if speed is None else f"{speed:.3g}/s", style="progress.data.speed")


@dataclass
class ProgressLines:
    """A line about a stage as soon as it is seen to be long, and now and then, with the time that is left."""

    every: float = LINE_EVERY
    started: dict[str, tuple[float, float]] = field(default_factory=dict)
    last: dict[str, float] = field(default_factory=dict)

    def show(self, stage: str, done: int | float, total: int) -> None:
        now = monotonic()
        begun, before = self.started.setdefault(stage, (now, done))
        if now - begun < SEEN or done <= before:
            return
        left = (now - begun) * (total - done) / (done - before)
        is_due = now - self.last[stage] >= self.every if stage in self.last else now - begun + left > self.every
        if is_due:
            self.last[stage] = now
            typer.echo(f"{stage}: {int(done):,} of {total:,}, {duration_text(left)} left", err=True)

    def show_text(self, text: str) -> None:
        """The same for a stage in words, as in "maps: 3 of 8"."""
        if found := re.fullmatch(r"(.+): (\d+) of (\d+)", text):
            self.show(found[1], float(found[2]), int(found[3]))


@contextmanager
def step_lines() -> Iterator[Callable[[str], None]]:
    """A function that takes what is being done, in words: shown on a terminal, elsewhere a line now and then."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield ProgressLines().show_text
        return
    with console.status("loading") as status:
        yield lambda text: status.update(text)


@contextmanager
def stage_bars(*, quiet: bool = False) -> Iterator[Callable[[str, float | int, int], None]]:
    """A function that takes a stage, steps done and steps in all; each stage has a bar of its own."""
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description:<8}"),
        BarColumn(),
        MofNCompleteColumn(),
        RateColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    tasks: dict[str, TaskID] = {}
    lines = ProgressLines()
    with Progress(*columns, console=console, disable=quiet or not console.is_terminal) as bars:

        def show_stage(stage: str, done: float | int, total: int) -> None:
            if not quiet and not console.is_terminal:
                lines.show(stage, float(done), total)
            if stage not in tasks:
                tasks[stage] = bars.add_task(stage, total=total)
            bars.update(tasks[stage], completed=min(total, round(done, 1) if done < total else total), total=total)

        yield show_stage


@contextmanager
def download_bar(name: str) -> Iterator[Callable[[int, int], None]]:
    """A function that takes bytes done and bytes in all."""
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as bars:
        task, lines = bars.add_task(name, total=None), ProgressLines()

        def show_bytes(done: int, total: int) -> None:
            bars.update(task, completed=done, total=total)
            if not console.is_terminal:
                lines.show(f"{name}, MB", done / 1e6, round(total / 1e6))

        yield show_bytes


@contextmanager
def training_bars() -> Iterator[Callable[[dict[str, Any]], None]]:
    """A function that takes events of training; a bar for each network, with loss, accuracy and time left."""
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[figures]}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(elapsed_when_finished=False),
    )
    tasks: dict[int, TaskID] = {}
    lines = ProgressLines()
    with Progress(*columns, console=console, disable=not console.is_terminal) as bars:

        def show_event(event: dict[str, Any]) -> None:
            member = event["member"]
            if member not in tasks:
                tasks[member] = bars.add_task(f"member {member}", total=None, figures="")
            if "diverged" in event:
                console.print(f"member {member} is left out: {event['diverged']}", style="red", highlight=False)
            elif "step" in event:
                done = (event["epoch"] - 1) * event["steps"] + event["step"]
                figures = f"epoch {event['epoch']}  loss {event['loss']:.4f}  accuracy {event['accuracy']:.2%}"
                total = event["epochs"] * event["steps"]
                bars.update(tasks[member], completed=done, total=total, figures=figures)
                if not console.is_terminal:
                    lines.show(f"member {member}, steps", done, total)

        try:
            yield show_event
        except KeyboardInterrupt as stopped:
            console.print("Stopped. The same command goes on from the last whole epoch.")
            raise typer.Exit(130) from stopped
