"""MATLAB 5 files, as far as SVHN's `*_32x32.mat` need it: named numeric arrays, compressed or not.

Format: "MAT-File Format", The MathWorks, chapter 1. SciPy reads all of it; SVHN needs 60 lines of it.
"""

import math
import struct
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dubium.errors import FileFormatError
from dubium.reading import read_regular_file

MATRIX, COMPRESSED = 14, 15
TYPES = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
LARGEST = 2**29  # bytes once expanded, all arrays together; SVHN's training images are 225 million
ELEMENTS = 1000  # side by side; SVHN has two, of four each
PIECE = 2**16  # compressed bytes to expand at a time, at most a thousand times as many


def read_mat(path: Path) -> dict[str, NDArray[np.generic]]:
    """Every array of a file by its name, with MATLAB's axes."""
    content = read_regular_file(path, most=LARGEST)
    order = {b"IM": "<", b"MI": ">"}.get(content[126:128])
    if order is None:
        raise FileFormatError(f"{path} is not a MATLAB 5 file: no byte-order mark in its header.")
    try:
        return dict(_array(body, order) for body in _matrices(memoryview(content)[128:], order))
    except (struct.error, zlib.error, ValueError, KeyError, IndexError, OverflowError) as error:
        raise FileFormatError(f"{path} is damaged, cut short, or holds other than numbers ({error}).") from error


def _elements(content: memoryview, order: str) -> Iterator[tuple[int, memoryview]]:
    """Type and bytes of each element; the small form packs both into eight bytes."""
    at = count = 0
    while at < len(content):
        count += 1
        if count > ELEMENTS:
            raise ValueError("more elements than SVHN has")
        kind, size = struct.unpack_from(order + "II", content, at)
        start = at + 8
        if kind >> 16:
            kind, size, start = kind & 0xFFFF, kind >> 16, at + 4
        if start + size > len(content):
            raise ValueError(f"an element of {size} bytes ends after the file")
        yield kind, content[start : start + size]
        padding = 0 if kind == COMPRESSED else -size % 8
        at = at + 8 if start == at + 4 else start + size + padding


def _matrices(content: memoryview, order: str) -> Iterator[memoryview]:
    """The bytes of each matrix; a compressed element holds matrices, and no compressed elements."""
    left = LARGEST
    for kind, body in _elements(content, order):
        if kind == COMPRESSED:
            expanded = expand(body, left)
            left -= len(expanded)
            yield from (inner for nested, inner in _elements(memoryview(expanded), order) if nested == MATRIX)
        elif kind == MATRIX:
            yield body


def expand(body: memoryview, most: int) -> bytearray:
    """The bytes that were compressed, at most so many."""
    expander, expanded = zlib.decompressobj(), bytearray()
    for at in range(0, len(body), PIECE):
        expanded += expander.decompress(body[at : at + PIECE])
        if len(expanded) > most:
            raise ValueError(f"more than {LARGEST:,} bytes once expanded, which SVHN has not")
        if expander.eof:
            break
    if not expander.eof:
        raise ValueError("compressed data without an end")
    return expanded


def _array(body: memoryview, order: str) -> tuple[str, NDArray[np.generic]]:
    flags, dimensions, name, values = (element for element, _ in zip(_elements(body, order), range(4), strict=False))
    if not 6 <= flags[1][0 if order == "<" else 3] <= 15:
        raise ValueError("not an array of numbers")
    shape = struct.unpack(f"{order}{len(dimensions[1]) // 4}i", dimensions[1])
    array = np.frombuffer(values[1], np.dtype(order + TYPES[values[0]]))
    if min(shape, default=0) < 0 or array.size != math.prod(shape):
        raise ValueError(f"{array.size} numbers where {shape} were announced")
    return bytes(name[1]).decode("ascii"), array.reshape(shape, order="F")


def read_svhn(paths: Sequence[Path]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """SVHN's images and labels; its label 10 means the digit 0."""
    arrays = read_mat(paths[0])
    images, labels = arrays.get("X"), arrays.get("y")
    if images is None or images.dtype != np.uint8 or images.ndim != 4 or images.shape[:3] != (32, 32, 3):
        raise FileFormatError(f"{paths[0]} is not SVHN in 32 x 32: it has no X of bytes, 32 x 32 x 3 x N.")
    if labels is None or labels.size != images.shape[3]:
        raise FileFormatError(f"{paths[0]} is not SVHN in 32 x 32: it has no y with a label for each of its images.")
    if not np.isin(labels, range(11)).all():  # SVHN writes its labels as floats
        raise FileFormatError(f"{paths[0]} has labels that are not whole numbers from 0 to 10; get it again.")
    digits = labels.reshape(-1).astype(np.int64)
    return np.ascontiguousarray(images.transpose(3, 2, 0, 1)), np.where(digits == 10, 0, digits)
