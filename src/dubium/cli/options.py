"""What several commands ask for, and how it becomes settings."""

import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from dubium.cli.train import numbers
from dubium.data import SOURCES
from dubium.data.fit import FITS
from dubium.errors import OptionError
from dubium.option_text import parse_options
from dubium._explain import methods
from dubium.run.settings import RANKED
from dubium.types import KINDS

MANY = ("--images", "--weights", "--kinds", "--mean", "--std", "--methods")
POSTERIOR, IMAGES, METHOD, RUNNING = "Posterior", "Images", "Method", "Running"


class ManyValues(TyperCommand):
    """Lets some options take all the words up to the next option, as a shell's `--images *.png` needs."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, spread(args))


def spread(args: Sequence[str]) -> list[str]:
    """`--images a b` as `--images a --images b`."""
    found: list[str] = []
    option, first = "", False
    for arg in args:
        is_option = arg.startswith("-") and not re.fullmatch(r"-[\d.,]+", arg)
        if option and not first and not is_option:
            found.append(option)
        elif is_option:
            option = arg if arg in MANY else ""
        first = is_option and bool(option)
        found.append(arg)
    return found


def complete(known: Sequence[str]) -> Any:
    """For shell completion."""
    return lambda incomplete: [name for name in known if name.startswith(incomplete)]


Run = Annotated[
    str | None, typer.Argument(metavar="[RUN]", help="A trained run's folder, a named posterior, or `demo`.")
]
PosteriorFactory = Annotated[
    str | None,
    typer.Option(
        "--posterior", metavar="MODULE:FACTORY", rich_help_panel=POSTERIOR,
        help="A function of yours that returns a network (then name its --weights), or a whole posterior.",
    ),
]  # fmt: skip
Weights = Annotated[
    list[str] | None, typer.Option(metavar="FILES", rich_help_panel=POSTERIOR, help="A weight file per network.")
]
Mean = Annotated[
    list[str] | None,
    typer.Option(metavar="NUMBERS", rich_help_panel=POSTERIOR, help="What images are standardised with."),
]
Std = Annotated[list[str] | None, typer.Option(metavar="NUMBERS", rich_help_panel=POSTERIOR)]
InputShape = Annotated[
    str | None, typer.Option(metavar="C,H,W", rich_help_panel=POSTERIOR, help="Of the networks' images, if not known.")
]
Names = Annotated[
    str | None, typer.Option(metavar="A,B,...", rich_help_panel=POSTERIOR, help="Of the classes, if not known.")
]
ImageFiles = Annotated[
    list[str] | None, typer.Option("--images", metavar="DIR|FILES", rich_help_panel=IMAGES, help="Folders or files.")
]
DatasetName = Annotated[
    str | None,
    typer.Option(
        "--dataset", metavar="NAME[:SPLIT]", rich_help_panel=IMAGES, autocompletion=complete([*SOURCES, "demo"]),
        help=f"{', '.join(SOURCES)}, demo, or an array file.",
    ),
]  # fmt: skip
Fit = Annotated[
    str,
    typer.Option(
        rich_help_panel=IMAGES, autocompletion=complete(FITS),
        help="Images of another size: stretch them whole, or crop the middle. Maps have the image's own size.",
    ),
]  # fmt: skip
Kinds = Annotated[
    list[str] | None,
    typer.Option(
        metavar="KINDS", rich_help_panel=METHOD, autocompletion=complete(KINDS),
        help=f"Maps to draw, the first ranks the images: {', '.join(KINDS)}. All by default, ranked by {RANKED[0]}.",
    ),
]  # fmt: skip
Method = Annotated[
    str, typer.Option(rich_help_panel=METHOD, autocompletion=complete(methods()), help=f"{', '.join(methods())}.")
]
Option = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME=VALUE", rich_help_panel=METHOD, help="Any other option of the method, e.g. steps=50."),
]
Memory = Annotated[str, typer.Option(rich_help_panel=RUNNING, help="What attribution may use, like 512MiB.")]
Batch = Annotated[int, typer.Option(min=1, rich_help_panel=RUNNING, help="Images at a time.")]
Threads = Annotated[
    int | None, typer.Option(min=1, rich_help_panel=RUNNING, help="torch's, by default as many as cores.")
]
Device = Annotated[
    str | None, typer.Option(rich_help_panel=RUNNING, help="cpu (the default) or cuda (where a Ray cluster has GPUs).")
]
Fresh = Annotated[bool, typer.Option("--fresh", rich_help_panel=RUNNING, help="Delete OUT's earlier results first.")]
Json = Annotated[bool, typer.Option("--json", rich_help_panel=RUNNING, help="Print JSON instead of tables.")]


def posterior_settings(
    run: str | None,
    factory: str | None,
    weights: list[str] | None,
    mean: list[str] | None,
    std: list[str] | None,
) -> dict[str, Any]:
    """The posterior that was named; a factory is looked for in the current folder too."""
    if run is None and factory is None:
        raise OptionError("No posterior was named. Give a run's folder, `demo`, or --posterior module:factory.")
    if run == "demo" and factory is not None:
        raise OptionError(f"`demo` brings its own networks. Leave out one of the two: demo, or --posterior {factory}.")
    if weights and factory is None:
        raise OptionError("--weights was given without --posterior, the function that builds a network for them.")
    scale = {"mean": joined_numbers(mean), "std": joined_numbers(std)}
    extra = {name: value for name, value in scale.items() if value is not None}
    if factory is not None:
        if ":" not in factory:
            raise OptionError(f"--posterior is {factory!r}; expected package.module:factory.")
        if os.getcwd() not in sys.path:
            sys.path.insert(0, os.getcwd())
    if run is not None:
        folder = Path(run)
        where = str(folder.resolve()) if run != "demo" and folder.is_dir() else run
        return {"run": where, **({} if factory is None else {"architecture": factory}), **extra}
    return {"factory": factory, "weights": [str(Path(file).resolve()) for file in weights or ()], **extra}


def image_settings(run: str | None, images: list[str] | None, dataset: str | None) -> dict[str, Any]:
    """The images that were named; the embedded ones for the embedded posterior."""
    if images and dataset:
        raise OptionError("Both --images and --dataset were given; give one of them.")
    if dataset:
        return {"dataset": dataset}
    if images:
        return {"files": images}
    if run == "demo":
        return {"dataset": "demo"}
    raise OptionError("No images were named. Give --images DIR or files, or --dataset NAME[:split].")


def method_options(more: list[str] | None, **named: Any) -> dict[str, Any]:
    """The options that were given, by name; the rest are the method's own defaults."""
    return {name: value for name, value in named.items() if value is not None} | parse_options(more or ())


def chosen_kinds(kinds: list[str] | None) -> tuple[str, ...]:
    return tuple(words(kinds)) or RANKED


def words(values: list[str] | None) -> list[str]:
    """Words separated by commas or given one by one."""
    return [word.strip() for value in values or () for word in value.split(",") if word.strip()]


def joined_numbers(values: list[str] | None) -> list[float] | None:
    found = numbers(",".join(values), float) if values else None
    return None if found is None else list(found)


def shape(text: str | None) -> tuple[int, ...] | None:
    found = numbers(text, int)
    return None if found is None else tuple(int(n) for n in found)
