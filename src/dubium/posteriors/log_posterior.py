"""The log posterior of a classifier's weights, and epochs of the algorithms of `posteriors` on it.

The library (Duffield et al., 2024, arXiv:2406.00104) gives SGHMC and variational inference as pure updates of a state.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.functional import cross_entropy

from dubium.errors import NetworkError
from dubium.posteriors.optional_imports import import_extra
from dubium.seeds import temporary_seed

LogPosterior = Callable[[Mapping[str, Tensor], Any], tuple[Tensor, Tensor]]
"""`(weights, batch) -> (log posterior / number of images, anything)`; its temperature is 1 / number of images."""

OnSamplerEpoch = Callable[[int, dict[str, Tensor]], None]
"""Called after each epoch with (epochs done, tensors to resume from)."""

Resume = tuple[int, Mapping[str, Tensor]]
"""What an `OnSamplerEpoch` was called with."""


def classification_log_posterior(network: nn.Module, image_count: int, prior_std: float) -> LogPosterior:
    """Mean log likelihood of a batch (x, labels), plus log density of independent normal weights / `image_count`.

    The network runs in the mode it is in: in eval mode, BatchNorm keeps its statistics and dropout is off.
    """

    def log_posterior(weights: Mapping[str, Tensor], batch: Any) -> tuple[Tensor, Tensor]:
        x, labels = batch
        with explain_function_errors():
            logits = functional_call(network, dict(weights.items()), (x,))
        squares = torch.stack([weight.square().sum() for weight in weights.values()]).sum()
        return -cross_entropy(logits, labels) - squares / (2 * prior_std**2 * image_count), logits

    return log_posterior


@contextmanager
def explain_function_errors() -> Iterator[None]:
    """Within, an error of `torch.func`, which the library uses, about a `torch.autograd.Function` says what to do."""
    try:
        yield
    except RuntimeError as error:
        if "setup_context" not in str(error):
            raise
        raise NetworkError(
            "The network has a torch.autograd.Function without setup_context, which SGHMC and variational inference "
            "cannot differentiate, since they use torch.func. Write its forward without ctx, and what ctx keeps in a "
            "staticmethod setup_context(ctx, inputs, output); or take another posterior: a list of networks, "
            "MCDropout, or SWAG."
        ) from error


def run_epoch(transform: Any, state: Any, batches: Iterable[Any], seed: int) -> Any:
    """One update per batch; the same seed, state and batches give the same state."""
    with temporary_seed(seed):
        for batch in batches:
            state, _ = transform.update(state, batch)  # not in place: the library's states share their defaults
    return state


def tensors_of_state(state: Any) -> dict[str, Tensor]:
    """The state's tensors, by their place in it."""
    leaves = import_extra("optree", "posteriors").tree_leaves(state_fields(state))
    return {f"state/{index}": torch.as_tensor(leaf) for index, leaf in enumerate(leaves)}


def state_of_tensors(like: Any, tensors: Mapping[str, Tensor]) -> Any:
    """A state of the same kind as `like`, with these tensors."""
    optree = import_extra("optree", "posteriors")
    structure = optree.tree_structure(state_fields(like))
    leaves = [tensors[f"state/{index}"] for index in range(structure.num_leaves)]
    return type(like)(**optree.tree_unflatten(structure, leaves))


def state_fields(state: Any) -> dict[str, Any]:
    """The fields of the library's state."""
    return {name: plain_dict(getattr(state, name)) for name in type(state).__dataclass_fields__}


def plain_dict(value: Any) -> Any:
    """A tensordict as a dict, which every tree library can flatten; other values are not changed."""
    return value.to_dict() if hasattr(value, "to_dict") else value
