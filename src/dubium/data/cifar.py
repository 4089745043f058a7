"""CIFAR-10 and CIFAR-100: the binary form, and the pickled form read without running what it might contain."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dubium.errors import FileFormatError
from dubium.reading import read_regular_file

PIXELS = 3 * 32 * 32
LARGEST = 2**28  # bytes of a file; CIFAR-100's training images are 154 million


def read_binary(paths: Sequence[Path]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """CIFAR-10 records: one byte of label and 3,072 of pixels each."""
    parts = []
    for path in paths:
        content = read_regular_file(path, most=LARGEST)
        if not content or len(content) % (PIXELS + 1):
            raise FileFormatError(
                f"{path} has {len(content)} bytes, not a multiple of {PIXELS + 1}: damaged, cut short or not CIFAR-10."
            )
        parts.append(np.frombuffer(content, np.uint8).reshape(-1, PIXELS + 1))
    records = np.concatenate(parts)
    return records[:, 1:].reshape(-1, 3, 32, 32), records[:, 0].astype(np.int64)


def read_python(paths: Sequence[Path]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Images and (fine) labels of `cifar-*-python` batches."""
    images, labels = zip(*(_batch(path) for path in paths), strict=True)
    return np.concatenate(images), np.concatenate(labels)


def _batch(path: Path) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    from dubium.data.pickles import ByteArray

    content = read_pickle(path)
    if not isinstance(content, dict) or "data" not in content:
        raise FileFormatError(f"{path} is not a CIFAR batch: it has no 'data'.")
    data, labels = content["data"], content.get("fine_labels", content.get("labels"))
    pixels = data.values if isinstance(data, ByteArray) else None
    if pixels is None or pixels.ndim != 2 or pixels.shape[1] != PIXELS:
        raise FileFormatError(f"{path} is not a CIFAR batch: its 'data' is not rows of {PIXELS} bytes.")
    if not isinstance(labels, list) or not all(type(label) is int and 0 <= label < 100 for label in labels):
        raise FileFormatError(f"{path} is not a CIFAR batch: its labels are not a list of whole numbers below 100.")
    if len(labels) != len(pixels):
        raise FileFormatError(f"{path} holds {len(pixels)} images and {len(labels)} labels.")
    return pixels.reshape(-1, 3, 32, 32), np.array(labels, np.int64)


def read_pickle(path: Path) -> Any:
    """A CIFAR pickle; anything that those files do not contain is refused."""
    from dubium.data.pickles import parse_pickle

    content = read_regular_file(path, most=LARGEST)
    try:
        return parse_pickle(content)
    except Exception as error:  # opcodes in a wrong order raise nearly anything
        raise FileFormatError(f"{path} is damaged, cut short or not a CIFAR file ({error}).") from error
