"""The posterior that settings name: a saved one, the embedded one, or what a function of the user's returns."""

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import torch
from torch import nn

from dubium.errors import OptionError, PosteriorTypeError
from dubium.models import Normalized
from dubium.posteriors import as_posterior, load_posterior, load_weights, posterior_record
from dubium.posteriors.files.architecture import import_path
from dubium.run.demo import NAME as DEMO
from dubium.run.demo import demo_folder
from dubium.types import Posterior


@dataclass(frozen=True)
class Opened:
    """Networks, and what is known about them."""

    posterior: Posterior
    kind: str | None = None
    classes: tuple[str, ...] | None = None
    input_shape: tuple[int, ...] | None = None


def open_posterior(named: Mapping[str, Any]) -> Opened:
    """Load or build the networks. A factory is imported, so pass only what the user typed, never what a file says."""
    if "run" in named:
        where = demo_folder() / "posterior" if named["run"] == DEMO else named["run"]
        record = posterior_record(where)
        posterior = load_posterior(where, named.get("architecture"))
        classes, shape = record.classes, record.input_shape
        return Opened(
            with_normalisation(posterior, named),
            record.kind,
            None if classes is None else tuple(classes),
            None if shape is None else tuple(shape),
        )
    return Opened(from_factory(named))


def from_factory(named: Mapping[str, Any]) -> Posterior:
    """One network with weights, or a whole posterior."""
    factory, weights = import_path(named["factory"]), list(named.get("weights") or ())
    if weights:
        return load_weights(factory, weights, named.get("mean"), named.get("std"))
    try:
        with torch.random.fork_rng(devices=[]):
            built = factory()
    except Exception as error:
        raise OptionError(f"{named['factory']} raised {type(error).__name__}: {error}.") from error
    try:
        return with_normalisation(as_posterior(built), named)
    except PosteriorTypeError as error:
        raise OptionError(
            f"{named['factory']} gave a {type(built).__name__}. If it is one network, name its weight files with "
            f"--weights; otherwise let it return a list of trained networks. ({error})"
        ) from error


def with_normalisation(posterior: Posterior, named: Mapping[str, Any]) -> Posterior:
    mean, std = named.get("mean"), named.get("std")
    if (mean is None) != (std is None):
        raise OptionError(f"mean is {mean} and std is {std}; give both, or neither.")
    if mean is None or std is None:
        return posterior
    return [Normalized(network, mean, std).eval() for network in posterior]


def digest(posterior: Posterior) -> str:
    """A SHA-256 of all weights, by which two runs know that they mean the same networks."""
    found = sha256()
    for network in posterior:
        for name, tensor in network.state_dict().items():
            found.update(name.encode())
            found.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    return found.hexdigest()


def channels(posterior: Posterior) -> int | None:
    """What the first convolution takes, where an input shape is not known."""
    network = next(iter(posterior))
    first = next((layer for layer in network.modules() if isinstance(layer, nn.Conv2d)), None)
    return None if first is None else first.in_channels


def dtype(posterior: Posterior) -> torch.dtype:
    """The floating type of the weights."""
    parameters = (p for p in next(iter(posterior)).parameters() if p.is_floating_point())
    return next((p.dtype for p in parameters), torch.float32)
