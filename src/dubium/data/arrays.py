"""`.npy` and `.npz` files of the user's own."""

from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dubium.data.dataset import Dataset
from dubium.data.npy import read_npy_file, read_npz_file
from dubium.errors import FileFormatError, ImagesError

CLASSES = 100_000  # each class has a name


def read_arrays(path: Path, split: str) -> Dataset:
    """Images, and labels if the file is an `.npz` that has them.

    In an `.npz`, images are called `{split}_images`, `x_{split}`, `images` or `x`, and labels `{split}_labels`,
    `y_{split}`, `labels` or `y`; the first that exists is taken.
    """
    if path.suffix.lower() == ".npy":
        return Dataset(as_images(read_npy_file(path), str(path)), None, (), str(path), "all")
    image_names = f"{split}_images", f"x_{split}", "images", "x"
    label_names = f"{split}_labels", f"y_{split}", "labels", "y"
    there, arrays = read_npz_file(path, (image_names, label_names))
    found = next((name for name in image_names if name in arrays), None)
    if found is None:
        raise FileFormatError(
            f"{path} holds {', '.join(there) or 'nothing'}; expected the images as {split}_images, x_{split}, images"
            " or x."
        )
    labels = next((arrays[name] for name in label_names if name in arrays), None)
    tensor = as_images(arrays[found], str(path))
    targets = None if labels is None else check_class_labels(labels, len(tensor), path)
    count = 0 if targets is None or not len(targets) else int(targets.max()) + 1
    return Dataset(tensor, targets, tuple(str(i) for i in range(count)), str(path), split if split in found else "all")


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


def check_class_labels(labels: NDArray[np.generic], count: int, path: Path) -> Tensor:
    """The labels as int64, one per image and none negative."""
    if labels.dtype.kind not in "iu" or labels.size != count:
        raise FileFormatError(
            f"{path} has labels of shape {labels.shape} and type {labels.dtype} for {count} images; expected as many"
            " whole numbers."
        )
    low, high = (int(labels.min()), int(labels.max())) if count else (0, 0)
    if low < 0:
        raise FileFormatError(f"{path} has the label {low}; labels start at 0.")
    if high >= CLASSES:
        raise FileFormatError(
            f"{path} has the label {high}; labels count the classes from 0, and at most {CLASSES:,} classes are read. "
            "Number the classes 0, 1, 2, ..."
        )
    return torch.from_numpy(labels.reshape(-1).astype(np.int64))
