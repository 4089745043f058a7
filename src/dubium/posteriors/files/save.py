"""Save posteriors as folders: `posterior.json` and safetensors.

Networks of a list, of weight samples, and of anything else that yields networks are saved as they are, one file each;
tensors that all of them share are saved once. MC dropout saves its network, samples and seed; a `Gaussian` its mean,
standard deviations, factors, samples and seed: both are drawn again when loaded, and are the same functions.
"""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, cast

from safetensors.torch import save as to_bytes
from torch import Tensor, nn

from dubium.class_names import check_class_names
from dubium.errors import DubiumError, FileFormatError, OptionError, PosteriorError, lookup
from dubium.files import write_atomically
from dubium.image_checks import check_input_shape
from dubium.models import Normalized
from dubium.models.architectures import misfits
from dubium.path_checks import check_folder_name
from dubium.posterior_kinds import DEFAULT_KIND, POSTERIOR_KINDS, Storage
from dubium.posteriors.adapters import as_posterior
from dubium.posteriors.files.architecture import Architecture, build_network, describe_architecture
from dubium.posteriors.files.class_count import check_names_of_network
from dubium.posteriors.files.load import PREFIX, TensorFiles
from dubium.posteriors.files.record import FILE, Record, read_record, write_record
from dubium.posteriors.gaussian import Gaussian
from dubium.posteriors.mc_dropout import FixedAlphaDropout, FixedDropout, MCDropout
from dubium.reading import read_json
from dubium.types import Posterior

SHARED = "shared.safetensors"


def save_posterior(
    posterior: Any,
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
        posterior: a list of networks, or anything that `as_posterior` takes: other libraries' objects are saved as the
            networks that are drawn.
        path: the folder; it is made if it does not exist, and a posterior that is there already is replaced.
        architecture: what the networks are built from, so that they can be loaded without it. Of a function or a
            network only the import path is recorded, and `load_posterior` needs the architecture again.
        kind: how the posterior was made, one of `POSTERIOR_KINDS`; by default what its type tells.
        classes: names of the classes, in order. With `input_shape` they are counted here; without it a wrong number of
            them is found only when the folder is used.
        input_shape: of one image, (C, H, W).
        training: a record of the training, as JSON.

    >>> from tempfile import TemporaryDirectory
    >>> from dubium import load_posterior
    >>> from dubium.models import cnn
    >>> small = {"name": "cnn", "options": {"filters": 2}}
    >>> with TemporaryDirectory() as folder:
    ...     save_posterior([cnn(filters=2), cnn(filters=2)], folder, architecture=small)
    ...     len(load_posterior(folder))
    2
    """
    check_folder_name(path)
    refuse_other_record(path)
    names = None if classes is None else check_class_names(classes, "classes")
    shape = None if input_shape is None else check_input_shape(input_shape)
    packed = pack_posterior(as_posterior(posterior))
    kind = kind or DEFAULT_KIND[packed.storage]
    lookup("kind of posterior", POSTERIOR_KINDS, kind)
    if packed.storage != "networks" and POSTERIOR_KINDS[kind].storage != packed.storage:
        raise OptionError(
            f"kind is {kind!r}, but a posterior of this type ({packed.storage}) can only be read again as one of "
            f"{', '.join(name for name, row in POSTERIOR_KINDS.items() if row.storage == packed.storage)}."
        )
    if names is not None and shape is not None:
        check_names_of_network(names, packed.networks[0], shape)
    if architecture is not None and packed.storage == "networks":
        check_architectures(architecture, packed.networks)
    content = {name: to_bytes(tensors) for name, tensors in packed.files.items()}
    record = Record(
        kind=kind,
        members=[name for name in packed.files if name != SHARED],
        shared=SHARED if SHARED in packed.files else None,
        architecture=describe_architectures(architecture, packed.networks),
        sampling=packed.sampling,
        classes=None if names is None else list(names),
        input_shape=None if shape is None else list(shape),
        normalisation=packed.normalisation,
        training=dict(training or {}),
        sha256={name: sha256(data).hexdigest() for name, data in content.items()},
    )
    try:
        json.dumps(asdict(record), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise OptionError(f"The architecture's options and the training record must be JSON: {error}.") from error
    earlier = recorded_files(path)
    refuse_own_weights(path, content)
    for name, data in content.items():
        write_atomically(Path(path) / name, data)
    write_record(path, record)
    for name in earlier - content.keys():
        (Path(path) / name).unlink(missing_ok=True)


def check_architectures(given: Architecture | Sequence[Architecture], networks: Sequence[nn.Module]) -> None:
    """Raise an error unless each network has the tensors of what its architecture builds: it could not be loaded.

    What only has a path is not imported for it.
    """
    is_list = isinstance(given, Sequence) and not isinstance(given, str)
    architectures = cast(Sequence[Any], given) if is_list else [given] * len(networks)
    outline, built = None, None
    for index, (architecture, network) in enumerate(zip(architectures, networks, strict=False)):
        if isinstance(architecture, str | Mapping) and "path" in describe_architecture(architecture):
            continue
        if outline is None or architecture is not built:
            outline, built = build_network(architecture, outline=True), architecture
        if problems := misfits(outline, network.state_dict()):
            raise OptionError(
                f"Network {index} does not fit the architecture, a {type(outline).__name__}: {'; '.join(problems[:3])}."
                " Give what it was built from."
            )


def refuse_other_record(path: str | Path) -> None:
    """Refuse a folder whose `posterior.json` is no posterior's: it is the user's own file."""
    file = Path(path) / FILE
    if not os.path.exists(file):
        return
    try:
        content = read_json(file)
    except FileFormatError:
        content = None
    if not isinstance(content, dict) or not {"kind", "members"} <= content.keys():
        raise OptionError(
            f"{file} is there, and is not of a saved posterior: it would be replaced. Choose another folder."
        )


def refuse_own_weights(path: str | Path, content: Mapping[str, bytes]) -> None:
    """Refuse a folder without `posterior.json` that has other weights under the names of those to be written."""
    if (Path(path) / FILE).exists():
        return
    for file in (Path(path) / name for name in content):
        if file.exists() and not (file.is_file() and file.read_bytes() == content[file.name]):
            raise OptionError(
                f"{file} is there without a {FILE} that would say what it is, and it would be replaced. Move it away, "
                "or choose another folder."
            )


def recorded_files(path: str | Path) -> set[str]:
    """The weight files of a posterior that is in the folder already; none where there is no whole record."""
    try:
        record = read_record(path)
    except DubiumError:
        return set()
    return {*record.members, *([] if record.shared is None else [record.shared])}


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


@dataclass(frozen=True)
class PackedPosterior:
    """What is written of a posterior.

    Args:
        networks: without the `Normalized` around them; the one that is drawn from, where `sampling` is given.
        normalisation: mean and std of the `Normalized` around all networks, if there is one.
        sampling: {"samples": ..., "seed": ...} of a posterior whose networks are drawn again when it is loaded.
    """

    storage: Storage
    networks: list[nn.Module]
    files: TensorFiles
    normalisation: dict[str, list[float]] | None
    sampling: dict[str, int] | None = None


def pack_posterior(posterior: Posterior) -> PackedPosterior:
    """The files of a posterior: MC dropout and `Gaussian` as what they are drawn from, others network by network."""
    if isinstance(posterior, MCDropout):
        networks, normalisation = without_normalisation([posterior.network])
        sampling = {"samples": posterior.samples, "seed": posterior.seed}
        return PackedPosterior("dropout", networks, member_files(networks), normalisation, sampling)
    if isinstance(posterior, Gaussian):
        networks, normalisation = without_normalisation([posterior.mean])
        sampling = {"samples": posterior.samples, "seed": posterior.seed}
        files = gaussian_file(posterior, networks[0], "" if normalisation is None else PREFIX)
        return PackedPosterior("gaussian", networks, files, normalisation, sampling)
    networks = list(posterior)
    if not networks:
        raise PosteriorError("The posterior is empty: there is nothing to save.")
    networks, normalisation = without_normalisation(networks)
    return PackedPosterior("networks", networks, member_files(networks), normalisation)


def without_normalisation(networks: Sequence[nn.Module]) -> tuple[list[nn.Module], dict[str, list[float]] | None]:
    """The networks inside `Normalized`, and the one mean and std of all of them; None if no network is wrapped."""
    wrapped = [network for network in networks if isinstance(network, Normalized)]
    found = [{"mean": n.mean.flatten().tolist(), "std": n.std.flatten().tolist()} for n in wrapped]
    if wrapped and (len(wrapped) < len(networks) or any(each != found[0] for each in found)):
        raise PosteriorError(
            f"{len(wrapped)} of {len(networks)} networks are Normalized, with {len({str(f) for f in found})} different "
            "means and stds; a saved posterior has one normalisation for all. Wrap all of them alike, or none."
        )
    return [n.network if isinstance(n, Normalized) else n for n in networks], found[0] if found else None


def member_files(networks: Sequence[nn.Module]) -> TensorFiles:
    """One file per network, and one for the tensors whose memory all networks share."""
    if any(isinstance(layer, FixedDropout | FixedAlphaDropout) for n in networks for layer in n.modules()):
        raise PosteriorError("The masks of single MC-dropout samples are not saved. Save the MCDropout object itself.")
    states = [tensor_state(network) for network in networks]
    common = {name for name, tensor in states[0].items() if len(states) > 1 and is_common(name, tensor, states)}
    files = {
        f"member-{index}.safetensors": {name: cpu_copy(t) for name, t in state.items() if name not in common}
        for index, state in enumerate(states)
    }
    return files | ({SHARED: {name: cpu_copy(states[0][name]) for name in sorted(common)}} if common else {})


def tensor_state(network: nn.Module) -> dict[str, Tensor]:
    """The network's state dict, which must hold tensors only."""
    state = network.state_dict()
    for name, value in state.items():
        if not isinstance(value, Tensor):
            raise PosteriorError(f"The state of the {type(network).__name__} has {name!r}, which is not a tensor.")
    return dict(state)


def is_common(name: str, tensor: Tensor, states: Sequence[Mapping[str, Tensor]]) -> bool:
    """Whether all networks have the same memory under this name."""
    return tensor.numel() > 0 and all(
        name in state and state[name].data_ptr() == tensor.data_ptr() and state[name].shape == tensor.shape
        for state in states
    )


def cpu_copy(tensor: Tensor) -> Tensor:
    """A contiguous copy on the CPU: safetensors refuses tensors that overlap in memory."""
    return tensor.detach().cpu().contiguous().clone()


def gaussian_file(posterior: Gaussian, mean: nn.Module, prefix: str) -> TensorFiles:
    """`mean/NAME`, `std/NAME` and `factors/NAME` in one file; `prefix` is what `Normalized` adds to the names."""
    groups = {"mean": tensor_state(mean), "std": posterior.std, "factors": posterior.factors}
    return {
        "gaussian.safetensors": {
            f"{group}/{name if group == 'mean' else name.removeprefix(prefix)}": cpu_copy(tensor)
            for group, tensors in groups.items()
            for name, tensor in tensors.items()
        }
    }
