"""Load what `save_posterior` saved: a list of networks, weight samples, MC dropout or a `Gaussian`."""

import os
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path

from torch import Tensor, nn

from dubium.checks import list_some
from dubium.choices import DEMO
from dubium.errors import FileFormatError, NetworkStateError, OptionError, PosteriorError, near_name_hint
from dubium.models import Normalized
from dubium.posterior_kinds import POSTERIOR_KINDS
from dubium.posteriors.files.architecture import Architecture, stored_architecture
from dubium.posteriors.files.record import FILE, Record, read_record
from dubium.posteriors.files.weight_files import network_with, read_tensors
from dubium.posteriors.gaussian import Gaussian
from dubium.posteriors.mc_dropout import MCDropout
from dubium.posteriors.weights import WeightSamples, named_shapes
from dubium.types import Posterior

MODELS = "DUBIUM_MODELS"
EMBEDDED = Path(__file__).parents[2] / DEMO / "posterior"
MOST_LISTED = 12  # names in a message
PREFIX = "network."  # how Normalized calls what it wraps
TensorFiles = dict[str, dict[str, Tensor]]
"""Tensors by name, by the name of their file."""

Normalisation = Mapping[str, Sequence[float]]
"""{"mean": [...], "std": [...]} of the channels."""


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
    return load_with_record(path, architecture)[0]


def load_with_record(
    path: str | Path, architecture: Architecture | Sequence[Architecture] | None = None
) -> tuple[Posterior, Record]:
    """What `load_posterior` and `posterior_record` return, from one reading of the record."""
    folder = posterior_folder(path)
    record = read_record(folder)
    architectures = member_architectures(architecture, record, str(folder / FILE))
    files = {str(folder / name): read_tensors(folder / name, record.sha256.get(name)) for name in record.members}
    if record.sampling is None:
        name = record.shared
        shared = {} if name is None else read_tensors(folder / name, record.sha256.get(name))
        return unpack_networks(architectures, files, shared, record.normalisation), record
    unpack = unpack_dropout if POSTERIOR_KINDS[record.kind].storage == "dropout" else unpack_gaussian
    return unpack(architectures[0], files, record.normalisation, record.sampling), record


def check_saved(posterior: object) -> str | Path:
    """The name or folder of a saved posterior, the only thing that `architecture=` is for."""
    if not isinstance(posterior, str | Path):
        raise OptionError(
            f"architecture= is for the name or folder of a saved posterior; the posterior is a "
            f"{type(posterior).__name__}. Leave it out."
        )
    return posterior


def posterior_record(path: str | Path) -> Record:
    """The record of a saved posterior: kind, class names, input shape, normalisation, training.

    >>> posterior_record("demo").kind
    'ensemble'
    """
    return read_record(posterior_folder(path))


def posterior_folder(path: str | Path) -> Path:
    """The folder `path`, or the one of this name under `DUBIUM_MODELS`, or for "demo" the one inside the package."""
    if not isinstance(path, str | Path):
        raise OptionError(
            f"The posterior's name is a {type(path).__name__}; the name or folder of a saved one is needed. Weight "
            "files are loaded by dubium.load_weights(Net, files)."
        )
    models = os.environ.get(MODELS)
    named = [Path(models) / path] if models else []
    for folder in [Path(path), *named]:
        if folder.is_dir() and (str(path) != DEMO or (folder / FILE).is_file()):
            return folder
    if str(path) == DEMO:
        return EMBEDDED
    if Path(path).is_file():
        if Path(path).name == FILE:
            parent = str(Path(path).parent)
            raise FileFormatError(f"{path} is a file of a saved posterior; give its folder, {parent!r}.")
        raise FileFormatError(
            f"{path} is a file; a posterior is a folder. Weights need the code that builds the network: "
            f"dubium.load_weights(Net, [{str(path)!r}]) in Python, module:function@{path} on the command line."
        )
    names = saved_posteriors(Path(models)) if models else []
    if models:
        where = f"nor under {MODELS}, which has {list_some(names, MOST_LISTED) or 'no saved posterior'}"
    else:
        where = f"and {MODELS}, the folder of named posteriors, is not set"
    beside = [str(Path(path).parent / name) for name in saved_posteriors(Path(path).parent)]
    hint = near_name_hint(path, [*beside, *names, DEMO])
    raise FileFormatError(
        f"There is no folder {str(path)!r} here, {where}.{hint} Networks of your own, and of other libraries, are "
        "built by a function: module:function@a.pt,b.pt on the command line, dubium.load_weights(function, files) in "
        "Python."
    )


def saved_posteriors(folder: Path) -> list[str]:
    """The names of the folders in a folder that are saved posteriors."""
    try:
        return sorted(file.parent.name for file in folder.glob(f"*/{FILE}"))
    except (OSError, ValueError):  # not ours to read, or no name of a folder
        return []


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


def unpack_networks(
    architectures: Sequence[Architecture],
    files: TensorFiles,
    shared: Mapping[str, Tensor],
    normalisation: Normalisation | None,
) -> list[nn.Module] | WeightSamples:
    """A list of networks; or weight samples of one network, where files share tensors."""
    if not shared:
        return [
            restore_normalisation(network_with(architecture, tensors, file), normalisation)
            for architecture, (file, tensors) in zip(architectures, files.items(), strict=True)
        ]
    first, own = next(iter(files.items()))
    network = network_with(architectures[0], {**shared, **own}, first, own_names=True)
    base = restore_normalisation(network, normalisation)
    known = named_shapes(base)
    prefix = "" if normalisation is None else PREFIX
    for file, tensors in files.items():
        wrong = sorted(tensors.keys() ^ own.keys()) or [n for n in own if tensors[n].shape != own[n].shape]
        if wrong:
            raise FileFormatError(f"{file} and {first} differ in {', '.join(wrong[:4])}; were they saved together?")
    weights = [{prefix + n: t for n, t in w.items() if prefix + n in known} for w in files.values()]
    return WeightSamples(base, weights)


def unpack_dropout(
    architecture: Architecture, files: TensorFiles, normalisation: Normalisation | None, sampling: Mapping[str, int]
) -> MCDropout:
    """MC dropout on the network of the one file."""
    ((file, tensors),) = files.items()
    network = restore_normalisation(network_with(architecture, tensors, file), normalisation)
    try:
        return MCDropout(network, **sampling)
    except NetworkStateError as error:
        raise FileFormatError(f"{file} is not of a network with dropout: {error}") from error


def unpack_gaussian(
    architecture: Architecture, files: TensorFiles, normalisation: Normalisation | None, sampling: Mapping[str, int]
) -> Gaussian:
    """The Gaussian whose mean, standard deviations and factors are in the one file."""
    ((file, tensors),) = files.items()
    groups: dict[str, dict[str, Tensor]] = {"mean": {}, "std": {}, "factors": {}}
    prefix = "" if normalisation is None else PREFIX
    for key, tensor in tensors.items():
        group, _, name = key.partition("/")
        if group not in groups:
            raise FileFormatError(f"{file} has a tensor {key!r}; expected mean/..., std/... and factors/...")
        groups[group][name if group == "mean" else prefix + name] = tensor
    mean = restore_normalisation(network_with(architecture, groups["mean"], file), normalisation)
    try:
        return Gaussian(mean, groups["std"], groups["factors"], **sampling)
    except (PosteriorError, IndexError, TypeError) as error:
        raise FileFormatError(f"{file} does not fit its architecture: {error}") from error


def restore_normalisation(network: nn.Module, normalisation: Normalisation | None) -> nn.Module:
    """The network inside `Normalized`, or itself for None."""
    return network if normalisation is None else Normalized(network, normalisation["mean"], normalisation["std"]).eval()
