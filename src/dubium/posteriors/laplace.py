"""Laplace approximations (Daxberger et al., 2021, arXiv:2106.14806) of the last layer or of all, by laplace-torch."""

import warnings
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from dubium.errors import PosteriorError, PosteriorTypeError
from dubium.posteriors.batches import Batches, counted
from dubium.posteriors.extras import require
from dubium.posteriors.gaussian import check_samples
from dubium.posteriors.weights import WeightSamples, snapshot


def from_laplace(laplace: Any, samples: int = 20, seed: int = 0) -> WeightSamples:
    """Networks with weights drawn from a fitted `laplace.Laplace`; nothing in it is changed.

    The weights are drawn now: what happens to the object later does not matter.
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
    """A copy that no longer reports its features to the Laplace object it was taken from."""
    copy = snapshot(network)
    for layer in copy.modules():
        for key, hook in list(layer._forward_hooks.items()):
            if getattr(hook, "__module__", "").startswith("laplace."):
                del layer._forward_hooks[key]
    return copy


def fit_laplace(
    network: nn.Module,
    batches: Batches,
    *,
    subset_of_weights: str = "last_layer",
    hessian_structure: str = "kron",
    prior_precision: float | None = None,
    samples: int = 20,
    seed: int = 0,
) -> WeightSamples:
    """Fit a Laplace approximation to a trained network, and draw from it.

    Args:
        subset_of_weights: "last_layer" or "all".
        hessian_structure: "kron", "diag", "full" (small networks) or "lowrank".
        prior_precision: by default the one of the highest marginal likelihood.
    """
    library = require("laplace", "laplace")
    copy = snapshot(network).requires_grad_(True)
    for parameter, original in zip(copy.parameters(), network.parameters(), strict=True):
        parameter.requires_grad_(original.requires_grad)
    options: Mapping[str, Any] = {"subset_of_weights": subset_of_weights, "hessian_structure": hessian_structure}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about its own imports, and about predictions that are not made here
        laplace = library.Laplace(copy, "classification", prior_precision=prior_precision or 1.0, **options)
        laplace.fit(counted(batches, network))
        if prior_precision is None:
            laplace.optimize_prior_precision(pred_type="nn", method="marglik", prior_structure="scalar")
    return from_laplace(laplace, samples, seed)
