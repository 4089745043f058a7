"""Options at the public edge, and the words that messages have in common."""

import re
import sys
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from inspect import signature
from operator import index
from typing import Any

import numpy as np
from torch import Tensor

from dubium.errors import DubiumWarning, OptionError, UnknownNameError, unknown_name_text
from dubium.types import KINDS, Kind

UNITS = {"KB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "B": 1, "": 1}


def describe_tensor(value: object) -> str:
    """The shape of a tensor, with its type if that is complex; of anything else its class."""
    if not isinstance(value, Tensor):
        return type(value).__name__
    return f"{value.dtype} {tuple(value.shape)}" if value.is_complex() else f"{tuple(value.shape)}"


def check_kinds(kinds: object) -> tuple[Kind, ...]:
    chosen: list[object] = (
        [kinds] if isinstance(kinds, str) else list(kinds) if isinstance(kinds, Iterable) else [kinds]
    )
    for kind in chosen:
        if not isinstance(kind, str) or kind not in KINDS:
            raise UnknownNameError(unknown_name_text("kind of uncertainty", kind, KINDS))
    if not chosen:
        raise OptionError(f"kinds is empty; give at least one of {', '.join(KINDS)}.")
    return tuple(kind for kind in dict.fromkeys(chosen) if kind in KINDS)


def parse_memory(memory: int | str) -> int:
    """Bytes, from a number or from text such as "512MiB".

    >>> parse_memory("2KiB"), parse_memory("512"), parse_memory(512)
    (2048, 512, 512)
    """
    try:
        if isinstance(memory, str):
            unit = next(unit for unit in UNITS if memory.strip().endswith(unit))
            limit = int(float(memory.strip().removesuffix(unit)) * UNITS[unit])
        else:
            limit = int(memory)
    except (ValueError, StopIteration, TypeError, OverflowError):
        limit = 0
    if limit <= 0:
        raise OptionError(f"memory={memory!r} is not a size. Give a positive number of bytes, or text like '512MiB'.")
    return limit


def check_seed(seed: object) -> int:
    """A seed as torch's generators take it."""
    number = whole_number(seed)
    if number is None or not -(2**63) <= number < 2**64:
        raise OptionError(f"seed={seed!r}; a whole number from -2**63 to 2**64 - 1 is needed.")
    return number


def check_progress(progress: object, *arguments: str) -> None:
    """Raise an error unless progress is None, or a function of so many arguments; their names say what they are."""
    if progress is None:
        return
    needed = f"a function of ({', '.join(arguments)}) is needed"
    if not callable(progress):
        raise OptionError(f"progress={progress!r}; {needed}.")
    try:
        known = signature(progress)
    except (TypeError, ValueError):  # a function of C's does not show how it is called
        return
    try:
        known.bind(*arguments)
    except TypeError as error:
        raise OptionError(
            f"progress is a function of {known}, which cannot be called so: {error}; {needed}."
        ) from error


def whole_number(value: Any) -> int | None:
    """Python's number of anything that is a whole one, arrays and tensors among it; None of others.

    >>> import torch
    >>> whole_number(np.int64(3)), whole_number(torch.tensor(3)), whole_number(torch.tensor(3.0)), whole_number(True)
    (3, 3, None, None)
    """
    try:
        return None if isinstance(value, bool) else index(value)
    except TypeError:
        return None


def check_number(
    name: str,
    value: object,
    *,
    above: float | int = 0,
    most: float | int = sys.float_info.max,
    whole: bool = False,
    words: Sequence[str] = (),
) -> None:
    """Raise an error unless a number is larger than `above`, and `most` at most; or one of some words."""
    if isinstance(value, str) and value in words:
        return
    value = plain_number(value)
    number_types = int if whole else int | float
    if isinstance(value, bool) or not isinstance(value, number_types) or not above < value <= most:
        noun = "a whole number" if whole else "a number"
        others = ", ".join(map(repr, words)) + " or " if words else ""
        limit = f", {most:,} at most" if most < sys.float_info.max else ""
        raise OptionError(f"{name}={value!r}; {others}{noun} greater than {above} is needed{limit}.")


def plain_number(value: Any) -> Any:
    """A NumPy number as Python's, which JSON can hold, also in a tuple; anything else as it is.

    >>> plain_number(np.int64(3)), plain_number((np.int64(3), 32)), plain_number("auto")
    (3, (3, 32), 'auto')
    """
    if type(value) is tuple:
        return tuple(map(plain_number, value))
    return value.item() if isinstance(value, np.number | np.bool_) else value


def count_text(count: int, noun: str) -> str:
    return f"{count:,} {noun}" + "s" * (count != 1)


def skipped_note(reasons: Sequence[str]) -> str:
    """How many files could not be read, and why; "" where there is none."""
    count, more = len(reasons), f" And {len(reasons) - 3:,} more." * (len(reasons) > 3)
    return f"{count_text(count, 'file')} could not be read: {' '.join(reasons[:3])}{more}" if count else ""


def list_some(items: Sequence[object], most: int = 5) -> str:
    return ", ".join(map(str, items[:most])) + (", ..." if len(items) > most else "")


@contextmanager
def without_repeated_warnings() -> Iterator[None]:
    """Within, a warning that differs from an earlier one in nothing but its numbers is not said again."""
    said, show = set[str](), warnings.showwarning

    def show_new(message: Warning | str, *place: Any, **where: Any) -> None:
        words = re.sub(r"\S*\d\S*", "", str(message))
        if words not in said:
            said.add(words)
            show(message, *place, **where)

    with warnings.catch_warnings():
        warnings.showwarning = show_new
        yield


def warn_user(message: str) -> None:
    """A warning that names the line of the user's own code, however deep in dubium, torch or contextlib it arose."""
    frame, level = sys._getframe(1), 2
    inside = ("dubium", "torch", "contextlib", "jaxtyping", "beartype")
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).partition(".")[0] in inside:
        frame, level = frame.f_back, level + 1
    warnings.warn(message, DubiumWarning, stacklevel=level)
