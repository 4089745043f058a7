"""`posterior.json`: the description of a saved posterior, checked when it is read."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from dubium.errors import FileFormatError
from dubium.files import write_json
from dubium.path_checks import is_evaluation_folder
from dubium.posterior_kinds import POSTERIOR_KINDS
from dubium.posteriors.files.no_weights import weights_within
from dubium.reading import read_json

FORMAT = 1
FILE = "posterior.json"
BEGUN = "training.json"  # what a training writes first
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
        if (file.parent / BEGUN).is_file() and not (file.parent / "vae.json").is_file():
            raise FileFormatError(
                f"The training in {folder} is not finished: there is a {BEGUN}, but no {FILE} yet. The same `dubium "
                "train` command goes on where it stopped."
            ) from error
        what = f" {folder} has an evaluation." if is_evaluation_folder(file.parent) else ""
        raise FileFormatError(
            f"{error}{what} A saved posterior is a folder with this file.{weights_within(folder)}"
        ) from error
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        found = content.get("format") if isinstance(content, dict) else type(content).__name__
        raise FileFormatError(
            f"{file} has format {found!r}; this version of dubium reads format {FORMAT}. Is it a posterior of dubium's?"
        )
    for name, is_valid in check_values(content).items():
        if not is_valid:
            raise FileFormatError(f"{file}: {name!r} is {short_repr(content.get(name))}; expected {EXPECTED[name]}.")
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


def check_values(content: Mapping[str, Any]) -> dict[str, bool]:
    """Whether each value of a record is what `EXPECTED` says; the file may be anybody's."""
    kind, members, shared, classes = (content.get(name) for name in ("kind", "members", "shared", "classes"))
    sampling, shape, normalisation = (content.get(name) for name in ("sampling", "input_shape", "normalisation"))
    training, digests = content.get("training"), content.get("sha256")
    sizes = shape if isinstance(shape, list) and all(type(size) is int and size > 0 for size in shape) else [2 * INPUTS]
    return {
        "kind": isinstance(kind, str) and kind in POSTERIOR_KINDS,
        "members": isinstance(members, list) and len(members) > 0 and all(map(is_file_name, members)),
        "shared": shared is None or is_file_name(shared),
        "sampling": sampling is None or is_sampling(sampling),
        "classes": classes is None or (isinstance(classes, list) and all(isinstance(name, str) for name in classes)),
        "input_shape": shape is None or math.prod(sizes) <= INPUTS,
        "normalisation": normalisation is None or is_normalisation(normalisation),
        "training": training is None or isinstance(training, dict),
        "sha256": digests is None
        or (isinstance(digests, dict) and all(isinstance(digest, str) for digest in digests.values())),
    }


EXPECTED = {
    "kind": f"one of {', '.join(POSTERIOR_KINDS)}",
    "members": "a list of safetensors files in this folder",
    "shared": "a safetensors file in this folder, or null",
    "sampling": f'null or {{"samples": 1 to {SAMPLES:,}, "seed": ...}}',
    "classes": "a list of names, or null",
    "input_shape": f"a list of sizes whose product is at most {INPUTS:,}, or null",
    "normalisation": 'null or {"mean": [...], "std": [...]} with std above 0',
    "training": "an object",
    "sha256": "an object with one hexadecimal text a file",
}


def is_file_name(value: Any) -> bool:
    """A file of the same folder: a foreign record must not make us read elsewhere."""
    return (
        isinstance(value, str) and value.endswith(".safetensors") and not set("/\\:") & set(value) and value[0] != "."
    )


def is_sampling(value: Any) -> bool:
    """A number of networks, and a seed that torch takes."""
    if not isinstance(value, dict) or value.keys() != {"samples", "seed"}:
        return False
    samples, seed = value["samples"], value["seed"]
    return type(samples) is int and 0 < samples <= SAMPLES and type(seed) is int and -(2**63) <= seed < 2**64


def is_normalisation(value: Any) -> bool:
    """As many means as standard deviations, which float32 can hold and divide by."""
    numbers = [value.get(name) for name in ("mean", "std")] if isinstance(value, dict) else [None]
    if not all(
        isinstance(n, list) and all(type(one) in (int, float) and abs(one) < 1e30 for one in n) for n in numbers
    ):
        return False
    return len(value["mean"]) == len(value["std"]) > 0 and min(value["std"]) > 1e-30
