"""Which tensors of a posterior go into which safetensors file, and back."""

from collections.abc import Mapping, Sequence

from torch import Tensor, nn

from dubium.errors import FileFormatError, PosteriorError
from dubium.models import Normalized
from dubium.posteriors.architecture import Architecture
from dubium.posteriors.ensemble import network_with
from dubium.posteriors.gaussian import Gaussian
from dubium.posteriors.mc_dropout import FixedAlphaDropout, FixedDropout
from dubium.posteriors.weights import WeightSamples, named_shapes

SHARED = "shared.safetensors"
PREFIX = "network."  # how Normalized calls what it wraps
Files = dict[str, dict[str, Tensor]]
Scaling = Mapping[str, Sequence[float]]


def without_normalisation(networks: Sequence[nn.Module]) -> tuple[list[nn.Module], dict[str, list[float]] | None]:
    """What `Normalized` wraps, and the one mean and std it does it with."""
    wrapped = [network for network in networks if isinstance(network, Normalized)]
    found = [{"mean": n.mean.flatten().tolist(), "std": n.std.flatten().tolist()} for n in wrapped]
    if wrapped and (len(wrapped) < len(networks) or any(scaling != found[0] for scaling in found)):
        raise PosteriorError(
            f"{len(wrapped)} of {len(networks)} networks are Normalized, with {len({str(f) for f in found})} different "
            "means and stds; a saved posterior has one normalisation for all. Wrap all of them alike, or none."
        )
    return [n.network if isinstance(n, Normalized) else n for n in networks], found[0] if found else None


def normalised(network: nn.Module, scaling: Scaling | None) -> nn.Module:
    return network if scaling is None else Normalized(network, scaling["mean"], scaling["std"]).eval()


def member_files(networks: Sequence[nn.Module]) -> Files:
    """One file a network, and one for the tensors that all networks hold in common."""
    if any(isinstance(layer, FixedDropout | FixedAlphaDropout) for n in networks for layer in n.modules()):
        raise PosteriorError("The masks of single MC-dropout samples are not saved. Save the MCDropout object itself.")
    states = [state_of(network) for network in networks]
    common = {name for name, tensor in states[0].items() if len(states) > 1 and is_common(name, tensor, states)}
    files = {
        f"member-{index}.safetensors": {name: stored(t) for name, t in state.items() if name not in common}
        for index, state in enumerate(states)
    }
    return files | ({SHARED: {name: stored(states[0][name]) for name in sorted(common)}} if common else {})


def state_of(network: nn.Module) -> dict[str, Tensor]:
    state = network.state_dict()
    for name, value in state.items():
        if not isinstance(value, Tensor):
            raise PosteriorError(f"The state of the {type(network).__name__} has {name!r}, which is not a tensor.")
    return dict(state)


def is_common(name: str, tensor: Tensor, states: Sequence[Mapping[str, Tensor]]) -> bool:
    """Whether all networks hold the very same memory under this name."""
    return tensor.numel() > 0 and all(
        name in state and state[name].data_ptr() == tensor.data_ptr() and state[name].shape == tensor.shape
        for state in states
    )


def stored(tensor: Tensor) -> Tensor:
    """Its own memory, on the CPU: safetensors refuses tensors that overlap."""
    return tensor.detach().cpu().contiguous().clone()


def load_members(
    architectures: Sequence[Architecture], files: Files, shared: Mapping[str, Tensor], scaling: Scaling | None
) -> list[nn.Module] | WeightSamples:
    """A list of networks; weight samples of one network, where tensors are shared."""
    if not shared:
        return [
            normalised(network_with(architecture, tensors, file), scaling)
            for architecture, (file, tensors) in zip(architectures, files.items(), strict=True)
        ]
    first, own = next(iter(files.items()))
    base = normalised(network_with(architectures[0], {**shared, **own}, first), scaling)
    known = named_shapes(base)
    prefix = "" if scaling is None else PREFIX
    for file, tensors in files.items():
        wrong = sorted(tensors.keys() ^ own.keys()) or [n for n in own if tensors[n].shape != own[n].shape]
        if wrong:
            raise FileFormatError(f"{file} and {first} differ in {', '.join(wrong[:4])}; were they saved together?")
    return WeightSamples(base, [{prefix + n: t for n, t in w.items() if prefix + n in known} for w in files.values()])


def gaussian_file(posterior: Gaussian) -> Files:
    """`mean/NAME`, `std/NAME` and `factors/NAME` in one file."""
    (mean,), scaling = without_normalisation([posterior.mean])
    prefix = "" if scaling is None else PREFIX
    groups = {"mean": state_of(mean), "std": posterior.std, "factors": posterior.factors}
    return {
        "gaussian.safetensors": {
            f"{group}/{name if group == 'mean' else name.removeprefix(prefix)}": stored(tensor)
            for group, tensors in groups.items()
            for name, tensor in tensors.items()
        }
    }


def load_gaussian(
    architecture: Architecture, files: Files, scaling: Scaling | None, sampling: Mapping[str, int]
) -> Gaussian:
    ((file, tensors),) = files.items()
    groups: dict[str, dict[str, Tensor]] = {"mean": {}, "std": {}, "factors": {}}
    prefix = "" if scaling is None else PREFIX
    for key, tensor in tensors.items():
        group, _, name = key.partition("/")
        if group not in groups:
            raise FileFormatError(f"{file} has a tensor {key!r}; expected mean/..., std/... and factors/...")
        groups[group][name if group == "mean" else prefix + name] = tensor
    mean = normalised(network_with(architecture, groups["mean"], file), scaling)
    try:
        return Gaussian(mean, groups["std"], groups["factors"], **sampling)
    except (PosteriorError, IndexError) as error:
        raise FileFormatError(f"{file} does not fit its architecture: {error}") from error
