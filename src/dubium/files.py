"""Files that appear whole or not at all (write beside, flush, rename); the refusal of a folder with other settings."""

import errno
import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeGuard

from dubium.errors import DubiumError, OptionError, UnwritableError

LONGEST = 150  # bytes of a name; file systems take 255, and `written_atomically` adds some
PART = re.compile(r"\..+\.\d+-[0-9a-f]{8}\.part")  # what `written_atomically` leaves when it is killed

PLACE_ADVICE = {
    **dict.fromkeys((errno.EACCES, errno.EPERM, errno.EROFS), "Choose another folder, or change who may write to it."),
    **dict.fromkeys((errno.EEXIST, errno.ENOTDIR, errno.EISDIR), "A file is where a folder has to be, or the reverse."),
    **dict.fromkeys((errno.ELOOP, errno.ENAMETOOLONG), "Choose another name."),
    errno.ENOENT: "Nothing can be made there. Choose another folder.",
}
"""What to do about a place where the system makes no file or folder, by the error's number."""


@contextmanager
def refuse_unwritable(path: Path | str) -> Iterator[None]:
    """Say of which place it is, and what to do, where the system makes no file or folder within the block."""
    try:
        yield
    except OSError as error:
        if isinstance(error, DubiumError) or error.errno not in PLACE_ADVICE:
            raise
        place = error.filename if error.errno == errno.EEXIST else path
        raise UnwritableError(f"{place}: {os.strerror(error.errno)}. {PLACE_ADVICE[error.errno]}") from error


@contextmanager
def written_atomically(path: Path | str) -> Iterator[Path]:
    """A file beside `path` to write to; it becomes `path` when the block ends, and vanishes if the block raises."""
    path = Path(path)
    beside = path.with_name(f".{path.name}.{os.getpid()}-{os.urandom(4).hex()}.part")
    with refuse_unwritable(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        beside.touch()
    try:
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


def short_file_name(name: str) -> str:
    """The end of a name, if it is so long that no file could be called so with a number before it."""
    return name.encode(errors="replace")[-LONGEST:].decode(errors="ignore")


def write_json(path: Path | str, value: object) -> None:
    """Write `value` as JSON, atomically; NaN is refused, since other readers do not know it."""
    write_atomically(path, json.dumps(value, indent=1, allow_nan=False) + "\n")


def check_same_settings(
    folder: Path | str, there: Mapping[str, Any], here: Mapping[str, Any], *, advice: str = "Use another folder."
) -> None:
    """Refuse a folder whose files were made with other settings; the error names every difference.

    Args:
        there: the settings in the folder, as JSON gave them.
        here: those of this run, as JSON can hold them.
        advice: what the user can do.
    """
    differences = _differences(there, json.loads(json.dumps(here)))
    if differences:
        raise OptionError(f"{folder} belongs to a run with other settings: {'; '.join(differences)}. {advice}")


def check_recorded(
    folder: Path | str, there: Mapping[str, Any], here: Mapping[str, Any], *, advice: str = "Use another folder."
) -> None:
    """Refuse a folder whose settings lack a name that this run has: nobody can know what its results are of."""
    missing = [name for name, value in here.items() if value is not None and name not in there]
    if missing:
        raise OptionError(
            f"{folder} was made by an earlier version of dubium, which did not record {', '.join(missing)}: it cannot "
            f"be continued. {advice}"
        )


def _differences(there: Mapping[str, Any], here: Mapping[str, Any], prefix: str = "") -> list[str]:
    """Every value that differs, with the path of its name; digests, which say little, come last."""
    texts: list[str] = []
    digests: list[str] = []
    for name in {**here, **there}:
        before, now = there.get(name), here.get(name)
        if isinstance(before, dict) and isinstance(now, dict):
            texts += _differences(before, now, f"{prefix}{name}.")
        elif before != now:
            text = f"{prefix}{name} is {_value_text(before)} there, {_value_text(now)} here"
            (digests if _is_digest(before) or _is_digest(now) else texts).append(text)
    return texts + digests


def _value_text(value: object) -> str:
    return "not given" if value is None else repr(value[:12]) if _is_digest(value) else repr(value)


def _is_digest(value: object) -> TypeGuard[str]:
    return isinstance(value, str) and re.fullmatch("[0-9a-f]{64}", value) is not None


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
