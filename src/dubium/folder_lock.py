"""Folders that have one owner at a time.

A folder's lock is one on an open file, which the system releases however the owner ends: `flock` on Linux and macOS,
`msvcrt.locking` on Windows. On a network folder it holds between machines where the server keeps locks (NFS with its
lock service, SMB); where the file system has none, a warning says so.
"""

import errno
import json
import os
import shlex
import socket
import stat
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from datetime import datetime
from pathlib import Path

from dubium.errors import FolderInUseError, OptionError
from dubium.files import PART, refuse_unwritable
from dubium.path_checks import check_folder_name

LOCK = ".dubium-lock"
BEYOND = 2**30  # the byte that Windows locks: others must be able to read those before it
LINK_REFUSED = getattr(os, "O_NOFOLLOW", 0)
OTHERS = "Somebody else put it there: delete it, or choose another folder."
HELD = (errno.EACCES, errno.EAGAIN, errno.EDEADLK)
UNSUPPORTED = (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)
OWNED: ContextVar[frozenset[Path]] = ContextVar("folders that this call owns", default=frozenset())


@contextmanager
def own_folder(folder: Path | str) -> Iterator[None]:
    """Make the folder this process's for the block, or raise `FolderInUseError` if another has it.

    A block inside of another on the same folder is part of it. What a killed owner left unfinished is deleted.
    """
    place = Path(os.path.realpath(folder))  # `Path.resolve` raises at a loop of links
    if place in OWNED.get():
        yield
        return
    check_folder_name(folder)
    is_new = not place.exists()
    with refuse_unwritable(folder):
        place.mkdir(parents=True, exist_ok=True)
        handle = lock_file(place)
    token = OWNED.set(OWNED.get() | {place})
    try:
        write_owner(handle)
        delete_unfinished_files(place)
        yield
    finally:
        OWNED.reset(token)
        release_file(place / LOCK, handle)
        if is_new:
            with suppress(OSError):
                place.rmdir()  # nothing came of it


def lock_file(folder: Path) -> int:
    """An open file with a lock on it, which is still in the folder after the lock was taken."""
    file = folder / LOCK
    while True:
        handle = open_lock_file(file)
        try:
            lock_handle(handle)
        except OSError as error:
            if error.errno in UNSUPPORTED:
                warnings.warn(
                    f"{folder} is on a file system without locks, so that a second run on it would not be noticed.",
                    stacklevel=4,
                )
                return handle
            owner = describe_owner(handle)
            os.close(handle)
            if error.errno in HELD:
                raise FolderInUseError(
                    f"{folder} is in use by {owner}. Wait until it has ended, or choose another folder."
                ) from error
            raise
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(handle), os.stat(file)):
                return handle
        os.close(handle)  # the owner before deleted it between our opening and locking


def open_lock_file(file: Path) -> int:
    """Open or make the lock's file; what is behind a link is another's file, which is not ours to write to."""
    try:
        handle = os.open(file, os.O_RDWR | os.O_CREAT | LINK_REFUSED | getattr(os, "O_NONBLOCK", 0), 0o666)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EISDIR, errno.ENXIO):
            raise OptionError(f"{file} is a link, a folder or a pipe. {OTHERS}") from error
        raise
    found = os.fstat(handle)
    if not stat.S_ISREG(found.st_mode) or found.st_nlink > 1:
        os.close(handle)
        raise OptionError(f"{file} is not a file of dubium's, or has a second name. {OTHERS}")
    return handle


def lock_handle(handle: int) -> None:
    """Lock an open file, or raise at once."""
    if sys.platform == "win32":
        import msvcrt

        os.lseek(handle, BEYOND, os.SEEK_SET)
        msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
    else:
        import fcntl

        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)


def release_file(file: Path, handle: int) -> None:
    """Delete the lock's file while this process has the lock, and close it, which releases the lock."""
    if sys.platform == "win32":  # an open file cannot be deleted there: it stays, and is of no harm
        import msvcrt

        os.lseek(handle, BEYOND, os.SEEK_SET)
        with suppress(OSError):
            msvcrt.locking(handle, msvcrt.LK_UNLCK, 1)
    else:
        with suppress(OSError):
            if os.path.samestat(os.fstat(handle), os.stat(file)):
                file.unlink()
    os.close(handle)


def write_owner(handle: int) -> None:
    """Write who we are into the lock's file, for others to read."""
    command = shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]]) if sys.argv else ""
    started = datetime.now().astimezone().isoformat(timespec="seconds")
    content = {"pid": os.getpid(), "host": socket.gethostname(), "started": started, "command": command}
    os.lseek(handle, 0, os.SEEK_SET)
    os.ftruncate(handle, 0)
    with suppress(OSError):  # on a full disk, others do not learn our name
        os.write(handle, json.dumps(content).encode())


def describe_owner(handle: int) -> str:
    """What the lock's file says about its owner."""
    try:
        os.lseek(handle, 0, os.SEEK_SET)
        owner = json.loads(os.read(handle, 2**16))
        return f"process {owner['pid']} on {owner['host']} since {owner['started']} ({owner['command']})"
    except (OSError, ValueError, KeyError, TypeError):
        return "another process"


def delete_unfinished_files(folder: Path) -> None:
    """Delete what killed runs left half written; folders inside that have an owner of their own are left alone."""
    for inner, folders, files in os.walk(folder):
        if LOCK in files and Path(inner) != folder:
            folders.clear()
            continue
        for name in files:
            if PART.fullmatch(name):
                with suppress(OSError):
                    (Path(inner) / name).unlink()
