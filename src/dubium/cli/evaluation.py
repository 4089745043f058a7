"""What the commands of `dubium evaluate` share: loading, watching, showing."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch
from rich.console import Console
from rich.table import Table

from dubium.checks import check_kinds
from dubium.choices import DEMO
from dubium.cli._engine import executor_for, threads_for
from dubium.cli._options import dataset_for
from dubium.data import Dataset, load
from dubium.errors import DataNotFoundError, OptionError, lookup
from dubium.evaluation.methods import DEFAULTS, parse_methods
from dubium.evaluation.protocols import Job
from dubium.evaluation.protocols.job import SCALES
from dubium.executor import Executor, thread_count
from dubium.run.work import open_posterior, weights_digest


class Watched(NamedTuple):
    """What says how far the work is, and what does it."""

    report: Callable[[str], None]
    spread: Executor


def loaded_job(
    run: str,
    dataset: str | None,
    methods: str | None,
    kinds: str,
    scale: str,
    out: Path,
    seed: int,
    watched: Watched,
    split: str = "test",
) -> Job:
    """Everything that a protocol needs, from what the user typed."""
    lookup("scale", dict.fromkeys(SCALES), scale)
    chosen = check_kinds([kind.strip() for kind in kinds.split(",") if kind.strip()])
    watched.report("loading")
    data = loaded(run, dataset, split)
    posterior, _ = open_posterior({"run": run})
    parsed = parse_methods(methods.split(",") if methods else DEFAULTS[scale], data.shape[0])
    return Job(posterior, data, parsed, chosen, out, run, weights_digest(posterior), seed, *watched)


def loaded(run: str, dataset: str | None, split: str) -> Dataset:
    """The dataset that was named, or the one that the posterior brings."""
    named = dataset_for(run, dataset)
    if named is None:
        raise OptionError("--dataset is missing: NAME, NAME:split, or a path. `dubium data list` shows the names.")
    return load(named, split)


def other_split(data: Dataset, named: str | None) -> Dataset:
    """Training images for test images and the reverse; the same images where there is but one set."""
    if named is not None and named != DEMO:
        return load(named, "train")
    if data.name == DEMO:
        return load(DEMO).subset(slice(1, None, 2))
    try:
        return load(data.name, "train" if data.split == "test" else "test")
    except DataNotFoundError:
        return data


@contextmanager
def watched(threads: int | None, engine: str, address: str | None) -> Iterator[Watched]:
    """A line on the terminal that says what is being done; the given number of threads, and who does the work."""
    console = Console(stderr=True)
    threads = threads_for(engine, threads) or torch.get_num_threads()
    with thread_count(threads), executor_for(engine, address, threads) as spread:
        if console.is_terminal:
            with console.status("starting") as status:
                yield Watched(lambda text: status.update(text), spread)
        else:
            yield Watched(lambda _text: None, spread)


def show(summary: Mapping[str, Any], out: Path) -> None:
    """The results as a table, and where they are."""
    results = summary["results"]
    metrics = list(dict.fromkeys(metric for found in results.values() for metric in found if "-me" not in metric))
    table = Table("method", *metrics, box=None, pad_edge=False, header_style="bold")
    for method, found in results.items():
        table.add_row(method, *(_cell(found.get(metric)) for metric in metrics))
    console = Console()
    console.print(table)
    for note in summary["notes"]:
        console.print(note, highlight=False)
    console.print(
        f"{out / 'summary.json'}: 95 % intervals in brackets; comparisons are in comparisons.csv.", highlight=False
    )


def _cell(found: Mapping[str, float] | None) -> str:
    return "" if found is None else f"{found['value']:.3g} [{found['low']:.3g}, {found['high']:.3g}]"
