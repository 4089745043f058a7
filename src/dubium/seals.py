"""A seal: a SHA-256 inside the file that it is of, by which damage to any of its bytes is noticed.

The writer puts `BLANK_SEAL` somewhere into the file, where its format has room for a text, and `seal_file` replaces the
zeros by the digest of the file as it was with them. A seal finds damage, not malice.
"""

import json
import mmap
from hashlib import sha256
from pathlib import Path
from typing import Any

from dubium.errors import FileFormatError
from dubium.files import write_atomically
from dubium.reading import JSON_BYTES, open_regular_file, parse_json, read_regular_file

MARK = b"dubium-sha256:"
DIGITS = 64
BLANK_SEAL = MARK.decode() + "0" * DIGITS
LARGEST = 2**40
SEAL, VALUES = "seal", "values"  # of a JSON file


def seal_file(path: Path | str) -> None:
    """Write the digest into a file that has a blank seal."""
    with Path(path).open("r+b") as file, mmap.mmap(file.fileno(), 0) as content:
        at = content.find(BLANK_SEAL.encode()) + len(MARK)
        assert at >= len(MARK), f"{path} has no blank seal"
        content[at : at + DIGITS] = sha256(content).hexdigest().encode()


def check_seal(path: Path | str) -> bool:
    """Raise `FileFormatError` if a file has a seal and is not, byte for byte, the one that was sealed.

    Returns:
        Whether the file has a seal; older versions of dubium wrote none.
    """
    with open_regular_file(path, most=LARGEST) as file:
        try:
            content: mmap.mmap | bytes = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (ValueError, OSError):  # an empty file, or a file system that cannot do it
            content = file.read()
    if content.find(MARK) < 0:
        return False
    if not is_sealed(content):
        raise damage_of(path)
    return True


def damage_of(path: Path | str) -> FileFormatError:
    """The error about a file that is not what was sealed."""
    return FileFormatError(
        f"{path} is damaged: it is not, byte for byte, what dubium wrote. Delete it and start the same command again: "
        "what is missing is made again."
    )


def is_sealed(content: bytes | mmap.mmap) -> bool:
    """Whether a file's bytes have a seal and are those that were sealed."""
    at = content.find(MARK) + len(MARK)
    written = content[at : at + DIGITS]
    digest = sha256()
    with memoryview(content) as view:
        digest.update(view[:at])
        digest.update(b"0" * DIGITS)
        digest.update(view[at + DIGITS :])
    return at >= len(MARK) and written == digest.hexdigest().encode()


def write_sealed_json(path: Path | str, value: object) -> None:
    """Write `value` as JSON with a seal, atomically; NaN is refused, since other readers do not know it."""
    write_atomically(path, sealed_json({SEAL: BLANK_SEAL, VALUES: value}))


def sealed_json(value: object) -> bytes:
    """A value that has one blank seal as JSON, sealed."""
    content = json.dumps(value, indent=1, allow_nan=False).encode() + b"\n"
    digest = sha256(content).hexdigest().encode()
    return content.replace(BLANK_SEAL.encode(), MARK + digest, 1)


def read_sealed_json(path: Path | str) -> Any:
    """What `write_sealed_json` wrote; a JSON file of an older dubium has no seal, and is returned as it is."""
    content = read_regular_file(path, most=JSON_BYTES)
    value = parse_json(content, path)
    if MARK not in content and not (isinstance(value, dict) and {SEAL, VALUES} & value.keys()):
        return value
    if not isinstance(value, dict) or value.keys() != {SEAL, VALUES} or not is_sealed(content):
        raise damage_of(path)
    return value[VALUES]
