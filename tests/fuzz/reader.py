"""What a reader under test is: honest files, how they are damaged and read, and how results are told apart."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dubium.seals import MARK
from tests.fuzz.mutations import reseal

Files = dict[str, bytes]
"""The bytes of each file of a folder, by its path in it."""


@dataclass(frozen=True)
class FuzzReader:
    """One reader.

    Args:
        samples: write honest files into an empty folder each.
        damage: from honest files and a random generator to damaged ones.
        read: what the library makes of a folder; anything that `digest_of` takes.
        is_sealed: whether a checksum in the damaged files covers what was damaged.
    """

    samples: tuple[Callable[[Path], Any], ...]
    damage: Callable[[Files, Random], Files]
    read: Callable[[Path], Any]
    is_sealed: Callable[[Files, Files], bool] = lambda _before, _after: False


def digest_of(value: Any) -> str:
    """A digest by which two results are told apart."""
    digest = sha256()
    update(digest, value)
    return digest.hexdigest()


def update(digest: Any, value: Any) -> None:
    if isinstance(value, Tensor):
        digest.update(f"{value.dtype} {tuple(value.shape)}".encode())
        digest.update(value.detach().contiguous().view(-1).view(torch.uint8).numpy().data if value.numel() else b"")
    elif isinstance(value, np.ndarray):
        digest.update(f"{value.shape}".encode())
        digest.update(np.ascontiguousarray(value).tobytes())
    elif isinstance(value, Mapping):
        for name in sorted(value, key=str):
            update(digest, (name, value[name]))
    elif isinstance(value, list | tuple):
        digest.update(b"(")
        for item in value:
            update(digest, item)
        digest.update(b")")
    else:
        digest.update(f"{value!r};".encode(errors="surrogatepass"))


def one_file(mutate: Callable[[bytes, Random], bytes], ending: str = "") -> Callable[[Files, Random], Files]:
    """Damage to one of the files that end so."""

    def damage(files: Files, random: Random) -> Files:
        name = random.choice(sorted(name for name in files if name.endswith(ending)))
        return {**files, name: mutate(files[name], random)}

    return damage


def seal_covers(before: Files, after: Files) -> bool:
    """Whether the files that were damaged still have their seals, and these were not made anew."""
    changed = [name for name in before if before[name] != after.get(name)]
    return bool(changed) and all(MARK in after[name] and reseal(after[name]) != after[name] for name in changed)


def maybe_reseal(damage: Callable[[Files, Random], Files]) -> Callable[[Files, Random], Files]:
    """The same damage; every second time the seals are made anew, so that what lies behind them is reached."""

    def damage_and_reseal(files: Files, random: Random) -> Files:
        found = damage(files, random)
        if random.random() < 0.5:
            return {name: content if content == files.get(name) else reseal(content) for name, content in found.items()}
        return found

    return damage_and_reseal
