"""A seal: a SHA-256 inside the file that it is of, by which damage to any of its bytes is noticed.

The writer puts `BLANK_SEAL` somewhere into the file, where its format has room for a text, and `seal_file` replaces the
zeros by the digest of the file as it was with them. A seal finds damage, not malice.
"""

import mmap
from hashlib import sha256
from pathlib import Path

from dubium.errors import FileFormatError
from dubium.reading import open_regular_file

MARK = b"dubium-sha256:"
DIGITS = 64
BLANK_SEAL = MARK.decode() + "0" * DIGITS
LARGEST = 2**40


def seal_file(path: Path | str) -> None:
    """Write the digest into a file that has a blank seal."""
    with Path(path).open("r+b") as file, mmap.mmap(file.fileno(), 0) as content:
        at = content.find(BLANK_SEAL.encode()) + len(MARK)
        assert at >= len(MARK), f"{path} has no blank seal"
        content[at : at + DIGITS] = sha256(content).hexdigest().encode()


def check_seal(path: Path | str, *, required: bool) -> None:
    """Raise `FileFormatError` unless the file is, byte for byte, the one that was sealed.

    Args:
        required: whether a file without a seal is refused too; older versions of dubium wrote none.
    """
    with open_regular_file(path, most=LARGEST) as file:
        try:
            content: mmap.mmap | bytes = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (ValueError, OSError):  # an empty file, or a file system that cannot do it
            content = file.read()
    if not is_sealed(content, required=required):
        raise FileFormatError(
            f"{path} is damaged: it is not, byte for byte, what dubium wrote. Delete it, and start the same command "
            "again to have it made again."
        )


def is_sealed(content: bytes | mmap.mmap, *, required: bool = True) -> bool:
    """Whether a file's bytes are those that were sealed; without a seal, whether none is required."""
    at = content.find(MARK)
    if at < 0:
        return not required
    at += len(MARK)
    written = content[at : at + DIGITS]
    digest = sha256()
    with memoryview(content) as view:
        digest.update(view[:at])
        digest.update(b"0" * DIGITS)
        digest.update(view[at + DIGITS :])
    return written == digest.hexdigest().encode()
