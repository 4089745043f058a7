"""Seeded damage: to bytes, to JSON values, to safetensors headers. The same random generator gives the same damage."""

import json
from collections.abc import Callable
from hashlib import sha256
from random import Random
from typing import Any

from dubium.seals import DIGITS, MARK

BYTES = (0, 1, 0x20, 0x30, 0x7F, 0x80, 0xFF)
NUMBERS = (0, 1, 2, 255, 2**15, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 1, 2**62, 2**63 - 1, 2**64 - 1)
VALUES: tuple[Any, ...] = (
    *(None, True, False, -1, 0, 1, 7, 0.5, 1e308, -1e308, 2**31, 2**63, 2**70, 10**12, 10**400, 10**15),
    *(float("nan"), float("inf"), "", "a", "a" * 3000, "\ud800", "\0", "../x", "/dev/zero", "1", "cnn", "__class__"),
    *([], {}, [[]], [None], {"": None}, [0] * 300, {"a": {"a": {}}}, ["total"], [1, 2, 3]),
)
DEPTH = 3000  # of a value that is nested deeply


def mutate_bytes(content: bytes, random: Random) -> bytes:
    """The bytes after one to four kinds of damage."""
    data = bytearray(content)
    for _ in range(random.choice((1, 1, 1, 2, 3, 4))):
        random.choice(BYTE_DAMAGE)(data, random)
    return bytes(data)


def place(data: bytearray, random: Random) -> int:
    """A place in the bytes; often near their beginning or end, where formats say what follows."""
    if not data:
        return 0
    near = min(len(data), 400)
    kind = random.random()
    if kind < 0.4:
        return random.randrange(near)
    return len(data) - 1 - random.randrange(near) if kind < 0.6 else random.randrange(len(data))


def flip_bit(data: bytearray, random: Random) -> None:
    if data:
        data[place(data, random)] ^= 1 << random.randrange(8)


def set_byte(data: bytearray, random: Random) -> None:
    if data:
        data[place(data, random)] = random.choice((*BYTES, random.randrange(256)))


def set_number(data: bytearray, random: Random) -> None:
    size, at = random.choice((2, 4, 8)), place(data, random)
    number = random.choice(NUMBERS) % 2 ** (8 * size)
    data[at : at + size] = number.to_bytes(size, random.choice(("little", "big")))


def insert_bytes(data: bytearray, random: Random) -> None:
    at = place(data, random)
    data[at:at] = random.randbytes(random.choice((1, 2, 4, 30)))


def delete_bytes(data: bytearray, random: Random) -> None:
    at = place(data, random)
    del data[at : at + random.choice((1, 2, 4, 8, 100))]


def repeat_bytes(data: bytearray, random: Random) -> None:
    at, size = place(data, random), random.choice((1, 8, 50, 500))
    data[at:at] = bytes(data[at : at + size]) * random.choice((1, 2, 20))


def cut_bytes(data: bytearray, random: Random) -> None:
    del data[place(data, random) :]


BYTE_DAMAGE: tuple[Callable[[bytearray, Random], None], ...] = (
    *(flip_bit, flip_bit, set_byte, set_byte, set_number, set_number),
    *(insert_bytes, delete_bytes, repeat_bytes, cut_bytes),
)


def mutate_json(content: bytes, random: Random) -> bytes:
    """JSON after one to three changes of its values, names or nesting; one time in ten, other bytes."""
    if random.random() < 0.1:
        return mutate_bytes(content, random)
    value = json.loads(content)
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        value = mutate_value(value, random)
    text = json.dumps(value)
    if random.random() < 0.02:
        text = text.replace("null", "[" * DEPTH + "]" * DEPTH, 1) if "null" in text else "[" * DEPTH
    return text.encode()


def mutate_value(value: Any, random: Random) -> Any:
    """A value with one change, somewhere inside."""
    if isinstance(value, dict) and value and random.random() < 0.85:
        name = random.choice(list(value))
        return mutate_entry(value, name, random)
    if isinstance(value, list) and value and random.random() < 0.8:
        at = random.randrange(len(value))
        changed = [*value]
        changed[at : at + 1] = random.choice(([], [mutate_value(value[at], random)], [value[at]] * 2))
        return changed
    kind = random.random()
    if kind < 0.2 and isinstance(value, int | float) and abs(value) < 1e15:
        return value * random.choice((-1, 2, 1000, 10**9)) + random.choice((0, 1, 0.5))
    if kind < 0.3:
        return random.choice(([value], {"a": value}, str(value)))
    return random.choice(VALUES)


def mutate_entry(value: dict[str, Any], name: str, random: Random) -> dict[str, Any]:
    """An object without a name, with one more, with another name for a value, or with another value."""
    kind = random.random()
    if kind < 0.12:
        return {other: item for other, item in value.items() if other != name}
    if kind < 0.2:
        return {**value, random.choice(("extra", "", name.upper(), name + "s")): random.choice(VALUES)}
    if kind < 0.26:
        return {(name + "_" if other == name else other): item for other, item in value.items()}
    return {**value, name: mutate_value(value[name], random)}


def mutate_safetensors(content: bytes, random: Random) -> bytes:
    """A safetensors file with damage to its bytes, or to the JSON of its header."""
    if random.random() < 0.4:
        return mutate_bytes(content, random)
    size = int.from_bytes(content[:8], "little")
    header, data = json.loads(content[8 : 8 + size]), content[8 + size :]
    metadata = header.get("__metadata__", {})
    if metadata and random.random() < 0.4:
        name = random.choice(list(metadata))
        header["__metadata__"] = {
            **metadata,
            name: mutate_json(metadata[name].encode(), random).decode(errors="replace"),
        }
    else:
        header = mutate_value(header, random)
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def reseal(content: bytes) -> bytes:
    """The bytes with the seal that they ought to have: damage by somebody who knows how files are sealed."""
    at = content.find(MARK)
    if at < 0 or len(content) < at + len(MARK) + DIGITS:
        return content
    at += len(MARK)
    digest = sha256(content[:at] + b"0" * DIGITS + content[at + DIGITS :]).hexdigest().encode()
    return content[:at] + digest + content[at + DIGITS :]
