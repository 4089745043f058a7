"""Where images come from: a dataset in memory, or files that are read one by one."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from jaxtyping import Float
from torch import Tensor

from dubium.data import load
from dubium.data.dataset import Dataset
from dubium.data.image_files import find_images, read_image
from dubium.errors import OptionError
from dubium.fingerprint import dataset_fingerprint


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

    def read(self, index: int) -> Item:
        label = None if self.dataset.labels is None else int(self.dataset.labels[index])
        return Item(index, None, label, self.dataset.batch([index])[0])

    def digest(self) -> str:
        return str(dataset_fingerprint(self.dataset)["sha256"])


@dataclass(frozen=True)
class FileImages:
    """Image files; a file's folder is its class where the folder is called like one."""

    paths: Sequence[Path]
    classes: Sequence[str] = ()

    def __len__(self) -> int:
        return len(self.paths)

    def name(self, index: int) -> str:
        return str(self.paths[index])

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


def open_source(images: Mapping[str, Any], classes: Sequence[str] | None) -> tuple[ImageSource, tuple[str, ...] | None]:
    """The images that settings name, and the class names, which a dataset may know where the posterior does not."""
    if "dataset" in images:
        dataset = load(images["dataset"])
        return DatasetImages(renumber_labels(dataset, classes)), tuple(classes or dataset.classes) or None
    known = None if classes is None else tuple(classes)
    return FileImages(find_images(images["files"]), known or ()), known


def renumber_labels(dataset: Dataset, classes: Sequence[str] | None) -> Dataset:
    """The dataset with labels that index the posterior's classes, where the dataset numbers them differently."""
    if dataset.labels is None or classes is None or tuple(classes) == dataset.classes:
        return dataset
    if len(dataset.classes) > len(classes):
        raise OptionError(
            f"The posterior knows {len(classes)} classes, {dataset.name} has {len(dataset.classes)}: "
            "were these networks trained for these images?"
        )
    if not set(dataset.classes) <= set(classes):
        return dataset
    order = dataset.labels.new_tensor([list(classes).index(name) for name in dataset.classes])
    return Dataset(dataset.images, order[dataset.labels], tuple(classes), dataset.name, dataset.split)
