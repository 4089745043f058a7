"""`posterior.json`: the description of a saved posterior, checked when it is read."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from dubium.errors import FileFormatError
from dubium.files import write_json
from dubium.posterior_kinds import POSTERIOR_KINDS
from dubium.reading import read_json

FORMAT = 1
FILE = "posterior.json"
SAMPLES = 10_000  # networks that a record may ask to be drawn
INPUTS = 10**9  # numbers of an image that a record may ask for


@dataclass(frozen=True)
class Record:
    """Everything about a saved posterior except its tensors.

    Args:
        kind: one of `POSTERIOR_KINDS`.
        architecture: {"name": ..., "options": {...}} of `dubium.models`, {"path": ..., "options": {...}} of the user's
            own code, or None; or a list of them, one per member.
        members: safetensors files in the same folder.
        shared: a safetensors file of the tensors that all members have in common.
        sampling: for kinds that are drawn anew: {"samples": ..., "seed": ...}; then there is one member.
        normalisation: {"mean": [...], "std": [...]} of the channels, for images in [0, 1].
        training: a record of the training, as JSON.
        sha256: of each file, in hexadecimal; a file that is not listed is not checked.
    """

    kind: str
    members: Sequence[str]
    architecture: Any = None
    shared: str | None = None
    sampling: Mapping[str, int] | None = None
    classes: Sequence[str] | None = None
    input_shape: Sequence[int] | None = None
    normalisation: Mapping[str, Sequence[float]] | None = None
    training: Mapping[str, Any] = field(default_factory=dict)
    sha256: Mapping[str, str] = field(default_factory=dict)


def write_record(folder: str | Path, record: Record) -> None:
    """Write `posterior.json`; do so last, so that a folder with this file is whole."""
    write_json(Path(folder) / FILE, {"format": FORMAT, **asdict(record)})


def read_record(folder: str | Path) -> Record:
    """Read and check `posterior.json`."""
    file = Path(folder) / FILE
    try:
        content = read_json(file)
    except FileNotFoundError as error:
        raise FileFormatError(f"{error} A saved posterior is a folder with this file.") from error
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        found = content.get("format") if isinstance(content, dict) else type(content).__name__
        raise FileFormatError(
            f"{file} has format {found!r}; this version of dubium reads format {FORMAT}. Is it a posterior of dubium's?"
        )
    for name, (valid, expected) in CHECKS.items():
        if not valid(content.get(name)):
            raise FileFormatError(f"{file}: {name!r} is {short_repr(content.get(name))}; expected {expected}.")
    if len(set(content["members"])) < len(content["members"]):
        raise FileFormatError(f"{file}: a file stands twice among its members, {short_repr(content['members'])}.")
    one, many = content.get("sampling") is not None, isinstance(content.get("architecture"), list)
    if one and len(content["members"]) != 1:
        raise FileFormatError(f"{file}: a posterior with 'sampling' has one member, not {len(content['members'])}.")
    if many and len(content["architecture"]) != len(content["members"]):
        raise FileFormatError(
            f"{file}: {len(content['architecture'])} architectures for {len(content['members'])} members."
        )
    known = {name: content[name] for name in Record.__dataclass_fields__ if content.get(name) is not None}
    return Record(**known)


def short_repr(value: Any) -> str:
    """What an error shows of a value, which may be megabytes of text."""
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:200]}..."


def _is_list(of: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, list) and all(map(of, value))


def _is_file(value: Any) -> bool:
    """A file of the same folder: a foreign record must not make us read elsewhere."""
    return (
        isinstance(value, str) and value.endswith(".safetensors") and not set("/\\:") & set(value) and value[0] != "."
    )


def _is_number(value: Any) -> bool:
    """A number that float32 can hold."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e30


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _is_sampling(value: Any) -> bool:
    if not isinstance(value, dict) or value.keys() != {"samples", "seed"}:
        return False
    seed, is_seed = value["seed"], type(value["seed"]) is int
    return _is_count(value["samples"]) and value["samples"] <= SAMPLES and is_seed and -(2**63) <= seed < 2**64


def _is_shape(value: Any) -> bool:
    return _is_list(_is_count)(value) and math.prod(value) <= INPUTS


def _is_normalisation(value: Any) -> bool:
    if not isinstance(value, dict) or not all(_is_list(_is_number)(value.get(name)) for name in ("mean", "std")):
        return False
    return len(value["mean"]) == len(value["std"]) > 0 and min(value["std"]) > 1e-30


def _or_none(valid: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: value is None or valid(value)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_kind(value: Any) -> bool:
    return isinstance(value, str) and value in POSTERIOR_KINDS


CHECKS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "kind": (_is_kind, f"one of {', '.join(POSTERIOR_KINDS)}"),
    "members": (lambda value: bool(value) and _is_list(_is_file)(value), "a list of safetensors files in this folder"),
    "shared": (_or_none(_is_file), "a safetensors file in this folder, or null"),
    "sampling": (_or_none(_is_sampling), f'null or {{"samples": 1 to {SAMPLES:,}, "seed": ...}}'),
    "classes": (_or_none(_is_list(_is_text)), "a list of names, or null"),
    "input_shape": (_or_none(_is_shape), f"a list of sizes whose product is at most {INPUTS:,}, or null"),
    "normalisation": (_or_none(_is_normalisation), 'null or {"mean": [...], "std": [...]} with std above 0'),
    "training": (_or_none(lambda value: isinstance(value, dict)), "an object"),
    "sha256": (
        _or_none(lambda value: isinstance(value, dict) and all(map(_is_text, value.values()))),
        "an object with one hexadecimal text a file",
    ),
}
