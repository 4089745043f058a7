"""One door to every dataset: by name, or by path."""

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from dubium.choices import DEMO, SPLITS
from dubium.data.arrays import read_arrays
from dubium.data.catalog import SOURCES
from dubium.data.classes import DIGITS
from dubium.data.dataset import Dataset
from dubium.data.find import data_folders, find_files
from dubium.data.fit import Preprocessing
from dubium.data.folder import read_folder, read_images
from dubium.data.image_files import ARRAYS, SUFFIXES
from dubium.data.npy import read_npz_file
from dubium.errors import FileFormatError, UnknownNameError, unknown_name_text

EMBEDDED = Path(__file__).parents[1] / DEMO / "digits.safetensors"


def load(
    name: str | Path,
    split: str = "test",
    *,
    folders: Sequence[Path] | None = None,
    skip: bool = False,
    preprocessing: Preprocessing | None = None,
) -> Dataset:
    """Load a dataset: one of the catalogue, a folder of images, one image, or an array file.

    Args:
        name: "mnist", "mnist:train", "demo" (embedded digits), or a path; a folder called like a dataset is "./mnist".
        split: "train" or "test"; what `name` says comes first.
        folders: where to look for a dataset's files; `DUBIUM_DATA` and the download folder if not given.
        skip: leave out files of a folder that cannot be read, and say why in `skipped`; else one of them is an error.
        preprocessing: how images are brought to the networks' size; a folder's may then differ in theirs.

    Returns:
        All images of the split, in memory, with labels where there are any.

    >>> import numpy
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     numpy.save(f"{folder}/images.npy", numpy.zeros((7, 28, 28), numpy.uint8))
    ...     load(f"{folder}/images.npy").images.shape
    torch.Size([7, 1, 28, 28])
    """
    text = str(name)
    before, _, after = text.rpartition(":")
    if before and after in SPLITS:
        text, split = before, after
    if split not in SPLITS:
        raise UnknownNameError(unknown_name_text("split", split, SPLITS))
    if text in SOURCES:
        data = read_published(text, split, data_folders() if folders is None else folders)
        return prepare_images(data, preprocessing)
    if text == DEMO:
        return prepare_images(load_demo(split), preprocessing)
    if before in (*SOURCES, DEMO):
        raise UnknownNameError(unknown_name_text("dataset", text, [f"{before}:{known}" for known in SPLITS]))
    path = Path(text).expanduser()
    if path.is_dir():
        return read_folder(path, split, preprocessing, skip=skip)
    if path.is_file() and path.suffix.lower() in ARRAYS:
        return prepare_images(read_arrays(path, split), preprocessing)
    if path.is_file() and path.suffix.lower() in SUFFIXES:
        return Dataset(read_images([path], preprocessing), None, (), str(path), "all")
    if path.is_file():
        raise FileFormatError(
            f"{path} is neither an image nor .npy nor .npz. A saved tensor: numpy.save(name, x.numpy())."
        )
    if before and Path(before).expanduser().exists():
        raise UnknownNameError(other_split_text(Path(before).expanduser(), after))
    is_code = re.fullmatch(r"[\w.]+:[\w.]+", text)  # commands that take it do not come here
    factory = " A function of yours cannot be named here: save its images as an .npz file." if is_code else ""
    raise UnknownNameError(
        f"{unknown_name_text('dataset', text, [*SOURCES, DEMO])} Or give the path of a folder of images, an image, or "
        f"a .npy or .npz file.{factory}"
    )


def other_split_text(path: Path, split: str) -> str:
    """What to say about a split that is none, of a file or folder that is there."""
    if path.suffix.lower() == ".npz" and path.is_file():
        arrays, _ = read_npz_file(path, ())
        known = [name for name in SPLITS if {f"{name}_images", f"x_{name}"} & {*arrays}]
    else:
        known = [name for name in SPLITS if (path / name).is_dir()]
    if known:
        return unknown_name_text(f"split of {path}", split, known)
    return f"{path} has one set of images, and no split {split!r}. Leave {f':{split}'!r} out."


def prepare_images(data: Dataset, preprocessing: Preprocessing | None) -> Dataset:
    """The dataset with its images as the networks take them; as it is without preprocessing."""
    if preprocessing is None:
        return data
    prepared = [preprocessing.network_input(data.batch([index])[0]) for index in range(len(data))]
    return replace(data, images=torch.stack(prepared))


def read_published(name: str, split: str, folders: Sequence[Path]) -> Dataset:
    """A split of a dataset of the catalogue, checked against its shape and number of classes."""
    source = SOURCES[name]
    layout, paths = find_files(name, split, folders)
    images, labels = layout.read(paths)
    if images.shape[1:] != source.shape:
        raise FileFormatError(f"{paths[0]} holds images of shape {images.shape[1:]}; {name} has {source.shape}.")
    if labels.size == 0 or labels.min() < 0 or labels.max() >= len(source.classes):
        raise FileFormatError(f"{paths[-1]} is not of {name}: its labels are not from 0 to {len(source.classes) - 1}.")
    tensor = torch.from_numpy(np.ascontiguousarray(images))
    return Dataset(tensor, torch.from_numpy(labels), source.classes, name, split)


def load_demo(split: str) -> Dataset:
    """The 32 most uncertain digits of MNIST's test set, then 32 others; "train" is every second one of them."""
    try:
        tensors = load_file(EMBEDDED)
        digits = Dataset(tensors["images"], tensors["labels"].long(), DIGITS, DEMO, split)
    except (OSError, SafetensorError, KeyError) as error:
        raise FileFormatError(f"{EMBEDDED} is missing or damaged ({error}). Install dubium again.") from error
    return digits.subset(slice(0, None, 2)) if split == "train" else digits
