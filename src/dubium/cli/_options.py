"""Options that several commands have; `_settings` makes settings of a run of them."""

import re
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from dubium.choices import DATASETS, DEMO, FITS, INTERPOLATIONS, RANKING
from dubium.class_names import check_class_names
from dubium.cli._settings import (
    SEVERAL,
    check_option_texts,
    method_texts,
    refuse_file_of_code,
    search_working_folder,
    split_words,
)
from dubium.errors import OptionError, UnknownNameError, lookup
from dubium.kinds import KINDS
from dubium.option_text import split_method
from dubium.registry import method_names

MANY = ("--images", "--weights", "--kinds", "--mean", "--std", "--methods", "--weights-b", "--mean-b", "--std-b")
WEIGHT_FILES = (".pt", ".pth", ".safetensors")
CHANNELS = ("--mean", "--std", "--mean-b", "--std-b")
POSTERIOR, IMAGES, METHOD, RUNNING = "Posterior", "Images", "Method", "Running"


class ManyValues(TyperCommand):
    """Lets some options take all the words up to the next option, as a shell's `--images *.png` needs."""

    many: Sequence[str] = MANY

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        refuse_second_channels(args)
        try:
            return super().parse_args(ctx, repeat_option_names(args, self.many))
        except Exception as error:
            if "extra argument" in str(error):
                refuse_weight_files(args)
            raise


class ManyWeights(ManyValues):
    """The same for the options that name networks alone: `--methods` is one word, which RUN may follow."""

    many = ("--weights", "--mean", "--std")


def refuse_weight_files(args: Sequence[str]) -> None:
    """Refuse weight files that stand where a posterior is named; of other words typer says that they are too many."""
    files = [arg for arg in args if arg.endswith(WEIGHT_FILES)]
    if len(files) > 1:
        raise OptionError(
            f"{' '.join(files)} are weight files, and need the code that builds the network: module:function"
            f"@{','.join(files)}, or --posterior module:function --weights {' '.join(files)}."
        )


def refuse_second_channels(args: Sequence[str]) -> None:
    """Refuse a mean or std that is given twice: numbers of both would be those of more channels."""
    given = [arg.partition("=")[0] for arg in args]
    for name in CHANNELS:
        if (count := given.count(name)) > 1:
            raise OptionError(
                f"{name} is given {count} times. Give it once, with a number for each channel: {name} .5,.4,.3."
            )


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


def check_names_text(text: str | None) -> str | None:
    """A callback of an option that takes names of classes: the name of a file is none of them."""
    if text is not None and len(names := split_words([text])) < 2:
        raise OptionError(
            f"--names is {text!r}; the names of all classes are needed, in the order of the networks' outputs, with "
            "commas between them: --names cat,dog. Of a file with a name in each line: "
            '--names "$(paste -sd, classes.txt)".'
        )
    return text if text is None else ",".join(check_class_names(names, "--names"))


Names = Annotated[
    str | None,
    typer.Option(
        metavar="A,B,...", rich_help_panel=POSTERIOR, callback=check_names_text, help="Of the classes, if not known."
    ),
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
        help="Images of another size: stretch them whole (the default), or crop the middle (with --resize).",
    ),
]  # fmt: skip
Resize = Annotated[
    int | None,
    typer.Option(
        min=1, metavar="PIXELS", rich_help_panel=IMAGES,
        help="An image's shorter side before its middle is taken: 256 for the usual 224. Implies --fit crop.",
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


def check_method_text(text: str) -> str:
    """A callback of an option that takes a method: a typing mistake is an error at once.

    A function of the user's is looked for in the current folder too.
    """
    refuse_file_of_code(text)
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
