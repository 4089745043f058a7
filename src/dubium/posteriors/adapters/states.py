"""States of the library `posteriors`: what it has learnt about the weights of a network, without the network."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from dubium.errors import PosteriorTypeError
from dubium.posteriors.gaussian import Gaussian, check_samples
from dubium.posteriors.optional_imports import import_extra
from dubium.posteriors.weights import WeightSamples, snapshot, with_weights
from dubium.types import Posterior


def from_states(network: nn.Module, states: Sequence[Any], samples: int = 20, seed: int = 0) -> Posterior:
    """Networks with the weights of each state of a chain (SGLD, SGHMC, ...), or drawn from one Gaussian state.

    Args:
        network: whose weights were learnt, by their names; it is not changed.
        states: one of a Laplace approximation, of variational inference or of a Kalman filter; or those of a chain.
        samples: the number of networks to draw from a Gaussian state.
        seed: of the draws.
    """
    check_samples(samples)
    if len(states) > 1:
        return WeightSamples(network, [named_weights(state.params) for state in states])
    (state,) = states
    std, factors = diagonal_std(state), dense_factors(state)
    if not std and not factors:
        return WeightSamples(network, [named_weights(state.params)])
    mean = with_weights(snapshot(network), named_weights(state.params))
    return Gaussian(mean, std, factors, samples=samples, seed=seed)


def diagonal_std(state: Any) -> dict[str, Tensor]:
    """The standard deviation of each weight, if the state is that of independent normal distributions."""
    for name, convert in (("log_sd_diag", torch.exp), ("sd_diag", torch.abs), ("prec_diag", torch.rsqrt)):
        if hasattr(state, name):
            return {key: convert(value) for key, value in named_weights(getattr(state, name)).items()}
    return {}


def dense_factors(state: Any) -> dict[str, Tensor]:
    """Directions (R, *shape) whose products add up to the covariance of all weights, if the state has one."""
    if hasattr(state, "prec"):
        columns = torch.linalg.inv(torch.linalg.cholesky(state.prec))  # L'L is the inverse of the precision
    elif hasattr(state, "cov"):
        columns = torch.linalg.cholesky(state.cov).T
    elif hasattr(state, "L_factor"):
        columns = import_extra("posteriors.utils", "posteriors").L_from_flat(state.L_factor).T
    else:
        return {}
    _, unravel = import_extra("optree.integrations.torch", "posteriors").tree_ravel(state.params)
    directions = [named_weights(unravel(column)) for column in columns.detach()]
    return {name: torch.stack([one[name] for one in directions]) for name in directions[0]}


def named_weights(tree: Any) -> dict[str, Tensor]:
    """The weights by name, as `dict(network.named_parameters())` is."""
    if not isinstance(tree, Mapping) and not hasattr(tree, "items"):
        raise PosteriorTypeError(
            f"The state's params are a {type(tree).__name__}; weights by name are needed, as they are if the state was "
            "made of dict(network.named_parameters())."
        )
    return {str(name): value.detach() for name, value in tree.items()}
