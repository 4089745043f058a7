"""Options that several commands have, and how they become settings of a run."""

import os
import re
import sys
from collections.abc import Callable, Sequence
from glob import glob
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
from typer.core import TyperCommand

from dubium.choices import DATASETS, DEMO, FITS, INTERPOLATIONS, RANKING
from dubium.errors import OptionError, UnknownNameError, lookup
from dubium.kinds import KINDS
from dubium.option_text import parse_options, split_method, split_outside_brackets
from dubium.registry import method_names

N = TypeVar("N", int, float)
MANY = ("--images", "--weights", "--kinds", "--mean", "--std", "--methods", "--weights-b", "--mean-b", "--std-b")
POSTERIOR, IMAGES, METHOD, RUNNING = "Posterior", "Images", "Method", "Running"


class ManyValues(TyperCommand):
    """Lets some options take all the words up to the next option, as a shell's `--images *.png` needs."""

    many: Sequence[str] = MANY

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, repeat_option_names(args, self.many))


class ManyWeights(ManyValues):
    """The same for the options that name networks alone: `--methods` is one word, which RUN may follow."""

    many = ("--weights", "--mean", "--std")


def repeat_option_names(args: Sequence[str], many: Sequence[str] = MANY) -> list[str]:
    """`--images a b` as `--images a --images b`."""
    repeated: list[str] = []
    option, first = "", False
    for arg in args:
        is_option = arg.startswith("-") and not re.fullmatch(r"-[\d.,]+", arg)
        if option and not first and not is_option:
            repeated.append(option)
        elif is_option:
            option = arg if arg in many else ""
        first = is_option and bool(option)
        repeated.append(arg)
    return repeated


def completion(names: Sequence[str]) -> Callable[[str], list[str]]:
    """For the shell: the names that begin with what was typed."""
    return lambda incomplete: [name for name in names if name.startswith(incomplete)]


def one_of(noun: str, names: Sequence[str]) -> dict[str, Any]:
    """What an option needs that takes one of these names, or several: completion, and an error for any other word."""

    def check_names(value: Any) -> Any:
        for word in split_words([value] if isinstance(value, str) else value):
            lookup(noun, dict.fromkeys(names), word)
        return value

    return {"callback": check_names, "autocompletion": completion(names)}


PosteriorName = Annotated[
    str | None,
    typer.Argument(
        metavar="[RUN]",
        help=f"A trained run's folder, a named posterior, `{DEMO}`, or module:factory@a.pt,b.pt of your own (--weights "
        "may name the files instead).",
    ),
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
        "--dataset", metavar="NAME[:SPLIT]", rich_help_panel=IMAGES, autocompletion=completion([*DATASETS, DEMO]),
        help=f"{', '.join(DATASETS)}, {DEMO}, an array file, or module:factory of a torch dataset.",
    ),
]  # fmt: skip
Fit = Annotated[
    str | None,
    typer.Option(
        rich_help_panel=IMAGES, **one_of("fit", FITS),
        help="Images of another size: stretch them whole (the default), or crop the middle.",
    ),
]  # fmt: skip
Resize = Annotated[
    int | None,
    typer.Option(
        min=1, metavar="PIXELS", rich_help_panel=IMAGES,
        help="An image's shorter side before its middle is taken: 256 for the usual 224.",
    ),
]  # fmt: skip
Interpolation = Annotated[
    str | None,
    typer.Option(
        rich_help_panel=IMAGES, **one_of("interpolation", INTERPOLATIONS),
        help=f"How images are resized: {', '.join(INTERPOLATIONS)}.",
    ),
]  # fmt: skip
DataConfig = Annotated[
    str | None,
    typer.Option(
        metavar="model|FILE", rich_help_panel=IMAGES,
        help="Size, crop, interpolation, mean and std as timm has them: `model` for what the networks carry, or a JSON "
        "file. Options win.",
    ),
]  # fmt: skip
Kinds = Annotated[
    list[str] | None,
    typer.Option(
        metavar="KINDS", rich_help_panel=METHOD, **one_of("kind of uncertainty", KINDS),
        help=f"Maps to draw, the first ranks the images: {', '.join(KINDS)}. All by default, ranked by {RANKING[0]}.",
    ),
]  # fmt: skip
NetworkOutput = Annotated[
    str | None,
    typer.Option(
        metavar="PART", rich_help_panel=POSTERIOR,
        help="Of the networks' output: a key, attribute or index; `probabilities` or `sigmoid` if it is no logits.",
    ),
]  # fmt: skip


SEVERAL = "Several options of a method are separated by colons: mine:squares:power=3:patch=4."


def check_option_texts(texts: Sequence[str]) -> None:
    """Refuse a value that has another option in it."""
    for text in texts:
        if any(re.match(r"\s*[A-Za-z_]\w*=", part) for part in split_outside_brackets(text, ",")[1:]):
            raise OptionError(f"The option is {text!r}. {SEVERAL} Or give --option once for each.")


def check_method_text(text: str) -> str:
    """A callback of an option that takes a method: a typing mistake is an error at once.

    A function of the user's is looked for in the current folder too.
    """
    name, options = split_method(text)
    check_option_texts(options)
    if "=" in name:
        raise OptionError(f"{text!r} is an option, where a method is expected. {SEVERAL}")
    if ":" not in name:
        try:
            lookup("method", dict.fromkeys(method_names()), name)
        except UnknownNameError as error:
            raise UnknownNameError(f"{error} A function of your own is MODULE:FUNCTION.") from error
    else:
        search_working_folder()
    return text


def check_method_texts(values: list[str] | str | None) -> list[str] | str | None:
    """The same for an option that takes several."""
    for text in method_texts(values):
        check_method_text(text)
    return values


Method = Annotated[
    str,
    typer.Option(
        metavar="METHOD", rich_help_panel=METHOD, callback=check_method_text, autocompletion=completion(method_names()),
        help=f"{', '.join(method_names())}; or package.module:name of a function of yours, or of a class of Captum's. "
        "Options may follow, separated by colons: ig:steps=50, mine:squares:power=3:patch=4.",
    ),
]  # fmt: skip
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
    factory: str | None = None,
    weights: list[str] | None = None,
    mean: list[str] | None = None,
    std: list[str] | None = None,
    output: str | None = None,
    data_config: str | None = None,
) -> dict[str, Any]:
    """`posterior` of `dubium.run.Settings`; a factory is looked for in the current folder too.

    `module:factory@a.pt,b.pt` as the run, or `module:factory` with `--weights a.pt b.pt`, is another way to say
    `--posterior module:factory --weights a.pt b.pt`. An output that is a number is an index.
    """
    if run is not None and is_factory(run):
        if factory is not None:
            raise OptionError(
                f"The networks are named twice: {run}, and --posterior {factory}. Leave out one of the two."
            )
        factory, _, files = run.partition("@")
        if files and weights:
            raise OptionError(f"{run} names its weight files already; leave out --weights, or what follows the @.")
        run, weights = None, weight_files(files) if files else weights
    if run is None and factory is None:
        raise OptionError(f"No posterior was named. Give a run's folder, `{DEMO}`, or module:factory@a.pt,b.pt.")
    if run == DEMO and factory is not None:
        raise OptionError(f"`{DEMO}` brings its own networks. Leave out one of the two: it, or --posterior {factory}.")
    if run is not None and weights:
        alone = "" if factory else ", and --weights was given without --posterior, the function that builds a network"
        raise OptionError(f"{run} has its own weights{alone}. Leave out one of the two: it, or --weights.")
    named = {"mean": parse_numbers(mean, float), "std": parse_numbers(std, float)}
    given: dict[str, Any] = {name: list(values) for name, values in named.items() if values is not None}
    if output is not None:
        given["output"] = int(output) if re.fullmatch(r"-?\d+", output) else output
    if data_config is not None:
        given["data_config"] = data_config if data_config == "model" else str(Path(data_config).resolve())
    if factory is not None:
        if ":" not in factory:
            raise OptionError(f"--posterior is {factory!r}; expected package.module:factory.")
        search_working_folder()
    if run is not None:
        where = str(Path(run).resolve()) if run != DEMO and Path(run).is_dir() else run
        return {"run": where, **({} if factory is None else {"architecture": factory}), **given}
    return {"factory": factory, "weights": [str(Path(file).resolve()) for file in weights or ()], **given}


def is_factory(text: str) -> bool:
    """Whether a posterior's name is `module:factory`, with or without `@` and weight files, and no folder."""
    return re.fullmatch(r"[\w.]+:[\w.]+(@.+)?", text) is not None and not Path(text).exists()


def is_bare_factory(text: str) -> bool:
    """Whether it is `module:factory` without weight files."""
    return is_factory(text) and "@" not in text


def weight_files(text: str) -> list[str]:
    """Files separated by commas; a pattern stands for the files that it matches, in order."""
    found: list[str] = []
    for word in split_words([text]):
        matches = sorted(glob(word)) if any(sign in word for sign in "*?[") else [word]
        if not matches:
            raise OptionError(f"No file is called like {word!r}.")
        found += matches
    return found


def search_working_folder() -> None:
    """Let Python import modules of the current folder, as `python -m` does."""
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())


def method_texts(values: list[str] | str | None) -> list[str]:
    """Methods separated by commas or given one by one; commas in brackets belong to an option."""
    given = [values] if isinstance(values, str) else values or ()
    return [text.strip() for value in given for text in split_outside_brackets(value, ",") if text.strip()]


def image_settings(run: str | None, images: list[str] | None, dataset: str | None) -> dict[str, Any]:
    """`images` of `dubium.run.Settings`."""
    if images and dataset:
        raise OptionError("Both --images and --dataset were given; give one of them.")
    if images:
        return {"files": images}
    if dataset and is_factory(dataset) and dataset.partition(":")[0] not in (*DATASETS, DEMO):
        search_working_folder()
        return {"factory": dataset}
    if named := dataset_for(run, dataset):
        return {"dataset": named}
    raise OptionError("No images were named. Give --images DIR or files, or --dataset NAME[:split].")


def dataset_for(run: str | None, dataset: str | None) -> str | None:
    """The dataset that was named; the embedded posterior brings its own images."""
    return dataset or (DEMO if run == DEMO else None)


def method_options(texts: list[str] | None, **named: Any) -> dict[str, Any]:
    """The method's options that were given: as NAME=VALUE, or by an option of their own."""
    check_option_texts(texts or ())
    return {name: value for name, value in named.items() if value is not None} | parse_options(texts or ())


def split_words(values: list[str] | None) -> tuple[str, ...]:
    """Words separated by commas or given one by one."""
    return tuple(word.strip() for value in values or () for word in value.split(",") if word.strip())


def parse_numbers(values: list[str] | str | None, number: type[N]) -> tuple[N, ...] | None:
    """Numbers separated by commas or given one by one; None where the option was left out."""
    if values is None or values == []:
        return None
    words = split_words([values] if isinstance(values, str) else values)
    try:
        return tuple(number(word) for word in words)
    except ValueError as error:
        raise OptionError(f"{','.join(words)!r} is not a list of numbers such as 1,2,3.") from error
