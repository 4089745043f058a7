"""The datasets that have a name: their files, where they are published, and how they are read."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dubium.data.cifar import read_binary, read_python
from dubium.data.classes import CIFAR10, CIFAR100, DIGITS, FASHION
from dubium.data.idx import read_pair
from dubium.data.mat import read_svhn

Reader = Callable[[Sequence[Path]], tuple[NDArray[np.uint8], NDArray[np.int64]]]


@dataclass(frozen=True)
class FileLayout:
    """One official form of a dataset: the files of each split, and the reader that takes them in that order."""

    splits: Mapping[str, tuple[str, ...]]
    read: Reader


@dataclass(frozen=True)
class Download:
    """A published file; where it is an archive, `members` are the files to take from it."""

    name: str
    md5: str
    mirrors: tuple[str, ...]
    members: tuple[str, ...] = ()


@dataclass(frozen=True)
class DatasetSource:
    """A published dataset.

    `folders` are the places below a data folder where its files may be; downloads go to the first.
    """

    title: str
    homepage: str
    shape: tuple[int, int, int]
    classes: tuple[str, ...]
    published: Mapping[str, int]
    folders: tuple[str, ...]
    layouts: tuple[FileLayout, ...]
    downloads: tuple[Download, ...]
    md5: Mapping[str, str]


def idx_source(
    title: str,
    homepage: str,
    classes: tuple[str, ...],
    folders: tuple[str, ...],
    mirrors: Sequence[str],
    md5: Mapping[str, str],
) -> DatasetSource:
    """A dataset in the four idx files of MNIST, gzipped or not."""
    splits = {
        split: (f"{prefix}-images-idx3-ubyte.gz", f"{prefix}-labels-idx1-ubyte.gz")
        for split, prefix in (("train", "train"), ("test", "t10k"))
    }
    unzipped = {split: tuple(name.removesuffix(".gz") for name in names) for split, names in splits.items()}
    return DatasetSource(
        title,
        homepage,
        (1, 28, 28),
        classes,
        {"train": 60_000, "test": 10_000},
        folders,
        (FileLayout(splits, read_pair), FileLayout(unzipped, read_pair)),
        tuple(Download(name, digest, tuple(mirror + name for mirror in mirrors)) for name, digest in md5.items()),
        md5,
    )


TORONTO = "https://www.cs.toronto.edu/~kriz/"
CIFAR10_BATCHES = tuple(f"data_batch_{i}" for i in range(1, 6))
CIFAR10_MD5 = {
    "data_batch_1": "c99cafc152244af753f735de768cd75f",
    "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
    "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
    "data_batch_4": "634d18415352ddfa80567beed471001a",
    "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
    "test_batch": "40351d587109b95175f43aff81a1287e",
    "batches.meta": "5ff9c542aee3614f3951f8cda6e48888",
}
CIFAR100_MD5 = {
    "train": "16019d7e3df5f24257cddd939b257f8d",
    "test": "f0ef6b0ae62326f3e7ffdfab6717acfc",
    "meta": "7973b15100ade9c7d40fb424638fde48",
}
SVHN_MD5 = {
    "train_32x32.mat": "e26dedcc434d2e4c54c9b2d4a06d8373",
    "test_32x32.mat": "eb5a983be6a315427106f1b164d9cef3",
}

SOURCES: dict[str, DatasetSource] = {
    "mnist": idx_source(
        "MNIST handwritten digits",
        "http://yann.lecun.com/exdb/mnist/",
        DIGITS,
        ("mnist", "MNIST/raw", "MNIST", "."),
        ("https://ossci-datasets.s3.amazonaws.com/mnist/", "http://yann.lecun.com/exdb/mnist/"),
        {
            "train-images-idx3-ubyte.gz": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
            "train-labels-idx1-ubyte.gz": "d53e105ee54ea40749a09fcbcd1e9432",
            "t10k-images-idx3-ubyte.gz": "9fb629c4189551a2d022fa330f9573f3",
            "t10k-labels-idx1-ubyte.gz": "ec29112dd5afa0611ce80d1b7f02629c",
        },
    ),
    "fashion-mnist": idx_source(
        "Fashion-MNIST clothes",
        "https://github.com/zalandoresearch/fashion-mnist",
        FASHION,
        ("fashion-mnist", "FashionMNIST/raw", "FashionMNIST", "fashion_mnist", "fashion", "."),
        (
            "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
            "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/",
        ),
        {
            "train-images-idx3-ubyte.gz": "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
            "train-labels-idx1-ubyte.gz": "25c81989df183df01b3e8a0aad5dffbe",
            "t10k-images-idx3-ubyte.gz": "bef4ecab320f06d8554ea6380940ec79",
            "t10k-labels-idx1-ubyte.gz": "bb300cfdad3c16e7a12a480ee83cd310",
        },
    ),
    "svhn": DatasetSource(
        "Street View house numbers, cropped digits",
        "http://ufldl.stanford.edu/housenumbers/",
        (3, 32, 32),
        DIGITS,
        {"train": 73_257, "test": 26_032},
        ("svhn", "SVHN", "."),
        (FileLayout({"train": ("train_32x32.mat",), "test": ("test_32x32.mat",)}, read_svhn),),
        tuple(
            Download(name, digest, (f"http://ufldl.stanford.edu/housenumbers/{name}",))
            for name, digest in SVHN_MD5.items()
        ),
        SVHN_MD5,
    ),
    "cifar-10": DatasetSource(
        "CIFAR-10",
        "https://www.cs.toronto.edu/~kriz/cifar.html",
        (3, 32, 32),
        CIFAR10,
        {"train": 50_000, "test": 10_000},
        ("cifar-10-batches-py", "cifar-10-batches-bin", "cifar-10", "cifar10", "."),
        (
            FileLayout({"train": CIFAR10_BATCHES, "test": ("test_batch",)}, read_python),
            FileLayout({"train": tuple(f"{n}.bin" for n in CIFAR10_BATCHES), "test": ("test_batch.bin",)}, read_binary),
        ),
        (
            Download(
                "cifar-10-python.tar.gz",
                "c58f30108f718f92721af3b95e74349a",
                (f"{TORONTO}cifar-10-python.tar.gz",),
                tuple(f"cifar-10-batches-py/{name}" for name in CIFAR10_MD5),
            ),
        ),
        CIFAR10_MD5,
    ),
    "cifar-100": DatasetSource(
        "CIFAR-100, fine labels",
        "https://www.cs.toronto.edu/~kriz/cifar.html",
        (3, 32, 32),
        CIFAR100,
        {"train": 50_000, "test": 10_000},
        ("cifar-100-python", "cifar-100", "cifar100", "."),
        (FileLayout({"train": ("train",), "test": ("test",)}, read_python),),
        (
            Download(
                "cifar-100-python.tar.gz",
                "eb9058c3a382ffc7106e4002c42a8d85",
                (f"{TORONTO}cifar-100-python.tar.gz",),
                tuple(f"cifar-100-python/{name}" for name in CIFAR100_MD5),
            ),
        ),
        CIFAR100_MD5,
    ),
}
