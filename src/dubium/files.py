"""Files that appear whole or not at all: write beside, flush to disk, rename."""

import json
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def written_atomically(path: Path | str) -> Iterator[Path]:
    """A file beside `path` to write to; it becomes `path` when the block ends, and vanishes if the block raises."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}.part")
    try:
        beside.touch()
        mode = beside.stat().st_mode  # what the user's umask allows; some writers make files that nobody else can read
        yield beside
        beside.chmod(mode)
        _flush(beside)
        beside.replace(path)
    except BaseException:
        with suppress(FileNotFoundError):
            beside.unlink()
        raise
    _flush(path.parent)


def write_atomically(path: Path | str, content: bytes | str) -> None:
    """Write `content` (text as UTF-8) so that a crash leaves the old file or the new one."""
    with written_atomically(path) as beside:
        beside.write_bytes(content.encode() if isinstance(content, str) else content)


def write_json(path: Path | str, value: object) -> None:
    """Write `value` as JSON, atomically; NaN is refused, since other readers do not know it."""
    write_atomically(path, json.dumps(value, indent=1, allow_nan=False) + "\n")


def _flush(path: Path) -> None:
    """Wait until a file, or a folder's list of names, is on the disk; folders cannot be opened on every system."""
    try:
        handle = os.open(path, os.O_RDONLY)
    except PermissionError:
        return
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
