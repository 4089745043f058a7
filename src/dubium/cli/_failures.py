"""Failures that are neither the user's mistake nor ours: a full disk, a read-only folder, a file that vanished."""

import errno
import os
import re

from dubium.files import PLACE_ADVICE

KEPT = "What is finished is kept: the same command goes on from there."
ADVICE = {
    **PLACE_ADVICE,
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT), f"Free some space on the disk. {KEPT}"),
    errno.EFBIG: f"Files may not become so large here (see ulimit -f). {KEPT}",
    errno.ENOENT: f"Was it moved or deleted while it was needed? {KEPT}",
    **dict.fromkeys((errno.EMFILE, errno.ENFILE), f"Too many files are open at a time (see ulimit -n). {KEPT}"),
}
FOREIGN_ERRNO = re.compile(r"\(os error (\d+)\)")  # as the library that writes safetensors says it
NO_MEMORY = ("can't allocate memory", "out of memory", "not enough memory")


def describe_failure(error: BaseException) -> str | None:
    """A sentence about what the system refused, and what to do; None for any other error."""
    number = system_errno(error)
    if number == errno.ENOMEM or isinstance(error, MemoryError) or any(text in str(error) for text in NO_MEMORY):
        return (
            f"There is not enough memory: {error or 'it could not be had'}. Try a smaller --memory or --batch. {KEPT}"
        )
    if isinstance(error, UnicodeEncodeError) and error.reason == "surrogates not allowed":
        return f"A file or folder has a name that is not UTF-8: {ascii(error.object)[:300]}. Rename it."
    if number is None:
        return None
    named = getattr(error, "filename", None)
    subject = f"{named}: " if named else ""
    return f"{subject}{os.strerror(number)}. {ADVICE.get(number, KEPT)}"


def system_errno(error: BaseException) -> int | None:
    """The number of the system's error, of Python or of a library that says it in words."""
    if isinstance(error, OSError):
        return error.errno
    found = FOREIGN_ERRNO.search(str(error)) if type(error).__name__ == "SafetensorError" else None
    return int(found[1]) if found else None
