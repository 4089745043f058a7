"""Fitted objects of laplace-torch: networks drawn from their distribution over weights."""

from typing import Any

import torch
from torch import nn

from dubium.errors import PosteriorError, PosteriorTypeError
from dubium.posteriors.gaussian import check_samples
from dubium.posteriors.weights import WeightSamples, snapshot


def from_laplace(laplace: Any, samples: int = 20, seed: int = 0) -> WeightSamples:
    """Draw networks from a fitted `laplace.Laplace`, which is not changed.

    Args:
        laplace: a fitted classifier; the weights are drawn now, so that later changes to it have no effect.
        samples: the number of networks.
        seed: of the draws.

    Returns:
        Weights of `samples` networks; weights without a distribution are shared.
    """
    check_samples(samples)
    name = type(laplace).__name__
    if str(getattr(laplace, "likelihood", "")).rpartition(".")[2].lower() == "regression":
        raise PosteriorTypeError(f"The {name} is a regression; dubium explains classifiers.")
    last_layer = getattr(laplace.model, "last_layer", None)
    if getattr(laplace, "mean", None) is None or not getattr(laplace, "n_data", 0):
        raise PosteriorError(f"The {name} is not fitted. Call its fit(train_loader) first.")
    network = laplace.model if last_layer is None else laplace.model.model
    drawn = list(laplace.params) if last_layer is None else list(last_layer.parameters())
    device = next(network.parameters()).device
    try:
        vectors = laplace.sample(samples, generator=torch.Generator(device).manual_seed(seed)).detach()
    except NotImplementedError as error:
        raise PosteriorTypeError(
            f"The {name} has no distribution over weights, only over functions. Use hessian_structure='kron', 'diag', "
            "'full' or 'lowrank'."
        ) from error
    names = {id(parameter): name for name, parameter in network.named_parameters()}
    weights = [
        {names[id(p)]: part.view_as(p) for p, part in zip(drawn, vector.split([p.numel() for p in drawn]), strict=True)}
        for vector in vectors
    ]
    return WeightSamples(without_feature_hooks(network), weights)


def without_feature_hooks(network: nn.Module) -> nn.Module:
    """A copy of the network without the forward hooks that laplace-torch has registered in it."""
    copy = snapshot(network)
    for layer in copy.modules():
        for key, hook in list(layer._forward_hooks.items()):
            if getattr(hook, "__module__", "").startswith("laplace."):
                del layer._forward_hooks[key]
    return copy
