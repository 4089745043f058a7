"""Posteriors as folders: `posterior.json` and safetensors.

Networks of a list, of weight samples, and of anything else that yields networks are saved as they are, one file each;
tensors that all of them share are saved once. MC dropout saves its network, samples and seed; a `Gaussian` its mean,
standard deviations, factors, samples and seed: both are drawn again when loaded, and are the same functions.
"""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path
from typing import Any

from safetensors.torch import save as to_bytes
from torch import Tensor, nn

from dubium.choices import DEMO
from dubium.errors import FileFormatError, OptionError, PosteriorError, lookup
from dubium.files import write_atomically
from dubium.posteriors.architecture import Architecture, describe, trusted
from dubium.posteriors.ensemble import network_with, tensors_of
from dubium.posteriors.gaussian import Gaussian
from dubium.posteriors.known import KNOWN
from dubium.posteriors.mc_dropout import MCDropout
from dubium.posteriors.packing import (
    SHARED,
    gaussian_file,
    load_gaussian,
    load_members,
    member_files,
    normalised,
    without_normalisation,
)
from dubium.posteriors.record import FILE, KINDS, Record, read_record, write_record
from dubium.types import Posterior

MODELS = "DUBIUM_MODELS"
EMBEDDED = Path(__file__).parents[1] / DEMO / "posterior"


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
    """Save networks as a folder that `load_posterior` reads; files appear whole, `posterior.json` last.

    Args:
        architecture: what the networks are built from, so that they can be loaded without being told. Of a function
            or a network only the import path is remembered, and loading asks for it.
        kind: how the posterior was made, one of `KINDS`; by default what its type tells.
        classes: their names, in order.
        input_shape: of one image, (C, H, W).
        training: a record of it, as JSON.
    """
    kind = kind or ("mc-dropout" if isinstance(posterior, MCDropout) else default_kind(posterior))
    lookup("kind of posterior", dict.fromkeys(KINDS), kind)
    networks, sampling = networks_and_sampling(posterior)
    plain, normalisation = without_normalisation(networks)
    files = gaussian_file(posterior) if isinstance(posterior, Gaussian) else member_files(plain)
    content = {name: to_bytes(tensors) for name, tensors in files.items()}
    record = Record(
        kind=kind,
        members=[name for name in files if name != SHARED],
        shared=SHARED if SHARED in files else None,
        architecture=described(architecture, plain),
        sampling=sampling,
        classes=None if classes is None else list(classes),
        input_shape=None if input_shape is None else list(input_shape),
        normalisation=normalisation,
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
    """A saved posterior, from its folder or from its name under the folder `DUBIUM_MODELS`; "demo" is the embedded one.

    Args:
        architecture: of networks that are not dubium's own: an import path, a function, or a network to copy; one for
            all members, or a list. A file never makes its code be imported.
    """
    folder = posterior_folder(path)
    record = record_in(folder)
    architectures = per_member(architecture, record, str(folder / FILE))
    files = {str(folder / name): tensors_in(folder, name, record) for name in record.members}
    if record.sampling is None:
        shared = {} if record.shared is None else tensors_in(folder, record.shared, record)
        return load_members(architectures, files, shared, record.normalisation)
    if record.kind != "mc-dropout":
        return load_gaussian(architectures[0], files, record.normalisation, record.sampling)
    ((file, tensors),) = files.items()
    return MCDropout(normalised(network_with(architectures[0], tensors, file), record.normalisation), **record.sampling)


def posterior_record(path: str | Path) -> Record:
    """What is known about a saved posterior: its kind, class names, input shape, normalisation, training."""
    return record_in(posterior_folder(path))


def posterior_folder(path: str | Path) -> Path:
    """The folder called so, or the one of this name under `DUBIUM_MODELS`, or the embedded one if that is meant."""
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


def record_in(folder: Path) -> Record:
    return KNOWN[folder.name] if folder.name in KNOWN and not (folder / FILE).exists() else read_record(folder)


def tensors_in(folder: Path, name: str, record: Record) -> dict[str, Tensor]:
    try:
        content = (folder / name).read_bytes()
    except OSError as error:
        raise FileFormatError(f"{folder / name} cannot be read: {error.strerror or error}.") from error
    if sha256(content).hexdigest() != record.sha256.get(name, sha256(content).hexdigest()):
        raise FileFormatError(
            f"{folder / name} is not the file that {FILE} describes (its SHA-256 differs): it is damaged, or was saved "
            "again and interrupted. Save or copy the posterior again."
        )
    return tensors_of(content, folder / name)


def per_member(given: Architecture | Sequence[Architecture] | None, record: Record, file: str) -> list[Architecture]:
    """One architecture a member: what the caller gives, or else what the record may name."""
    count = len(record.members)
    if given is None:
        named = record.architecture if isinstance(record.architecture, list) else [record.architecture] * count
        return [trusted(architecture, file) for architecture in named]
    if isinstance(given, Sequence) and not isinstance(given, str):
        if len(given) != count:
            raise PosteriorError(f"{len(given)} architectures for {count} members; give one for all, or one for each.")
        return list(given)
    return [given] * count


def described(given: Architecture | Sequence[Architecture] | None, networks: Sequence[nn.Module]) -> Any:
    if given is None:
        origins = [describe(network) for network in networks]
        return origins[0] if all(origin == origins[0] for origin in origins) else origins
    if isinstance(given, Sequence) and not isinstance(given, str):
        if len(given) != len(networks):
            raise PosteriorError(f"{len(given)} architectures for {len(networks)} networks; give one, or one for each.")
        return [describe(architecture) for architecture in given]
    return describe(given)


def default_kind(posterior: Posterior) -> str:
    return "vi" if isinstance(posterior, Gaussian) else "ensemble"


def networks_and_sampling(posterior: Posterior) -> tuple[list[nn.Module], dict[str, int] | None]:
    """The networks to save, and how to draw from the one, if they are drawn."""
    if isinstance(posterior, MCDropout | Gaussian):
        network = posterior.network if isinstance(posterior, MCDropout) else posterior.mean
        return [network], {"samples": posterior.samples, "seed": posterior.seed}
    networks = list(posterior)
    if not networks:
        raise PosteriorError("The posterior is empty: there is nothing to save.")
    return networks, None
