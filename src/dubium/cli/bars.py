"""Progress bars of long runs, with rate and time left: on a terminal, and nowhere else."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

Report = Callable[[str, float | int, int], None]


class Rate(ProgressColumn):
    """Images a second."""

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text("" if speed is None else f"{speed:.3g}/s", style="progress.data.speed")


@contextmanager
def run_bars(*, quiet: bool = False) -> Iterator[Report]:
    """A function that takes a stage, steps done and steps in all; each stage has a bar of its own."""
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description:<8}"),
        BarColumn(),
        MofNCompleteColumn(),
        Rate(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    tasks: dict[str, TaskID] = {}
    with Progress(*columns, console=console, disable=quiet or not console.is_terminal) as bars:

        def report(stage: str, done: float | int, total: int) -> None:
            if stage not in tasks:
                tasks[stage] = bars.add_task(stage, total=total)
            bars.update(tasks[stage], completed=min(total, round(done, 1) if done < total else total), total=total)

        yield report
