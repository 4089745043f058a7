"""Networks that differ in some of their weights only."""

from collections.abc import Iterator, Mapping, Sequence, Sized
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from dubium.checks import count_text
from dubium.errors import NetworkStateError, PosteriorError


def snapshot(network: nn.Module, replaced: Mapping[int, Any] | None = None) -> nn.Module:
    """A copy in eval mode that needs no gradients; the caller's network may go on training.

    Args:
        replaced: what stands for an object of the network (a layer, a tensor) in the copy, by the object's `id`;
            wherever the object occurs, it is replaced, so that tied weights stay tied.
    """
    try:
        copy = deepcopy(network, dict(replaced or {}))
    except torch.OutOfMemoryError:
        raise
    except RuntimeError as error:
        raise NetworkStateError(
            f"The {type(network).__name__} cannot be copied: {error}. A network whose weights are computed by a hook "
            "(torch.nn.utils.weight_norm, spectral_norm) can, once it uses torch.nn.utils.parametrizations instead."
        ) from error
    for parameter in copy.parameters():
        if parameter.requires_grad:  # asked for, because inside torch.func even turning off nothing is an error
            parameter.requires_grad_(False)
    return copy.eval()


def with_weights(network: nn.Module, weights: Mapping[str, Tensor]) -> nn.Module:
    """A copy with other values for the named parameters and buffers.

    Parameters that are not named are shared with `network`, buffers are copied. No weight is ever written in place, so
    that one backward pass through several such copies is right.
    """
    replaced: dict[int, Any] = {id(parameter): parameter for parameter in network.parameters()}
    for name, tensor in [*network.named_parameters(), *network.named_buffers()]:
        if name in weights:
            value = weights[name].detach()
            replaced[id(tensor)] = (
                nn.Parameter(value, requires_grad=False) if isinstance(tensor, nn.Parameter) else value
            )
    return snapshot(network, replaced)


def named_shapes(network: nn.Module) -> dict[str, torch.Size]:
    """The shape of every parameter and buffer; a tied one has its first name only."""
    return {name: tensor.shape for name, tensor in [*network.named_parameters(), *network.named_buffers()]}


def check_weights(network: nn.Module, weights: Mapping[str, Tensor], what: str) -> None:
    """Raise an error unless all names and shapes are the network's."""
    shapes = named_shapes(network)
    for name, value in weights.items():
        if name not in shapes:
            raise PosteriorError(
                f"{what} names {name!r}, which the {type(network).__name__} does not have. It has {', '.join(shapes)}."
            )
        if value.shape != shapes[name]:
            raise PosteriorError(
                f"{what} has shape {tuple(value.shape)} for {name!r}; the {type(network).__name__} has "
                f"{tuple(shapes[name])}."
            )


def describe_posterior(posterior: Sized, network: object) -> str:
    """A posterior in one line, without its tensors.

    >>> describe_posterior([nn.Identity()] * 3, nn.Identity())
    'list(Identity: 3 networks)'
    """
    name = getattr(network, "__name__", type(network).__name__)
    seed = f", seed {posterior.seed}" if hasattr(posterior, "seed") else ""
    return f"{type(posterior).__name__}({name}: {count_text(len(posterior), 'network')}{seed})"


@dataclass(frozen=True, eq=False, repr=False)
class WeightSamples:
    """One network with several values for some of its weights; the other weights are stored once.

    Values are kept as they are given, but for those that are the network's own tensors, which are copied.

    >>> network = nn.Linear(2, 2)
    >>> posterior = WeightSamples(network, [{"bias": torch.zeros(2)}, {"bias": torch.ones(2)}])
    >>> [sample.bias.tolist() for sample in posterior]
    [[0.0, 0.0], [1.0, 1.0]]
    >>> posterior
    WeightSamples(Linear: 2 networks)
    """

    network: nn.Module
    weights: Sequence[Mapping[str, Tensor]]

    def __post_init__(self) -> None:
        own = {tensor.data_ptr() for tensor in self.network.state_dict().values() if isinstance(tensor, Tensor)}
        object.__setattr__(self, "network", snapshot(self.network))
        if not self.weights:
            raise PosteriorError("WeightSamples was given no weights; give one mapping from names to tensors a sample.")
        for index, weights in enumerate(self.weights):
            check_weights(self.network, weights, f"Sample {index}")
        copies = [{n: w.detach().clone() if w.data_ptr() in own else w for n, w in one.items()} for one in self.weights]
        object.__setattr__(self, "weights", copies)

    def __repr__(self) -> str:
        return describe_posterior(self, self.network)

    def __len__(self) -> int:
        return len(self.weights)

    def __iter__(self) -> Iterator[nn.Module]:
        for weights in self.weights:
            yield with_weights(self.network, weights)
