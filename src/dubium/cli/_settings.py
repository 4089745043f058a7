"""From words of the command line to settings of a run. No torch here: typing mistakes are answered at once."""

import os
import re
import sys
from collections.abc import Sequence
from glob import glob
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

from dubium.choices import DATASETS, DEMO, SPLITS
from dubium.errors import OptionError
from dubium.option_text import parse_options, split_outside_brackets

N = TypeVar("N", int, float)
SEVERAL = "Several options of a method are separated by colons: mine:squares:power=3:patch=4."


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
    `--posterior module:factory --weights a.pt b.pt`; `module:factory@folder` names a saved posterior and its code. An
    output that is a number is an index. Weight files may be separated by commas, or be patterns in quotes.
    """
    for name in (run, factory):
        refuse_file_of_code(name or "")
        refuse_misspelt_code(name or "")
    files = (factory or "").partition("@")[2]
    if files and (run is None or Path(run).resolve() == Path(files).resolve()):
        run, factory = factory, None
    if run is not None and (is_factory(run) or (files and factory)):
        if factory is not None:
            raise OptionError(
                f"The networks are named twice: {run}, and --posterior {factory}. Leave out one of the two."
            )
        factory, _, files = run.partition("@")
        if files and weights:
            raise OptionError(f"{run} names its weight files already; leave out --weights, or what follows the @.")
        run, weights = None, weight_files(files) if files else weights
        if weights and len(weights) == 1 and Path(weights[0]).is_dir():
            run, weights = weights[0], None
    weights = [file for word in weights or () for file in ([word] if Path(word).exists() else weight_files(word))]
    if run is None and factory is not None and ":" not in factory and Path(factory).is_dir():
        run, factory = factory, None  # a saved posterior is named so, too
    if run is None and factory is None:
        raise OptionError(
            f"No posterior was named. Give a run's folder, `{DEMO}`, or module:factory@a.pt,b.pt, before the options: "
            "a word behind --images, --weights, --mean or --std is taken as one of theirs."
        )
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
    return {"factory": factory, "weights": [str(Path(file).resolve()) for file in weights], **given}


def refuse_file_of_code(text: str) -> None:
    """Refuse code that is named by its file, `mine.py:function`, and say how it is named."""
    if found := re.fullmatch(r"(?P<folder>.*/)?(?P<module>\w+)\.py(:(?P<rest>.+))?", text):
        where = f" in {found['folder']}" if found["folder"] else ""
        rest = found["rest"] or "function"
        raise OptionError(
            f"{text} names a file of code. Name its module, as Python imports it{where}, and a function: "
            f"{found['module']}:{rest}."
        )


def refuse_misspelt_code(text: str) -> None:
    """Refuse what is nearly `module:factory@files`: no file behind the @, slashes for dots, a colon too many."""
    found = re.fullmatch(r"(?P<module>[\w./]*\w):(?P<name>\w[\w.]*):?(@(?P<files>.*))?", text)
    if found and not is_factory(text) and not Path(text).exists() and not Path(text.partition(":")[0]).is_file():
        module = found["module"].strip("./").replace("/", ".")
        raise OptionError(
            f"{text} is no folder, and looks like code, which is named as Python imports it, {module}:{found['name']}. "
            f"Weight files, where it needs them, follow an @: {module}:{found['name']}@{found['files'] or 'a.pt,b.pt'}."
        )


def is_factory(text: str) -> bool:
    """Whether a posterior's name is `module:factory`, with or without `@` and weight files, and no folder."""
    is_file = Path(text).exists() or Path(text.partition(":")[0]).is_file()  # or a file's split: images.npz:test
    return re.fullmatch(r"[\w.]+:[\w.]+(@.+)?", text) is not None and not is_file


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


def image_settings(
    run: str | None, images: list[str] | None, dataset: str | None, *, takes_files: bool = True
) -> dict[str, Any]:
    """`images` of `dubium.run.Settings`; `takes_files` says whether the command has `--images` for them."""
    if images and dataset:
        raise OptionError("Both --images and --dataset were given; give one of them.")
    if images:
        return {"files": images}
    refuse_file_of_code(dataset or "")
    if dataset and is_factory(dataset) and dataset.partition(":")[0] not in (*DATASETS, DEMO):
        search_working_folder()
        module, _, name = dataset.partition(":")
        is_split = name in SPLITS and find_spec(module.partition(".")[0]) is None  # of a name that is misspelt
        is_folder = Path(module).is_dir() and not any(Path(module).glob("*.py"))  # which Python takes for a package
        return {"dataset" if is_split or is_folder else "factory": dataset}
    if dataset or run == DEMO:  # the embedded posterior brings its own images
        return {"dataset": dataset or DEMO}
    ways = "--images DIR or files, or --dataset NAME[:split]" if takes_files else "--dataset NAME[:split] or a folder"
    raise OptionError(f"No images were named. Give {ways}.")


def method_options(method: str, texts: list[str] | None, **named: Any) -> dict[str, Any]:
    """The method's options that were given: as NAME=VALUE, or by an option of their own."""
    check_option_texts(texts or ())
    options = {name: value for name, value in named.items() if value is not None}
    found = parse_options(texts or (), method)
    for name in options.keys() & found.keys():
        raise OptionError(f"{name} is given twice: by --{name}, and as {name}={found[name]}. Give it once.")
    return options | found


def check_option_texts(texts: Sequence[str]) -> None:
    """Refuse a value that has another option in it."""
    for text in texts:
        if any(re.match(r"\s*[A-Za-z_]\w*=", part) for part in split_outside_brackets(text, ",")[1:]):
            raise OptionError(f"The option is {text!r}. {SEVERAL} Or give --option once for each.")


def method_texts(values: list[str] | str | None) -> list[str]:
    """Methods separated by commas or given one by one; commas in brackets belong to an option."""
    given = [values] if isinstance(values, str) else values or ()
    return [text.strip() for value in given for text in split_outside_brackets(value, ",") if text.strip()]


def search_working_folder() -> None:
    """Let Python import modules of the current folder, as `python -m` does."""
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())


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
