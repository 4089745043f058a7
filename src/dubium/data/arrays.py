"""`.npy` and `.npz` files of the user's own."""

import zipfile
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dubium.data.dataset import Dataset
from dubium.errors import FileFormatError, ImagesError


def read_arrays(path: Path, split: str) -> Dataset:
    """Images, and labels if the file is an `.npz` that has them.

    In an `.npz`, images are called `{split}_images`, `x_{split}`, `images` or `x`, and labels `{split}_labels`,
    `y_{split}`, `labels` or `y`; the first that exists is taken.
    """
    arrays = load_arrays(path)
    found, images = first_array(arrays, (f"{split}_images", f"x_{split}", "images", "x"))
    if images is None:
        raise FileFormatError(
            f"{path} holds {', '.join(arrays) or 'nothing'}; expected the images as {split}_images, x_{split}, images"
            " or x."
        )
    _, labels = first_array(arrays, (f"{split}_labels", f"y_{split}", "labels", "y"))
    tensor = as_images(images, str(path))
    targets = None if labels is None else check_class_labels(labels, len(tensor), path)
    count = 0 if targets is None or not len(targets) else int(targets.max()) + 1
    which = split if found is not None and split in found else "all"
    return Dataset(tensor, targets, tuple(str(i) for i in range(count)), str(path), which)


def as_images(array: NDArray[np.generic], source: str) -> Tensor:
    """Grey or colour images of any usual layout as (N, C, H, W): bytes, or float32 in [0, 1]."""
    if array.ndim == 2:
        array = array[None]
    if array.ndim == 3:
        array = array[:, None]
    if array.ndim == 4 and array.shape[1] not in (1, 3) and array.shape[3] in (1, 3):
        array = array.transpose(0, 3, 1, 2)
    if array.ndim != 4 or array.shape[1] not in (1, 3) or 0 in array.shape:
        raise ImagesError(
            f"{source} has shape {array.shape}; expected (N, H, W), (N, C, H, W) or (N, H, W, C), C 1 or 3."
        )
    if array.dtype == np.bool_:
        array = array.astype(np.uint8) * np.uint8(255)
    if array.dtype == np.uint8:
        return torch.from_numpy(np.array(array, order="C"))
    if array.dtype.kind not in "iuf":
        raise ImagesError(f"{source} is of type {array.dtype}; expected bytes, or floats in [0, 1].")
    low, high = array.min(), array.max()
    top = 1 if array.dtype.kind == "f" else 255
    if not (low >= 0 and high <= top):  # also false for NaN
        raise ImagesError(
            f"{source} has values from {low} to {high}; expected bytes from 0 to 255, or floats in [0, 1]."
        )
    return torch.from_numpy(array.astype(np.float32 if top == 1 else np.uint8, order="C"))


def load_arrays(path: Path) -> dict[str, NDArray[np.generic]]:
    """The arrays of a file by name; that of an `.npy` is called "images"."""
    try:
        with path.open("rb") as file:
            content = np.load(file, allow_pickle=False)
            if isinstance(content, np.ndarray):
                return {"images": content}
            with content:
                return {key: content[key] for key in content.files}
    except FileNotFoundError:
        raise
    except (ValueError, OSError, EOFError, KeyError, zipfile.BadZipFile) as error:
        raise FileFormatError(f"{path} is damaged or not a NumPy file of numbers ({error}).") from error


def first_array(
    arrays: dict[str, NDArray[np.generic]], names: tuple[str, ...]
) -> tuple[str | None, NDArray[np.generic] | None]:
    """The first of the names that there is an array of, and the array."""
    return next(((name, arrays[name]) for name in names if name in arrays), (None, None))


def check_class_labels(labels: NDArray[np.generic], count: int, path: Path) -> Tensor:
    """The labels as int64, one per image and none negative."""
    if labels.dtype.kind not in "iu" or labels.size != count:
        raise FileFormatError(
            f"{path} has labels of shape {labels.shape} and type {labels.dtype} for {count} images; expected as many"
            " whole numbers."
        )
    targets = torch.from_numpy(labels.reshape(-1).astype(np.int64))
    if count and targets.min() < 0:
        raise FileFormatError(f"{path} has the label {int(targets.min())}; labels start at 0.")
    return targets
