"""Save and load posteriors as folders: `posterior.json` and safetensors.

Networks of a list, of weight samples, and of anything else that yields networks are saved as they are, one file each;
tensors that all of them share are saved once. MC dropout saves its network, samples and seed; a `Gaussian` its mean,
standard deviations, factors, samples and seed: both are drawn again when loaded, and are the same functions.
"""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from typing import Any

from safetensors.torch import save as to_bytes
from torch import Tensor, nn

from dubium.choices import DEMO
from dubium.errors import FileFormatError, OptionError, PosteriorError, lookup
from dubium.files import write_atomically
from dubium.posterior_kinds import DEFAULT_KIND, POSTERIOR_KINDS
from dubium.posteriors.files.architecture import Architecture, describe_architecture, stored_architecture
from dubium.posteriors.files.packing import SHARED, pack_posterior, unpack_dropout, unpack_gaussian, unpack_networks
from dubium.posteriors.files.record import FILE, Record, read_record, write_record
from dubium.posteriors.files.weight_files import parse_tensors, read_weight_bytes
from dubium.types import Posterior

MODELS = "DUBIUM_MODELS"
EMBEDDED = Path(__file__).parents[2] / DEMO / "posterior"


def save_posterior(
    posterior: Posterior,
    path: str | Path,
    *,
    architecture: Architecture | Sequence[Architecture] | None = None,
    kind: str | None = None,
    classes: Sequence[str] | None = None,
    input_shape: Sequence[int] | None = None,
    training: Mapping[str, Any] | None = None,
) -> None:
    """Save a posterior as a folder that `load_posterior` reads; files appear whole, `posterior.json` last.

    Args:
        posterior: a list of networks, or any posterior of `dubium.posteriors`.
        path: the folder; it is made if it does not exist.
        architecture: what the networks are built from, so that they can be loaded without it. Of a function or a
            network only the import path is recorded, and `load_posterior` needs the architecture again.
        kind: how the posterior was made, one of `POSTERIOR_KINDS`; by default what its type tells.
        classes: names of the classes, in order.
        input_shape: of one image, (C, H, W).
        training: a record of the training, as JSON.

    >>> from tempfile import TemporaryDirectory
    >>> from dubium.models import cnn
    >>> small = {"name": "cnn", "options": {"filters": 2}}
    >>> with TemporaryDirectory() as folder:
    ...     save_posterior([cnn(filters=2), cnn(filters=2)], folder, architecture=small)
    ...     len(load_posterior(folder))
    2
    """
    packed = pack_posterior(posterior)
    kind = kind or DEFAULT_KIND[packed.storage]
    lookup("kind of posterior", POSTERIOR_KINDS, kind)
    if packed.storage != "networks" and POSTERIOR_KINDS[kind].storage != packed.storage:
        raise OptionError(
            f"kind is {kind!r}, but a posterior of this type ({packed.storage}) can only be read again as one of "
            f"{', '.join(name for name, row in POSTERIOR_KINDS.items() if row.storage == packed.storage)}."
        )
    content = {name: to_bytes(tensors) for name, tensors in packed.files.items()}
    record = Record(
        kind=kind,
        members=[name for name in packed.files if name != SHARED],
        shared=SHARED if SHARED in packed.files else None,
        architecture=describe_architectures(architecture, packed.networks),
        sampling=packed.sampling,
        classes=None if classes is None else list(classes),
        input_shape=None if input_shape is None else list(input_shape),
        normalisation=packed.normalisation,
        training=dict(training or {}),
        sha256={name: sha256(data).hexdigest() for name, data in content.items()},
    )
    try:
        json.dumps(asdict(record), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise OptionError(f"The architecture's options and the training record must be JSON: {error}.") from error
    for name, data in content.items():
        write_atomically(Path(path) / name, data)
    write_record(path, record)


def load_posterior(path: str | Path, architecture: Architecture | Sequence[Architecture] | None = None) -> Posterior:
    """Load a saved posterior.

    Args:
        path: its folder, or its name under the folder `DUBIUM_MODELS`; "demo" is the one inside the package.
        architecture: of networks that are not dubium's own: an import path, a function, or a network to copy; one for
            all members, or a list. Code is never imported because a file names it.

    Returns:
        The networks, in eval mode: a list, or a posterior that draws the same networks as the saved one.

    >>> len(load_posterior("demo"))
    5
    """
    folder = posterior_folder(path)
    record = read_record(folder)
    architectures = member_architectures(architecture, record, str(folder / FILE))
    files = {str(folder / name): read_member(folder, name, record) for name in record.members}
    if record.sampling is None:
        shared = {} if record.shared is None else read_member(folder, record.shared, record)
        return unpack_networks(architectures, files, shared, record.normalisation)
    unpack = unpack_dropout if POSTERIOR_KINDS[record.kind].storage == "dropout" else unpack_gaussian
    return unpack(architectures[0], files, record.normalisation, record.sampling)


def posterior_record(path: str | Path) -> Record:
    """The record of a saved posterior: kind, class names, input shape, normalisation, training.

    >>> posterior_record("demo").kind
    'ensemble'
    """
    return read_record(posterior_folder(path))


def posterior_folder(path: str | Path) -> Path:
    """The folder `path`, or the one of this name under `DUBIUM_MODELS`, or for "demo" the one inside the package."""
    models = os.environ.get(MODELS)
    named = [Path(models) / path] if models else []
    for folder in [Path(path), *named]:
        if folder.is_dir() and (str(path) != DEMO or (folder / FILE).is_file()):
            return folder
    if str(path) == DEMO:
        return EMBEDDED
    if models:
        names = sorted(folder.name for folder in Path(models).glob("*") if folder.is_dir())
        where = f"nor under {MODELS}, which has {', '.join(names) or 'nothing'}"
    else:
        where = f"and {MODELS}, the folder of named posteriors, is not set"
    raise FileFormatError(f"There is no folder {str(path)!r} here, {where}.")


def read_member(folder: Path, name: str, record: Record) -> dict[str, Tensor]:
    """The tensors of one file of the folder, whose SHA-256 must be the record's."""
    content = read_weight_bytes(folder / name)
    if sha256(content).hexdigest() != record.sha256.get(name, sha256(content).hexdigest()):
        raise FileFormatError(
            f"{folder / name} is not the file that {FILE} describes (its SHA-256 differs): it is damaged, or was saved "
            "again and interrupted. Save or copy the posterior again."
        )
    return parse_tensors(content, folder / name)


def member_architectures(
    given: Architecture | Sequence[Architecture] | None, record: Record, file: str
) -> list[Architecture]:
    """One architecture per member: the caller's, or else the record's if it is one of dubium's own."""
    count = len(record.members)
    if given is None:
        named = record.architecture if isinstance(record.architecture, list) else [record.architecture] * count
        known = [stored_architecture(named[0], file)]
        for before, architecture in pairwise(named):  # alike for most posteriors, and then looked at once
            known.append(known[-1] if architecture == before else stored_architecture(architecture, file))
        return list(known)
    if isinstance(given, Sequence) and not isinstance(given, str):
        if len(given) != count:
            raise PosteriorError(f"{len(given)} architectures for {count} members; give one for all, or one for each.")
        return list(given)
    return [given] * count


def describe_architectures(given: Architecture | Sequence[Architecture] | None, networks: Sequence[nn.Module]) -> Any:
    """What the record says of the architecture: one description, or a list with one per network."""
    if given is None:
        origins = [describe_architecture(network) for network in networks]
        return origins[0] if all(origin == origins[0] for origin in origins) else origins
    if isinstance(given, Sequence) and not isinstance(given, str):
        if len(given) != len(networks):
            raise PosteriorError(f"{len(given)} architectures for {len(networks)} networks; give one, or one for each.")
        return [describe_architecture(architecture) for architecture in given]
    return describe_architecture(given)
