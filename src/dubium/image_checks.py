"""Images at the public edge: what cannot be explained is refused, with the line that makes images of it."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from dubium.checks import count_text, list_some, warn_user
from dubium.errors import ImagesError, ImagesTypeError, OptionError

STANDARDISED_BELOW = -0.5
"""No image in [0, 1] has such a value, also if noise was added to it; nearly all standardised ones have."""


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
    if isinstance(x, DataLoader | Dataset) or isinstance(first, str | Path):
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


def warn_of_standardised_images(x: Tensor) -> None:
    """Warn if images for networks that standardise them have values that no image in [0, 1] has."""
    if x.numel() and x.min() < STANDARDISED_BELOW:
        warn_user(
            f"The images have values down to {x.min():.2g}, and the networks standardise them by a mean and a std: for "
            "the second time, if that is done already. Give images from 0 to 1, or leave out the mean and std."
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
