"""Where images come from: a dataset in memory, or files that are read one by one."""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float
from torch import Tensor

from dubium.choices import DEMO, SPLITS
from dubium.data import SOURCES, load
from dubium.data.dataset import Dataset
from dubium.data.fit import Preprocessing
from dubium.data.folder import list_folder, refuse_image_folder, unread_images
from dubium.data.image_files import find_images, image_size, read_image
from dubium.data.load import prepare_images
from dubium.data.loaders import samples_of
from dubium.data.samples import as_dataset, folder_classes, numbered_samples, refuse_mapping, sample_at
from dubium.errors import FileFormatError, ImagesError, OptionError
from dubium.fingerprint import dataset_fingerprint
from dubium.posteriors.files.architecture import import_path

READ_TWICE = 16  # samples of a torch dataset


@dataclass(frozen=True)
class Item:
    """One image at its own size, in [0, 1]."""

    id: int
    path: str | None
    label: int | None
    image: Float[Tensor, "C H W"]


@runtime_checkable
class ImageSource(Protocol):
    """Numbered images, the same on every pass."""

    def __len__(self) -> int: ...
    def name(self, index: int) -> str: ...
    def size(self, index: int) -> tuple[int, int] | None: ...
    def read(self, index: int) -> Item: ...
    def digest(self) -> str: ...


@dataclass(frozen=True)
class DatasetImages:
    """Images of a dataset; labels index its classes."""

    dataset: Dataset

    def __len__(self) -> int:
        return len(self.dataset)

    def name(self, index: int) -> str:
        return f"{self.dataset.name}:{self.dataset.split} {index}"

    def size(self, _index: int) -> tuple[int, int]:
        """Height and width: the same for all."""
        return self.dataset.shape[1:]

    def read(self, index: int) -> Item:
        label = None if self.dataset.labels is None else int(self.dataset.labels[index])
        return Item(index, None, label, self.dataset.batch([index])[0])

    def digest(self) -> str:
        return str(dataset_fingerprint(self.dataset)["sha256"])


@dataclass(frozen=True)
class FileImages:
    """Image files; a file's folder is its class where the folder is called like one.

    `folders` are those of a dataset that has one for each of its classes, `named` the files and folders that the user
    named.
    """

    paths: Sequence[Path]
    classes: Sequence[str] = ()
    folders: tuple[str, ...] = ()
    named: tuple[Path, ...] = ()

    def __len__(self) -> int:
        return len(self.paths)

    def name(self, index: int) -> str:
        return str(self.paths[index])

    def size(self, index: int) -> tuple[int, int] | None:
        """Height and width, from the file's header; None where it cannot be read."""
        return image_size(self.paths[index])

    def read(self, index: int) -> Item:
        path = self.paths[index]
        label = list(self.classes).index(path.parent.name) if path.parent.name in self.classes else None
        return Item(index, str(path), label, read_image(path))

    def digest(self) -> str:
        """Of names, sizes and times; reading all content would take as long as the run."""
        found = sha256()
        for path in self.paths:
            stat = path.stat()
            found.update(f"{path}\0{stat.st_size}\0{stat.st_mtime_ns}\n".encode())
        return found.hexdigest()


@dataclass(frozen=True)
class SampleImages:
    """Images of a torch dataset, read one by one.

    Where labels count `folders`, a folder is the class that is called like it in `classes`.
    """

    samples: Any  # of `torch.utils.data.Dataset`: numbered, with a length
    classes: Sequence[str] = ()
    folders: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.samples)

    def name(self, index: int) -> str:
        return f"sample {index}"

    def size(self, index: int) -> tuple[int, int] | None:
        """Height and width; None where the sample cannot be read."""
        try:
            image, _ = sample_at(self.samples, index)
        except FileFormatError:
            return None
        return image.shape[1], image.shape[2]

    def read(self, index: int) -> Item:
        image, label = sample_at(self.samples, index)
        if self.folders and label is not None:
            name = self.folders[label]
            label = list(self.classes).index(name) if name in self.classes else None
        return Item(index, None, label, image)

    def digest(self) -> str:
        """Of all images and labels: each is read once for it, the first ones twice, lest they be random."""
        found = sha256()
        for index in range(len(self)):
            content = self.sample_bytes(index)
            if index < READ_TWICE and content != self.sample_bytes(index):
                raise ImagesError(
                    f"Sample {index} of the dataset is another image each time that it is read: is there a random "
                    "transform for training? Images are scored and then explained, so that they must stay as they are. "
                    "Give the dataset without it."
                )
            found.update(content)
        return found.hexdigest()

    def sample_bytes(self, index: int) -> bytes:
        """Label, shape and pixels of a sample; nothing where it cannot be read."""
        try:
            image, label = sample_at(self.samples, index)
        except FileFormatError:
            return b""
        return f"{label}{tuple(image.shape)}".encode() + image.numpy().tobytes()


def read_items(source: ImageSource) -> Iterator[Item]:
    """The images of a source that can be read, one by one."""
    for index in range(len(source)):
        with suppress(FileFormatError, OSError):
            yield source.read(index)


def source_folders(source: ImageSource) -> tuple[str, ...]:
    """The folders that labels come from, in the order of their names; nothing where labels are numbers of classes."""
    if isinstance(source, DatasetImages):
        return source.dataset.classes if source.dataset.by_folder else ()
    return source.folders if isinstance(source, FileImages | SampleImages) else ()


def open_dataset(images: Mapping[str, Any], split: str = "test", preprocessing: Preprocessing | None = None) -> Dataset:
    """The dataset that settings name, in memory: by name or path, or what a user's function returns.

    Files of a folder that cannot be read are left out, and named in `skipped`.

    Args:
        preprocessing: how its images are brought to the networks' size; a folder's may then differ in theirs.
    """
    if "factory" in images:
        return prepare_images(as_dataset(import_data(images["factory"])), preprocessing)
    return load(images["dataset"], split, skip=True, preprocessing=preprocessing)


def dataset_folder(named: str, split: str = "test") -> tuple[Path | None, str]:
    """The folder that a dataset's name, with or without its split, is the path of, and the split; None for others."""
    before, _, after = named.rpartition(":")
    name, split = (before, after) if before and after in SPLITS else (named, split)
    folder = Path(name).expanduser()
    return (folder if name not in (*SOURCES, DEMO) and folder.is_dir() else None), split


def image_places(images: Mapping[str, Any]) -> list[str]:
    """The files and folders that settings name, alike however they are spelt; the name of another dataset is itself."""
    if "files" in images:
        return [os.path.abspath(os.path.expanduser(name)) for name in images["files"]]
    folder, split = dataset_folder(images["dataset"]) if "dataset" in images else (None, "")
    return [*images.values()] if folder is None else [os.path.abspath(folder), split]


def refuse_dataset_folder(out: Path | str, named: str) -> None:
    """Refuse to write results into the folder that a dataset's name is the path of."""
    folder, _ = dataset_folder(named)
    refuse_image_folder(out, () if folder is None else (folder,))


def import_data(path: str) -> Any:
    """What the function at `package.module:factory` returns: pass only what the user typed, never what a file says."""
    factory = import_path(path, "dataset")
    try:
        return factory()
    except Exception as error:  # of the user's own code
        raise OptionError(
            f"The dataset {path} raised {type(error).__name__}: {error}. A function without arguments is needed, which "
            "returns images, (images, labels) or a torch Dataset."
        ) from error


def source_of(data: Any) -> ImageSource:
    """Images of a user's own, whatever they are in; a torch dataset and a folder are read when images are needed."""
    if isinstance(data, str | Path):
        return open_source({"dataset": str(data)}, None)[0]
    if isinstance(data, list | tuple) and data and all(isinstance(name, str | Path) for name in data):
        return open_source({"files": [str(name) for name in data]}, None)[0]
    refuse_mapping(data)
    dataset = samples_of(data)
    if isinstance(dataset, Dataset | Tensor | np.ndarray | tuple | list):
        return DatasetImages(as_dataset(dataset))
    return SampleImages(numbered_samples(dataset), (), folder_classes(dataset))


def open_source(images: Mapping[str, Any], classes: Sequence[str] | None) -> tuple[ImageSource, tuple[str, ...] | None]:
    """The images that settings name, and the class names, which a dataset may know where the posterior does not.

    Which labels are those of the classes, `name_by_folders` says.
    """
    known = None if classes is None else tuple(classes)
    if "factory" in images:
        return source_of(import_data(images["factory"])), known
    if "dataset" in images:
        folder, split = dataset_folder(images["dataset"])
        if folder is not None:
            groups, folders, split = list_folder(folder, split)
            files = [file for group in (*groups, unread_images(folder, split)) for file in group]
            return FileImages(files, known or (), folders, (folder,)), known
        dataset = load(images["dataset"])
        is_named = dataset.name in (*SOURCES, DEMO)  # numbers in a file are no names: some classes may be missing
        return DatasetImages(dataset), dataset.classes if known is None and is_named else known
    if not isinstance(images.get("files"), list | tuple):
        raise OptionError(
            f"images={dict(images)} names no images; {{'files': [names of files and folders]}} or {{'dataset': "
            "'name:split'}} is needed."
        )
    named = tuple(Path(name).expanduser() for name in images["files"])
    return FileImages(find_images(images["files"]), known or (), (), named), known
