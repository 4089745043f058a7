"""Laplace approximations (Daxberger et al., 2021, arXiv:2106.14806) of the last layer or of all, by laplace-torch."""

import warnings

from torch import nn

from dubium.posteriors.adapters.laplace import from_laplace
from dubium.posteriors.batches import Batches, training_batches
from dubium.posteriors.extras import require
from dubium.posteriors.weights import WeightSamples, snapshot


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
    """Fit a Laplace approximation to a trained network, and draw networks from it.

    Args:
        network: trained; it is not changed.
        batches: of the training data, (images, labels); they are read several times.
        subset_of_weights: "last_layer" or "all".
        hessian_structure: "kron", "diag", "full" (small networks) or "lowrank".
        prior_precision: by default the one of the highest marginal likelihood.
        samples: the number of networks to draw.

    Returns:
        Weights of `samples` networks; those outside `subset_of_weights` are shared.
    """
    library = require("laplace", "laplace")
    copy = snapshot(network).requires_grad_(True)
    if any(original.requires_grad for original in network.parameters()):  # none: loaded for prediction alone
        for parameter, original in zip(copy.parameters(), network.parameters(), strict=True):
            parameter.requires_grad_(original.requires_grad)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about its own imports, and about predictions that are not made here
        laplace = library.Laplace(
            copy,
            "classification",
            subset_of_weights=subset_of_weights,
            hessian_structure=hessian_structure,
            prior_precision=prior_precision or 1.0,
        )
        laplace.fit(training_batches(batches, network))
        if prior_precision is None:
            laplace.optimize_prior_precision(pred_type="nn", method="marglik", prior_structure="scalar")
    return from_laplace(laplace, samples, seed)
