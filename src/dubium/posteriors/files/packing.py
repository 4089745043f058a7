"""Which tensors of a posterior go into which safetensors file, and back."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor, nn

from dubium.errors import FileFormatError, NetworkStateError, PosteriorError
from dubium.models import Normalized
from dubium.posterior_kinds import Storage
from dubium.posteriors.files.architecture import Architecture
from dubium.posteriors.files.weight_files import network_with
from dubium.posteriors.gaussian import Gaussian
from dubium.posteriors.mc_dropout import FixedAlphaDropout, FixedDropout, MCDropout
from dubium.posteriors.weights import WeightSamples, named_shapes
from dubium.types import Posterior

SHARED = "shared.safetensors"
PREFIX = "network."  # how Normalized calls what it wraps
TensorFiles = dict[str, dict[str, Tensor]]
"""Tensors by name, by the name of their file."""

Normalisation = Mapping[str, Sequence[float]]
"""{"mean": [...], "std": [...]} of the channels."""


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


def restore_normalisation(network: nn.Module, normalisation: Normalisation | None) -> nn.Module:
    """The network inside `Normalized`, or itself for None."""
    return network if normalisation is None else Normalized(network, normalisation["mean"], normalisation["std"]).eval()


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
    base = restore_normalisation(network_with(architectures[0], {**shared, **own}, first), normalisation)
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
