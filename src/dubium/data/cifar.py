"""CIFAR-10 and CIFAR-100: the binary form, and the pickled form read without running what it might contain."""

import io
import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dubium.errors import FileFormatError

PIXELS = 3 * 32 * 32


def read_binary(paths: Sequence[Path]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """CIFAR-10 records: one byte of label and 3,072 of pixels each."""
    parts = []
    for path in paths:
        content = path.read_bytes()
        if not content or len(content) % (PIXELS + 1):
            raise FileFormatError(
                f"{path} has {len(content)} bytes, not a multiple of {PIXELS + 1}: damaged, cut short or not CIFAR-10."
            )
        parts.append(np.frombuffer(bytearray(content), np.uint8).reshape(-1, PIXELS + 1))
    records = np.concatenate(parts)
    return records[:, 1:].reshape(-1, 3, 32, 32), records[:, 0].astype(np.int64)


def read_python(paths: Sequence[Path]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Images and (fine) labels of `cifar-*-python` batches."""
    images, labels = zip(*(_batch(path) for path in paths), strict=True)
    return np.concatenate(images), np.concatenate(labels)


def _batch(path: Path) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    content = read_pickle(path)
    if not isinstance(content, dict) or "data" not in content:
        raise FileFormatError(f"{path} is not a CIFAR batch: it has no 'data'.")
    data, labels = content["data"], content.get("fine_labels", content.get("labels"))
    if not isinstance(data, _Array) or data.values.ndim != 2 or data.values.shape[1] != PIXELS:
        raise FileFormatError(f"{path} is not a CIFAR batch: its 'data' is not rows of {PIXELS} bytes.")
    if not isinstance(labels, list) or not all(type(label) is int for label in labels):
        raise FileFormatError(f"{path} is not a CIFAR batch: its labels are not a list of whole numbers.")
    if len(labels) != len(data.values):
        raise FileFormatError(f"{path} holds {len(data.values)} images and {len(labels)} labels.")
    return data.values.reshape(-1, 3, 32, 32), np.array(labels, np.int64)


def read_pickle(path: Path) -> Any:
    """A CIFAR pickle; anything that those files do not contain is refused before it is looked up."""
    try:
        return _Unpickler(io.BytesIO(path.read_bytes()), encoding="latin1").load()
    except OSError:
        raise
    except Exception as error:  # damaged pickles raise nearly anything
        raise FileFormatError(f"{path} is damaged, cut short or not a CIFAR file ({error}).") from error


class _Array:
    """Stands in for a NumPy array of bytes, so that no code of NumPy runs on what the file says."""

    values: NDArray[np.uint8]

    def __setstate__(self, state: tuple[int, tuple[int, ...], "_Dtype", bool, str | bytes]) -> None:
        _version, shape, dtype, fortran, content = state
        if not isinstance(dtype, _Dtype) or fortran:
            raise pickle.UnpicklingError("an array that is not of bytes in C order")
        raw = content.encode("latin1") if isinstance(content, str) else content
        self.values = np.frombuffer(bytearray(raw), np.uint8).reshape(shape)


class _Dtype:
    """Stands in for the type of those arrays, which is always uint8."""

    def __setstate__(self, state: object) -> None:
        pass


class _Unpickler(pickle.Unpickler):
    """Knows three names, and answers each with a stand-in."""

    def find_class(self, module: str, name: str) -> Any:
        if name == "_reconstruct" and module in ("numpy.core.multiarray", "numpy._core.multiarray"):
            return _reconstruct
        if (module, name) == ("numpy", "ndarray"):
            return "ndarray"
        if (module, name) == ("numpy", "dtype"):
            return _dtype
        if (module, name) == ("_codecs", "encode"):
            return _encode
        raise pickle.UnpicklingError(f"it asks for {module}.{name}, which no CIFAR file does")

    def persistent_load(self, pid: Any) -> Any:
        raise pickle.UnpicklingError("it refers to another file")


def _reconstruct(*_arguments: object) -> _Array:
    return _Array()


def _dtype(kind: str, *_arguments: object) -> _Dtype:
    if kind not in ("u1", "uint8", "|u1"):
        raise pickle.UnpicklingError(f"an array of {kind!r} instead of bytes")
    return _Dtype()


def _encode(text: str, encoding: str = "latin1") -> bytes:
    """Protocol 2 of Python 3 writes bytes as a call to this."""
    return text.encode("latin1")
