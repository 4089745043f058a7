"""The options that all commands of `dubium evaluate` have in common."""

import inspect
from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer

from dubium.choices import SCALES
from dubium.cli import _options as o
from dubium.cli._engine import Address, EngineName
from dubium.cli._estimate import EstimateOnly
from dubium.cli._options import one_of
from dubium.kinds import KINDS


@dataclass(frozen=True)
class SharedOptions:
    """Arguments and options of every protocol, as the user typed them."""

    out: Annotated[Path, typer.Option(help="Where to write summary.json, tables and figures.")]
    run: o.PosteriorName = None
    posterior: o.PosteriorFactory = None
    weights: o.Weights = None
    mean: o.Mean = None
    std: o.Std = None
    network_output: o.NetworkOutput = None
    names: o.Names = None
    input_shape: o.InputShape = None
    fit: o.Fit = None
    resize: o.Resize = None
    interpolation: o.Interpolation = None
    data_config: o.DataConfig = None
    dataset: Annotated[
        str | None,
        typer.Option(help="NAME, NAME:split, a folder or file of images; for 'demo', its own digits by default."),
    ] = None
    methods: Annotated[
        str | None,
        typer.Option(
            callback=o.check_method_texts,
            help="Such as ua-backprop,ua-backprop:rescale=none,clue:vae=FOLDER,mine:function; controls come along.",
        ),
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
    estimate: EstimateOnly = False


PREPARED = ("input_shape", "fit", "resize", "interpolation", "data_config")
POSTERIOR_OPTIONS = (
    "run", "posterior", "weights", "mean", "std", "network_output", "names", *(set(PREPARED) - {"input_shape"}),
)  # fmt: skip
"""What a protocol that trains networks of its own does not take; a shape for the images it does."""


def with_shared_options(command: Callable[..., None], *, run: bool = True) -> Callable[..., None]:
    """A command that takes the fields of `SharedOptions` besides its own options, and gets them as one argument.

    Args:
        run: whether the user names a posterior.
    """
    absent: dict[str, Any] = {} if run else dict.fromkeys(POSTERIOR_OPTIONS)
    shared = [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if field.default is MISSING else field.default,
            annotation=field.type,
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
        shared_values = {parameter.name: values.pop(parameter.name) for parameter in shared}
        command(SharedOptions(**absent, **shared_values), **values)

    extended.__dict__["__signature__"] = inspect.Signature([*shared, *own])  # what typer reads
    extended.__annotations__ = {parameter.name: parameter.annotation for parameter in (*shared, *own)}
    return extended
