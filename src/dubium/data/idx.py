"""The idx format of MNIST and Fashion-MNIST, gzipped or not."""

import gzip
import math
import zlib
from collections.abc import Sequence
from io import BufferedReader
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dubium.errors import FileFormatError
from dubium.reading import open_regular_file

LARGEST = 2**29  # bytes; MNIST's training images are 47 million


def read_idx(path: Path, axes: int) -> NDArray[np.uint8]:
    """The one array of bytes in an idx file, which must have `axes` axes."""
    try:
        with open_regular_file(path, most=LARGEST) as file:
            if path.suffix != ".gz":
                return _read(file, path, axes)
            with gzip.GzipFile(fileobj=file) as expanded:
                return _read(expanded, path, axes)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise FileFormatError(f"{path} is damaged or cut short ({error}). Delete it and get it again.") from error


def _read(file: gzip.GzipFile | BufferedReader, path: Path, axes: int) -> NDArray[np.uint8]:
    header = file.read(4 + 4 * axes)
    if len(header) < 4 + 4 * axes or header[:4] != bytes((0, 0, 8, axes)):
        raise FileFormatError(f"{path} is not an idx file of bytes with {axes} axes: it starts with {header[:4]!r}.")
    shape = tuple(int.from_bytes(header[i : i + 4], "big") for i in range(4, len(header), 4))
    size = math.prod(shape)
    if size > LARGEST:
        raise FileFormatError(f"{path} announces {shape}, more than this format is used for; it is not a dataset.")
    content = np.empty(size, np.uint8)
    found = 0
    while found < size and (count := file.readinto(content.data[found : found + 2**24])):
        found += count
    if found < size or file.read(1):
        more = "more" if found == size else f"only {found}"
        raise FileFormatError(f"{path} announces {shape}, so {size} bytes, and holds {more}. Get it again.")
    return content.reshape(shape)


def read_pair(paths: Sequence[Path]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Grey images and labels from an images file and a labels file."""
    images, labels = read_idx(paths[0], 3), read_idx(paths[1], 1)
    if len(images) != len(labels):
        raise FileFormatError(
            f"{paths[0]} holds {len(images)} images and {paths[1]} {len(labels)} labels; they do not belong together."
        )
    return images[:, None], labels.astype(np.int64)
