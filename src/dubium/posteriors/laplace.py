"""Laplace approximations (Daxberger et al., 2021, arXiv:2106.14806) of the last layer or of all, by laplace-torch."""

import warnings
from typing import Any

import torch
from torch import Tensor, nn

from dubium.checks import check_number
from dubium.errors import OutputError
from dubium.posteriors.adapters.laplace import from_laplace
from dubium.posteriors.batches import Batches, check_classes, training_batches
from dubium.posteriors.gaussian import check_samples
from dubium.posteriors.optional_imports import import_extra
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
        network: trained; it is not changed. Its output is logits (B, K), or has them as `logits`.
        batches: of the training data, (images, labels); they are read several times.
        subset_of_weights: "last_layer" or "all".
        hessian_structure: "kron", "diag", "full" (small networks) or "lowrank".
        prior_precision: by default the one of the highest marginal likelihood.
        samples: the number of networks to draw.

    Returns:
        Weights of `samples` networks; those outside `subset_of_weights` are shared.
    """
    check_samples(samples)
    if prior_precision is not None:
        check_number("prior_precision", prior_precision)
    library = import_extra("laplace", "laplace")
    copy = snapshot(network).requires_grad_(True)
    if any(original.requires_grad for original in network.parameters()):  # none: loaded for prediction alone
        for parameter, original in zip(copy.parameters(), network.parameters(), strict=True):
            parameter.requires_grad_(original.requires_grad)
    data = training_batches(batches, network)
    x, _ = next(iter(data))
    copy = with_logits_output(copy, x)
    check_classes(copy, x, data.label_range)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about its own imports, and about predictions that are not made here
        laplace = library.Laplace(
            copy,
            "classification",
            subset_of_weights=subset_of_weights,
            hessian_structure=hessian_structure,
            prior_precision=1.0 if prior_precision is None else prior_precision,
        )
        laplace.fit(data)
        if prior_precision is None:
            laplace.optimize_prior_precision(pred_type="nn", method="marglik", prior_structure="scalar")
    return from_laplace(laplace, samples, seed)


class LogitsOfOutput(nn.Module):
    """A network that gives the `logits` of another's output, as Hugging Face's classifiers have them."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network
        self.train(network.training)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = output_logits(self.network(x))
        return logits


def with_logits_output(network: nn.Module, x: Tensor) -> nn.Module:
    """The network itself if its output is a tensor, else one that gives its `logits`."""
    with torch.no_grad():
        output = network(x[:1])
    if isinstance(output, Tensor):
        return network
    if not isinstance(output_logits(output), Tensor):
        raise OutputError(
            f"The network's output is a {type(output).__name__} without logits. Laplace needs logits (B, K): wrap the "
            "network in a module that returns them alone."
        )
    return LogitsOfOutput(network)


def output_logits(output: Any) -> Any:
    return output.get("logits") if isinstance(output, dict) else getattr(output, "logits", None)
