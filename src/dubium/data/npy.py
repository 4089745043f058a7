"""NumPy's `.npy` and `.npz` formats: sizes are compared with the file before memory is asked for.

`numpy.load` asks for what a header announces, expands what an archive holds, and raises whatever its libraries raise.
"""

import math
import warnings
import zipfile
from collections.abc import Sequence
from io import BufferedIOBase
from pathlib import Path
from typing import IO

import numpy as np
from numpy.lib import format as npy_format
from numpy.typing import NDArray

from dubium.errors import FileFormatError
from dubium.reading import open_archive, open_regular_file

Arrays = dict[str, NDArray[np.generic]]
LARGEST = 2**40  # bytes of a file
EXPANDED = 2**30  # bytes that any file may have once expanded; more if it is large itself:
RATIO = 16  # photographs and drawings shrink by less
HEADER = 10_000  # bytes; NumPy writes about a hundred
METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # those that NumPy writes


def read_npy_file(path: Path) -> NDArray[np.generic]:
    """The array of an `.npy` file."""
    with open_regular_file(path, most=LARGEST) as file:
        size = file.seek(0, 2)
        file.seek(0)
        try:
            return parse_npy(file, size)
        except Exception as error:  # NumPy's parser of headers raises nearly anything
            raise FileFormatError(f"{path} is damaged or not a NumPy file of numbers ({error}).") from error


def read_npz_file(path: Path, names: Sequence[Sequence[str]]) -> tuple[list[str], Arrays]:
    """The names of all arrays of an `.npz` file, and for each list of names the first array that there is."""
    with open_regular_file(path, most=LARGEST) as file:
        size = file.seek(0, 2)
        try:
            with open_archive(file) as archive:
                members = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
                wanted = [next((name for name in some if name in members), None) for some in names]
                left, arrays = max(EXPANDED, RATIO * size), Arrays()
                for name in (name for name in wanted if name is not None):
                    left -= members[name].file_size
                    arrays[name] = read_archive_member(archive, members[name], left)
                return list(members), arrays
        except Exception as error:  # and so do archives
            raise FileFormatError(f"{path} is damaged or not a NumPy file of numbers ({error}).") from error


def read_archive_member(archive: zipfile.ZipFile, info: zipfile.ZipInfo, left: int) -> NDArray[np.generic]:
    """One array of an archive; `left` is what may still be expanded after it."""
    if info.compress_type not in METHODS or info.flag_bits & 1:
        raise ValueError(f"{info.filename!r} is compressed or encrypted in a way that NumPy does not write")
    if left < 0:
        raise ValueError(
            f"{info.filename!r} has {info.file_size:,} bytes once expanded, too many for a file that small; save it "
            "without compression, with numpy.savez"
        )
    with archive.open(info) as member:
        array = parse_npy(member, info.file_size)
        if member.read(1):  # at the end of a member its checksum is compared
            raise ValueError(f"{info.filename!r} holds more than its header announces")
        return array


def parse_npy(file: IO[bytes] | BufferedIOBase, size: int) -> NDArray[np.generic]:
    """The array in a stream of `size` bytes: numbers, booleans or texts."""
    version = npy_format.read_magic(file)
    if version not in ((1, 0), (2, 0)):
        raise ValueError(f"version {version} of the format, which arrays of numbers do not need")
    read_header = npy_format.read_array_header_1_0 if version == (1, 0) else npy_format.read_array_header_2_0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # headers of Python 2
        shape, fortran, dtype = read_header(file, max_header_size=HEADER)
    if dtype.hasobject or dtype.kind not in "biufcSU" or not dtype.itemsize:
        raise ValueError(f"an array of {dtype}; nothing is unpickled")
    count = math.prod(shape)
    if min(shape, default=1) < 0 or count * dtype.itemsize > size:
        raise ValueError(f"an array of shape {shape} is announced, and {size:,} bytes are there")
    array = np.empty(count, dtype)
    raw, found = array.view(np.uint8).data, 0
    while found < len(raw):
        part = file.read(min(2**24, len(raw) - found))
        if not part:
            raise ValueError(f"{found:,} of {len(raw):,} bytes are there")
        raw[found : found + len(part)] = part
        found += len(part)
    return array.reshape(shape, order="F" if fortran else "C")
