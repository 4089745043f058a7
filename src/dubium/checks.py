"""Checks at the public edge: everything that would otherwise become a silent mistake, or an error far away."""

import sys
import warnings
from collections.abc import Iterable, Mapping, Sequence
from operator import index
from pathlib import Path
from typing import Any, NoReturn, SupportsIndex

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from dubium.errors import (
    ImagesError,
    ImagesTypeError,
    OptionError,
    OutputError,
    UnknownNameError,
    unknown,
)
from dubium.types import KINDS, Kind

BYTES_FROM = 20  # a larger value is neither in [0, 1] nor in an image with mean 0 and standard deviation 1
LOGIT_MARGIN = 100  # between logits: no loss asks for as much
UNITS = {"KB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "B": 1}
KNOWN_SUFFIXES = (
    ".safetensors", ".npz", ".npy", ".pt", ".pth", ".pkl", ".json", ".csv", ".parquet", ".h5", ".mat", ".zip", ".txt",
    ".png", ".jpg", ".jpeg", ".pdf", ".svg", ".html",
)  # fmt: skip
"""Suffixes that people take for a kind of file."""


def check_images(x: object) -> None:
    if isinstance(x, Mapping):
        raise ImagesTypeError(
            f"x is a {type(x).__name__} of {', '.join(map(str, x))}, not a torch tensor. Give the images alone: "
            "x['pixel_values'], of processor(images, return_tensors='pt')."
        )
    if not isinstance(x, Tensor):
        is_dataset = isinstance(x, DataLoader | Dataset)
        advice = (
            "Give it to dubium.explain_dataset" if is_dataset else "Convert it: torch.as_tensor(x, dtype=torch.float32)"
        )
        raise ImagesTypeError(f"x is a {type(x).__name__}, not a torch tensor. {advice}.")
    if x.layout != torch.strided or x.is_meta:
        kind, advice = ("without values, on the meta device", "") if x.is_meta else (x.layout, ": x.to_dense()")
        raise ImagesTypeError(f"x is a tensor {kind}; a dense tensor with values is needed{advice}.")
    if not x.is_floating_point():
        raise ImagesTypeError(
            f"x has dtype {x.dtype}; floating-point images are needed. For pixels in 0..255: x.float() / 255."
        )
    if x.ndim != 4:
        hint = " One image (C, H, W): x[None]. Grey images (B, H, W): x[:, None]." if x.ndim == 3 else ""
        raise ImagesError(
            f"x has shape {tuple(x.shape)}; four axes (B, C, H, W) are needed.{hint} Signals (B, C, L), tables and "
            "volumes are not supported yet."
        )
    if 0 in x.shape[1:]:
        raise ImagesError(f"x has shape {tuple(x.shape)}: its images have no pixels.")
    finite = x.isfinite().flatten(1).all(1)
    if not finite.all():
        bad = (~finite).nonzero().flatten().tolist()
        raise ImagesError(
            f"x has NaN or infinity in {count_text(len(bad), 'image')} of {len(x)}: index {list_some(bad)}. "
            "Remove or repair those images first."
        )


def refuse_maps(maps: Tensor, name: str) -> NoReturn:
    """Maps (B, ...) of which some are not numbers: autograd gives NaN where an operation has no finite slope."""
    bad = (~maps.isfinite().flatten(1).all(1)).nonzero().flatten().tolist()
    raise OutputError(
        f"The maps of {name} are NaN or infinite for image {list_some(bad)}: a gradient in the networks is, as of "
        "sqrt, norm or a division at 0. Give that operation a finite slope (an epsilon), or leave those images out."
    )


def warn_of_bytes(x: Tensor, logits: Tensor) -> None:
    """Warn of pixels up to 255 given to networks that want up to 1, whose logits (S, B, K) are then far too large.

    On images as they were trained with, networks have a median margin of about 10 between their two likeliest classes;
    on 255 times these, of about 1000.
    """
    if len(x) == 0 or not (x.min() >= 0 and BYTES_FROM < x.max() <= 255):
        return
    best, second = logits.topk(2, -1).values.unbind(-1)
    if (best - second).median() > LOGIT_MARGIN:
        warn_user(
            f"x has values from {float(x.min()):g} to {float(x.max()):g}, and the networks' logits are huge: in half "
            f"of the predictions the likeliest class is ahead by more than {LOGIT_MARGIN}. Were the networks trained "
            "with images from 0 to 1? Then give x / 255."
        )


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
        if kind not in KINDS:
            raise UnknownNameError(unknown("kind of uncertainty", kind, KINDS))
    if not chosen:
        raise OptionError(f"kinds is empty; give at least one of {', '.join(KINDS)}.")
    return tuple(kind for kind in dict.fromkeys(chosen) if kind in KINDS)


def parse_memory(memory: int | str) -> int:
    """Bytes, from a number or from text such as "512MiB"."""
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
    if isinstance(seed, bool) or not isinstance(seed, SupportsIndex) or not -(2**63) <= index(seed) < 2**64:
        raise OptionError(f"seed={seed!r}; a whole number from -2**63 to 2**64 - 1 is needed.")
    return index(seed)


def check_number(
    name: str, value: object, *, above: float | int = 0, whole: bool = False, words: Sequence[str] = ()
) -> None:
    """Whether a number is larger than `above`, and finite; or one of some words."""
    if isinstance(value, str) and value in words:
        return
    value = plain_number(value)
    number_types = int if whole else int | float
    if isinstance(value, bool) or not isinstance(value, number_types) or not above < value < float("inf"):
        noun = "a whole number" if whole else "a number"
        others = ", ".join(map(repr, words)) + " or " if words else ""
        raise OptionError(f"{name}={value!r}; {others}{noun} greater than {above} is needed.")


def plain_number(value: Any) -> Any:
    """A NumPy number as Python's, which JSON can hold, also in a tuple; anything else as it is.

    >>> plain_number(np.int64(3)), plain_number((np.int64(3), 32)), plain_number("auto")
    (3, (3, 32), 'auto')
    """
    if type(value) is tuple:
        return tuple(map(plain_number, value))
    return value.item() if isinstance(value, np.number) else value


def refuse_other_suffix(path: Path | str, suffix: str, what: str) -> None:
    """Refuse a file's name whose end promises another kind of file than what is written; other ends are free.

    Args:
        suffix: the right one; "" for a folder.
        what: the sentence about what is written.
    """
    if (given := Path(path).suffix).lower() in KNOWN_SUFFIXES and given.lower() != suffix:
        raise OptionError(f"{path} ends with {given}, but {what}. Name it {Path(path).with_suffix(suffix)}.")


def check_folder_name(out: Path | str) -> Path:
    """A folder to write to; an empty name would be the current folder."""
    if not str(out).strip():
        raise OptionError(f"The folder to write to is called {str(out)!r}. Give it a name; '.' is the current folder.")
    return Path(out)


def count_text(count: int, noun: str) -> str:
    return f"{count:,} {noun}" + "s" * (count != 1)


def list_some(items: Sequence[object], most: int = 5) -> str:
    return ", ".join(map(str, items[:most])) + (", ..." if len(items) > most else "")


def warn_user(message: str) -> None:
    """A warning that names the line of the user's own code, however deep in dubium, torch or contextlib it arose."""
    frame, level = sys._getframe(1), 2
    inside = ("dubium", "torch", "contextlib", "jaxtyping", "beartype")
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).partition(".")[0] in inside:
        frame, level = frame.f_back, level + 1
    warnings.warn(message, stacklevel=level)
