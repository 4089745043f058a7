"""Foreign files are opened here: regular files of a bounded size, and JSON."""

import json
import os
import stat
from io import BufferedReader, BytesIO
from pathlib import Path
from typing import Any
from zipfile import ZipFile

from dubium.errors import DataNotFoundError, FileFormatError

JSON_BYTES = 2**26
MEMBERS_BYTES = 2**24  # of the list of an archive's members: more than 100,000 of them
JSON_CONTAINERS = 2**20  # objects and lists; 64 MiB of "[]," would become 1.4 GB of lists


def open_regular_file(path: Path | str, *, most: int) -> BufferedReader:
    """Open a regular file of at most `most` bytes for reading.

    A pipe, a socket or a device is refused, also behind a link: reading it may wait for ever, or never end.
    """
    try:
        check_regular(os.stat(path), path, most)
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
        try:
            check_regular(os.fstat(handle), path, most)  # what was opened may not be what was looked at
            return os.fdopen(handle, "rb")
        except BaseException:
            os.close(handle)
            raise
    except FileNotFoundError as error:
        raise DataNotFoundError(f"{path} cannot be read: {error.strerror}.") from error
    except (OSError, ValueError) as error:  # ValueError: a name with a zero byte
        if isinstance(error, FileFormatError):
            raise
        raise FileFormatError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}.") from error


def check_regular(found: os.stat_result, path: Path | str, most: int) -> None:
    """Raise an error unless this is a regular file of at most `most` bytes."""
    if not stat.S_ISREG(found.st_mode):
        raise FileFormatError(f"{path} cannot be read: it is not a regular file but a folder, a pipe or a device.")
    if found.st_size > most:
        raise FileFormatError(f"{path} has {found.st_size:,} bytes; at most {most:,} are read of such a file.")


def read_regular_file(path: Path | str, *, most: int) -> bytes:
    """The bytes of a regular file of at most `most` bytes."""
    with open_regular_file(path, most=most) as file:
        return file.read(os.fstat(file.fileno()).st_size)


class BoundedFile:
    """A file of which a bounded number of bytes is read at a time."""

    def __init__(self, file: BufferedReader | BytesIO, most: int) -> None:
        self.file, self.most = file, most

    def __getattr__(self, name: str) -> Any:
        return getattr(self.file, name)

    def read(self, count: int = -1) -> bytes:
        if count > self.most:
            raise ValueError(f"a list of members of {count:,} bytes, more than such an archive has")
        return self.file.read(count)


def open_archive(file: BufferedReader | BytesIO) -> ZipFile:
    """A zip archive whose list of members is bounded: it is read at once, and in memory takes ten times its bytes."""
    return ZipFile(BoundedFile(file, MEMBERS_BYTES))


def read_json(path: Path | str) -> Any:
    """The value in a JSON file."""
    return parse_json(read_regular_file(path, most=JSON_BYTES), path)


def parse_json(content: bytes | str, name: Path | str) -> Any:
    """The value that JSON text stands for; `name` is what errors call it.

    Raises:
        FileFormatError: it is not JSON, nested too deeply, too large, or has text that cannot be written again.
    """
    data = content.encode(errors="surrogatepass") if isinstance(content, str) else content
    if len(data) > JSON_BYTES or data.count(b"{") + data.count(b"[") > JSON_CONTAINERS:
        raise FileFormatError(f"{name} is damaged: its {len(data):,} bytes of JSON are more than such a file has.")
    try:
        text = data.decode(json.detect_encoding(data))  # strictly: `json.loads` of bytes lets halves of pairs pass
        value = json.loads(text)
        if "\\u" in text:
            json.dumps(value, ensure_ascii=False).encode()  # half of a surrogate pair cannot be written as UTF-8
    except (ValueError, RecursionError) as error:
        raise FileFormatError(f"{name} is damaged: it is not JSON ({error or 'nested too deeply'}).") from error
    return value
