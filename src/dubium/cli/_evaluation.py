"""What the commands of `dubium evaluate` share: their common options, and the way from words to a finished folder."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import MISSING, dataclass, fields
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer
from rich.console import Console
from rich.table import Table

from dubium.choices import DEMO, SCALES
from dubium.cli._engine import Address, EngineName, executor_for, threads_for
from dubium.cli._options import dataset_for, one_of, split_words
from dubium.errors import FileFormatError, OptionError
from dubium.kinds import KINDS
from dubium.option_text import split_outside_brackets

if TYPE_CHECKING:
    from torch import Tensor

    from dubium.evaluation.protocols import Evaluation


@dataclass(frozen=True)
class SharedOptions:
    """Arguments and options of every protocol, as the user typed them."""

    run: Annotated[str, typer.Argument(help="A posterior's folder, its name under DUBIUM_MODELS, or 'demo'.")]
    out: Annotated[Path, typer.Option(help="Where to write summary.json, tables and figures.")]
    dataset: Annotated[
        str | None, typer.Option(help="NAME, NAME:split, or a path; for 'demo', its own digits by default.")
    ] = None
    methods: Annotated[
        str | None,
        typer.Option(help="Such as ua-backprop,ua-backprop:rescale=none,clue:vae=FOLDER; 'random' comes along."),
    ] = None
    kinds: Annotated[
        str, typer.Option(**one_of("kind of uncertainty", KINDS), help="Of epistemic, aleatoric, total.")
    ] = "epistemic"
    scale: Annotated[
        str,
        typer.Option(**one_of("scale", SCALES), help="smoke, cpu or paper."),
    ] = "cpu"
    seed: Annotated[int, typer.Option(help="Of everything that is drawn.")] = 0
    threads: Annotated[int | None, typer.Option(min=1, help="Threads; the last digits depend on them.")] = None
    engine: EngineName = "local"
    address: Address = None


def with_shared_options(command: Callable[..., None]) -> Callable[..., None]:
    """A command that takes the fields of `SharedOptions` besides its own options, and gets them as one argument."""
    hints = get_type_hints(SharedOptions, include_extras=True)
    shared = [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if field.default is MISSING else field.default,
            annotation=hints[field.name],
        )
        for field in fields(SharedOptions)
    ]
    own = [
        parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        for parameter in list(inspect.signature(command).parameters.values())[1:]
    ]

    @wraps(command)
    def extended(**values: Any) -> None:
        command(SharedOptions(**{name: values.pop(name) for name in hints}), **values)

    extended.__signature__ = inspect.Signature([*shared, *own])  # type: ignore[attr-defined]  # what typer reads
    extended.__annotations__ = {parameter.name: parameter.annotation for parameter in (*shared, *own)}
    return extended


def evaluate_and_print(protocol: str, shared: SharedOptions, **changes: Any) -> None:
    """Run a protocol, draw its figures, and print its results; options that are None are left to the scale."""
    from dubium.evaluation.protocols import run_protocol
    from dubium.report.protocols import write_figures

    given = {name: value for name, value in changes.items() if value is not None}
    with open_evaluation(protocol, shared) as evaluation:
        summary = run_protocol(protocol, evaluation, scale=shared.scale, **given)
    write_figures(shared.out)
    print_summary(summary, shared.out)


@contextmanager
def open_evaluation(protocol: str, shared: SharedOptions) -> "Iterator[Evaluation]":
    """What the user named, loaded; within the block, with the given threads and executor, and a line of progress."""
    import torch

    from dubium.executor import thread_count

    console = Console(stderr=True)
    threads = threads_for(shared.engine, shared.threads) or torch.get_num_threads()
    with thread_count(threads), executor_for(shared.engine, shared.address, threads) as executor:
        if console.is_terminal:
            with console.status("loading") as status:
                yield load_evaluation(protocol, shared, executor=executor, on_step=lambda text: status.update(text))
        else:
            yield load_evaluation(protocol, shared, executor=executor)


def load_evaluation(protocol: str, shared: SharedOptions, **running: Any) -> "Evaluation":
    """Posterior, images and methods that the user named."""
    from dubium.checks import check_kinds
    from dubium.data import load
    from dubium.errors import lookup
    from dubium.evaluation.methods import DEFAULTS, parse_methods
    from dubium.evaluation.protocols import PROTOCOLS, Evaluation
    from dubium.run.work import open_posterior, weights_digest

    texts = lookup("scale", DEFAULTS, shared.scale)
    kinds = check_kinds(split_words([shared.kinds]))
    name, split = dataset_for(shared.run, shared.dataset), PROTOCOLS[protocol].split
    if name is None:
        raise OptionError("--dataset is missing: NAME, NAME:split, or a path. `dubium data list` shows the names.")
    if name == DEMO:  # those that are not among its training images
        running["other_data"] = load(DEMO).subset(slice(1, None, 2))
    data = load(name, split)
    posterior, _ = open_posterior({"run": shared.run})
    methods = parse_methods(split_outside_brackets(shared.methods, ",") if shared.methods else texts, data.shape[0])
    weights = weights_digest(posterior)
    return Evaluation(posterior, data, methods, kinds, shared.out, shared.run, weights, shared.seed, **running)


def read_masks(path: Path) -> "Tensor":
    """Masks (N, H, W) of a .npy file; a value other than 0 is inside."""
    import numpy as np
    import torch

    try:
        array = np.load(path, allow_pickle=False)
    except (OSError, ValueError) as error:
        raise FileFormatError(f"{path} is not a .npy file of masks ({error}).") from error
    if not isinstance(array, np.ndarray) or array.ndim != 3:
        raise OptionError(f"{path} has shape {getattr(array, 'shape', None)}; masks are (N, H, W).")
    return torch.from_numpy(array != 0)


def print_summary(summary: Mapping[str, Any], out: Path) -> None:
    """The results as a table, and where they are."""
    results = summary["results"]
    metrics = list(dict.fromkeys(metric for found in results.values() for metric in found if "-me" not in metric))
    table = Table("method", *metrics, box=None, pad_edge=False, header_style="bold")
    for method, found in results.items():
        table.add_row(method, *(_interval_cell(found.get(metric)) for metric in metrics))
    console = Console()
    console.print(table)
    for note in summary["notes"]:
        console.print(note, highlight=False)
    console.print(
        f"{out / 'summary.json'}: 95 % intervals in brackets; comparisons are in comparisons.csv.", highlight=False
    )


def _interval_cell(found: Mapping[str, float] | None) -> str:
    return "" if found is None else f"{found['value']:.3g} [{found['low']:.3g}, {found['high']:.3g}]"
