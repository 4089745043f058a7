"""What the commands of `dubium evaluate` share: their common options, and the way from words to a finished folder."""

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, dataclass, fields
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer
from rich.console import Console

from dubium.choices import DEMO, SCALES
from dubium.cli._engine import Address, EngineName, executor_for, threads_for
from dubium.cli._evaluation_tables import print_overview, print_summary
from dubium.cli._options import dataset_for, one_of, split_words
from dubium.errors import FileFormatError, OptionError
from dubium.folder_lock import own_folder
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
        typer.Option(help="Such as ua-backprop,ua-backprop:rescale=none,clue:vae=FOLDER; controls come along."),
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


def with_shared_options(command: Callable[..., None], *, run: bool = True) -> Callable[..., None]:
    """A command that takes the fields of `SharedOptions` besides its own options, and gets them as one argument.

    Args:
        run: whether the user names a posterior; else its name is empty.
    """
    hints = get_type_hints(SharedOptions, include_extras=True)
    absent: dict[str, Any] = {} if run else {"run": ""}
    shared = [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if field.default is MISSING else field.default,
            annotation=hints[field.name],
        )
        for field in fields(SharedOptions)
        if field.name not in absent
    ]
    own = [
        parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        for parameter in list(inspect.signature(command).parameters.values())[1:]
    ]

    @wraps(command)
    def extended(**values: Any) -> None:
        shared_values = {name: values.pop(name) for name in hints if name not in absent}
        command(SharedOptions(**absent, **shared_values), **values)

    extended.__signature__ = inspect.Signature([*shared, *own])  # type: ignore[attr-defined]  # what typer reads
    extended.__annotations__ = {parameter.name: parameter.annotation for parameter in (*shared, *own)}
    return extended


def evaluate_and_print(protocol: str, shared: SharedOptions, **changes: Any) -> None:
    """Run a protocol, draw its figures, and print its results; options that are None are left to the scale."""
    from dubium.evaluation.protocols import run_protocol
    from dubium.report.protocols import write_figures

    given = {name: value for name, value in changes.items() if value is not None}
    with own_folder(shared.out):
        with open_evaluation(protocol, shared) as evaluation:
            summary = run_protocol(protocol, evaluation, scale=shared.scale, **given)
        write_figures(shared.out)
    print_summary(summary, shared.out)


def evaluate_all_and_print(shared: SharedOptions, protocols: Sequence[str] | None) -> None:
    """Run several protocols, draw their figures, and print one table over them."""
    from dubium.evaluation.protocols.all_protocols import TOGETHER, evaluate_all
    from dubium.report.protocols import write_figures

    chosen = protocols or TOGETHER
    with own_folder(shared.out):
        with open_evaluation("blurring", shared) as evaluation:
            overview = evaluate_all(evaluation, chosen, scale=shared.scale)
        for name in chosen:
            with own_folder(shared.out / name):
                write_figures(shared.out / name)
    print_overview(overview, shared.out)


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
    from dubium.fingerprint import posterior_digest
    from dubium.run.work import open_posterior

    texts = lookup("scale", DEFAULTS, shared.scale)
    kinds = check_kinds(split_words([shared.kinds]))
    name, split = dataset_for(shared.run, shared.dataset), PROTOCOLS[protocol].split
    if name is None:
        raise OptionError("--dataset is missing: NAME, NAME:split, or a path. `dubium data list` shows the names.")
    if name == DEMO:  # those that are not among its training images
        running["other_data"] = load(DEMO).subset(slice(1, None, 2))
    data = load(name, split)
    needs_posterior = PROTOCOLS[protocol].needs_posterior
    posterior = open_posterior({"run": shared.run})[0] if needs_posterior else ()
    methods = parse_methods(split_outside_brackets(shared.methods, ",") if shared.methods else texts, data.shape[0])
    weights = posterior_digest(posterior) if needs_posterior else ""
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
