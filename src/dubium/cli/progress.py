"""Progress bars on a terminal, silence elsewhere."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)


@contextmanager
def download_bar(name: str) -> Iterator[Callable[[int, int], None]]:
    """A bar for bytes done and in all."""
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as bars:
        task = bars.add_task(name, total=None)
        yield lambda done, total: bars.update(task, completed=done, total=total)


@contextmanager
def training_bars() -> Iterator[Callable[[dict[str, Any]], None]]:
    """A bar for each network in training, with loss, accuracy and time left."""
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[figures]}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(elapsed_when_finished=False),
    )
    tasks: dict[int, TaskID] = {}
    with Progress(*columns, console=console, disable=not console.is_terminal) as bars:

        def report(event: dict[str, Any]) -> None:
            member = event["member"]
            if member not in tasks:
                tasks[member] = bars.add_task(f"member {member}", total=None, figures="")
            if "diverged" in event:
                console.print(f"member {member} is left out: {event['diverged']}", style="red", highlight=False)
            elif "step" in event:
                done = (event["epoch"] - 1) * event["steps"] + event["step"]
                figures = f"epoch {event['epoch']}  loss {event['loss']:.4f}  accuracy {event['accuracy']:.2%}"
                bars.update(tasks[member], completed=done, total=event["epochs"] * event["steps"], figures=figures)

        try:
            yield report
        except KeyboardInterrupt as stopped:
            console.print("Stopped. The same command goes on from the last whole epoch.")
            raise typer.Exit(130) from stopped
