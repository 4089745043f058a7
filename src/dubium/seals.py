"""A seal: a SHA-256 inside the file that it is of, by which damage to any of its bytes is noticed.

The writer puts `BLANK_SEAL` somewhere into the file, where its format has room for a text, and `seal_file` replaces the
zeros by the digest of the file as it was with them. A seal finds damage, not malice.
"""

import json
from hashlib import sha256
from io import BufferedIOBase, BytesIO
from pathlib import Path
from typing import Any

from dubium.errors import FileFormatError
from dubium.files import write_atomically
from dubium.reading import JSON_BYTES, open_regular_file, parse_json, read_regular_file

MARK = b"dubium-sha256:"
DIGITS = 64
BLANK_SEAL = MARK.decode() + "0" * DIGITS
LARGEST = 2**40
PART = 2**22  # bytes of a file at a time
SEAL, VALUES = "seal", "values"  # of a JSON file


def seal_file(path: Path | str) -> None:
    """Write the digest into a file that has a blank seal."""
    with Path(path).open("r+b") as file:
        at = find_mark(file)
        assert at is not None, f"{path} has no blank seal"
        digest = file_digest(file, at)
        file.seek(at)
        file.write(digest)


def check_seal(path: Path | str) -> bool:
    """Raise `FileFormatError` if a file has a seal and is not, byte for byte, the one that was sealed.

    The file is read in parts, and not mapped into memory: a map of a file that is cut meanwhile ends the process.

    Returns:
        Whether the file has a seal; older versions of dubium wrote none.
    """
    with open_regular_file(path, most=LARGEST) as file:
        at = find_mark(file)
        if at is None:
            return False
        file.seek(at)
        if file.read(DIGITS) != file_digest(file, at):
            raise damage_of(path)
        return True


def find_mark(file: BufferedIOBase) -> int | None:
    """Where the digits of a file's seal begin; None without one."""
    file.seek(0)
    begin, part = 0, file.read(PART)
    while (at := part.find(MARK)) < 0:
        more = file.read(PART)
        if not more:
            return None
        kept = part[1 - len(MARK) :]  # the mark may lie across two parts
        begin, part = begin + len(part) - len(kept), kept + more
    return begin + at + len(MARK)


def file_digest(file: BufferedIOBase, at: int) -> bytes:
    """The digest of a file with zeros for the digits at a place, in hexadecimal digits."""
    digest, left = sha256(), at
    file.seek(0)
    while left and (part := file.read(min(PART, left))):
        digest.update(part)
        left -= len(part)
    digest.update(b"0" * DIGITS)
    file.seek(at + DIGITS)
    while part := file.read(PART):
        digest.update(part)
    return digest.hexdigest().encode()


RUN_AGAIN = " Delete it and start the same command again: what is missing is made again."


def damage_of(path: Path | str, advice: str = RUN_AGAIN) -> FileFormatError:
    """The error about a file that is not what was sealed."""
    return FileFormatError(f"{path} is damaged: it is not, byte for byte, what dubium wrote.{advice}")


def is_sealed(content: bytes) -> bool:
    """Whether a file's bytes have a seal and are those that were sealed."""
    file = BytesIO(content)
    at = find_mark(file)
    return at is not None and content[at : at + DIGITS] == file_digest(file, at)


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
