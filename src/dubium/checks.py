"""Checks at the public edge: everything that would otherwise become a silent mistake, or an error far away."""

import sys
import warnings
from collections.abc import Iterable, Mapping, Sequence
from operator import index
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from dubium.errors import (
    DubiumWarning,
    ImagesError,
    ImagesTypeError,
    OptionError,
    OutputError,
    UnknownNameError,
    unknown_name_text,
)
from dubium.types import KINDS, Kind

BYTES_FROM = 20  # a larger value is neither in [0, 1] nor in an image with mean 0 and standard deviation 1
LOGIT_MARGIN = 100  # between logits: no loss asks for as much
SAME = 1e-6  # of the largest logit: rounding, where one network is computed several times
AGREEMENT = "All networks give the same outputs"
"""How the warning of networks that are one begins."""
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
        raise ImagesTypeError(f"x is a {type(x).__name__}, not a torch tensor. {conversion_advice(x)}")
    if x.layout != torch.strided or x.is_meta:
        kind, advice = ("without values, on the meta device", "") if x.is_meta else (x.layout, ": x.to_dense()")
        raise ImagesTypeError(f"x is a tensor {kind}; a dense tensor with values is needed{advice}.")
    if not x.is_floating_point():
        where = " dubium.explain_dataset and dubium.evaluate take bytes as they are." if x.dtype == torch.uint8 else ""
        raise ImagesTypeError(
            f"x has dtype {x.dtype}; floating-point images are needed. For pixels from 0 to 255: x / 255.{where}"
        )
    if x.dtype not in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        raise ImagesTypeError(f"x has dtype {x.dtype}, in which networks do not compute. Convert it: x.float().")
    if x.ndim != 4:
        hint = " One image (C, H, W): x[None]. Grey images (B, H, W): x[:, None]." if x.ndim == 3 else ""
        raise ImagesError(
            f"x has shape {tuple(x.shape)}; four axes (B, C, H, W) are needed.{hint} Signals (B, C, L), tables and "
            "volumes are not supported yet."
        )
    if 0 in x.shape[1:]:
        raise ImagesError(f"x has shape {tuple(x.shape)}: its images have no pixels.")
    check_finite_images(x, "x has")


def check_finite_images(x: Tensor, subject: str) -> None:
    """Refuse NaN and infinity in images (N, ...), by their indices."""
    finite = x.isfinite().flatten(1).all(1)
    if not finite.all():
        bad = (~finite).nonzero().flatten().tolist()
        raise ImagesError(
            f"{subject} NaN or infinity in {count_text(len(bad), 'image')} of {len(x)}: index {list_some(bad)}. "
            "Remove or repair those images first."
        )


def conversion_advice(x: object) -> str:
    """How what is not a tensor becomes images, or where it belongs."""
    first = x[0] if isinstance(x, list | tuple) and x else x
    if isinstance(first, nn.Module):
        return "It has networks: are the arguments swapped? explain(posterior, x)."
    if isinstance(x, DataLoader | Dataset | str | Path):
        return "Give it to dubium.explain_dataset(posterior, x, 'doubts')."
    if type(first).__module__.startswith("PIL."):
        image = "x" if first is x else "image"
        differ = isinstance(x, list | tuple) and len({getattr(image, "size", None) for image in x}) > 1
        resized = ".resize((224, 224))" if differ else ""
        one = f"torch.as_tensor(numpy.array({image}.convert('RGB'){resized})).movedim(-1, 0)"
        lead = "The images differ in size; with the networks' own (width, height) for 224:" if differ else "Convert it:"
        return f"{lead} {one}[None] / 255." if first is x else f"{lead} torch.stack([{one} for image in x]) / 255."
    if isinstance(x, list | tuple) and is_labelled_batch(x):
        return (
            "It has images and labels: give x[0]. Labels are not used here; dubium.explain_dataset and dubium.evaluate "
            "take them."
        )
    if isinstance(first, Tensor):
        return "Make one batch of it: torch.stack(x), or torch.cat(x) of batches."
    if isinstance(x, np.ndarray) and x.dtype == np.uint8:
        return "Convert it: torch.as_tensor(x) / 255."
    return "Convert it: torch.as_tensor(x, dtype=torch.float32)."


def is_labelled_batch(x: Sequence[object]) -> bool:
    """Whether these are images (B, C, H, W) and a whole number for each, as a `DataLoader` gives them."""
    if len(x) != 2:
        return False
    images, labels = x
    if not isinstance(images, Tensor) or not isinstance(labels, Tensor):
        return False
    is_whole = not labels.is_floating_point() and not labels.is_complex()
    return images.ndim == 4 and images.is_floating_point() and labels.shape == images.shape[:1] and is_whole


def refuse_maps(maps: Tensor, name: str, *, is_users: bool = False) -> NoReturn:
    """Maps (B, ...) of which some are not numbers: autograd gives NaN where an operation has no finite slope.

    Args:
        is_users: whether a function of the user's made them.
    """
    bad = (~maps.isfinite().flatten(1).all(1)).nonzero().flatten().tolist()
    raise OutputError(
        f"The maps of {name} are NaN or infinite for image {list_some(bad)}: "
        f"{'your function returned such numbers, or ' * is_users}a gradient in the networks is, as of "
        "sqrt, norm or a division at 0. Give that operation a finite slope (an epsilon), or leave those images out."
    )


def warn_of_logits(x: Tensor, logits: Tensor, kinds: Sequence[Kind]) -> None:
    """Warn of logits (S, B, K) that show a mistake: in the images, or, if epistemic is asked for, in the networks.

    Pixels up to 255 given to networks that want up to 1 make logits far too large: on images as they were trained with,
    networks have a median margin of about 10 between their two likeliest classes; on 255 times these, of about 1000.
    Logits that are the same for all networks are one network's that is in the list several times.
    """
    if len(x) == 0:
        return
    if x.max() > BYTES_FROM and x.min() >= 0 and x.max() <= 255 and median_margin(logits) > LOGIT_MARGIN:
        warn_user(
            f"x has values from {float(x.min()):g} to {float(x.max()):g}, and the networks' logits are huge: in half "
            f"of the predictions the likeliest class is ahead by more than {LOGIT_MARGIN}. Were the networks trained "
            "with images from 0 to 1? Then give x / 255."
        )
    agree = "epistemic" in kinds and len(logits) > 1 and (logits - logits[:1]).abs().max() <= SAME * logits.abs().max()
    if agree:
        warn_user(
            f"{AGREEMENT} ({len(logits)} of them): nothing disagrees, so epistemic uncertainty is zero. Is one network "
            "in the list several times, or is one weight file loaded for all? Give networks with weights of their own."
        )


def median_margin(logits: Tensor) -> float:
    """Between the logits of the two likeliest classes, over all images and networks."""
    best, second = logits.topk(2, -1).values.unbind(-1)
    return float((best - second).median())


def check_is_tensor(output: object) -> None:
    """Raise an error unless a network puts out a tensor, where `output=` cannot choose a part of what it puts out."""
    if not isinstance(output, Tensor):
        raise OutputError(
            f"The network puts out a {type(output).__name__}; a tensor of logits (B, K) is needed. Wrap it in a module "
            "whose forward pass returns that: of Hugging Face's, network(x).logits."
        )


def check_input_shape(shape: Sequence[int]) -> tuple[int, int, int]:
    """The shape of one image; (H, W, C) is refused where it cannot be (C, H, W)."""
    if not isinstance(shape, tuple | list):
        raise OptionError(f"input_shape is {shape!r}; expected (channels, height, width).")
    if len(shape) != 3 or min(shape) < 1:
        raise OptionError(
            f"input_shape is {tuple(shape)}; channels, height and width are needed, such as (3, 224, 224)."
        )
    channels, height, width = shape
    if channels > 4 >= width:
        raise OptionError(
            f"input_shape is {tuple(shape)}: {channels} channels, {height} pixels high and {width} wide. Channels come "
            f"first: {width},{channels},{height}."
        )
    return channels, height, width


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
    number = whole_number(seed)
    if number is None or not -(2**63) <= number < 2**64:
        raise OptionError(f"seed={seed!r}; a whole number from -2**63 to 2**64 - 1 is needed.")
    return number


def whole_number(value: Any) -> int | None:
    """Python's number of anything that is a whole one, arrays and tensors among it; None of others.

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


def refuse_other_suffix(path: Path | str, suffix: str, what: str) -> None:
    """Refuse a file's name whose end promises another kind of file than what is written; other ends are free.

    Args:
        suffix: the right one; "" for a folder.
        what: the sentence about what is written.
    """
    if suffix and Path(path).is_dir():
        raise OptionError(f"{path} is a folder, but {what}. Name a file: {Path(path) / f'result{suffix}'}.")
    if (given := Path(path).suffix).lower() in KNOWN_SUFFIXES and given.lower() != suffix:
        raise OptionError(f"{path} ends with {given}, but {what}. Name it {Path(path).with_suffix(suffix)}.")


def check_folder_name(out: Path | str) -> Path:
    """A folder to write to; an empty name would be the current folder."""
    if not str(out).strip():
        raise OptionError(f"The folder to write to is called {str(out)!r}. Give it a name; '.' is the current folder.")
    return Path(out)


def count_text(count: int, noun: str) -> str:
    return f"{count:,} {noun}" + "s" * (count != 1)


def skipped_note(reasons: Sequence[str]) -> str:
    """How many files could not be read, and why; "" where there is none."""
    count, more = len(reasons), f" And {len(reasons) - 3:,} more." * (len(reasons) > 3)
    return f"{count_text(count, 'file')} could not be read: {' '.join(reasons[:3])}{more}" if count else ""


def list_some(items: Sequence[object], most: int = 5) -> str:
    return ", ".join(map(str, items[:most])) + (", ..." if len(items) > most else "")


def warn_user(message: str) -> None:
    """A warning that names the line of the user's own code, however deep in dubium, torch or contextlib it arose."""
    frame, level = sys._getframe(1), 2
    inside = ("dubium", "torch", "contextlib", "jaxtyping", "beartype")
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).partition(".")[0] in inside:
        frame, level = frame.f_back, level + 1
    warnings.warn(message, DubiumWarning, stacklevel=level)
