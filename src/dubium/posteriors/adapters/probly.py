"""Models of probly: ensembles, MC dropout, DropConnect and Bayesian networks."""

from typing import Any

import torch
from torch import nn

from dubium.errors import PosteriorTypeError
from dubium.posteriors.adapters.bayesian_torch import draw_gaussian
from dubium.posteriors.adapters.layers import build_torch_layer, networks_with
from dubium.posteriors.gaussian import check_samples
from dubium.posteriors.mc_dropout import MCDropout
from dubium.types import Posterior

LAYERS = {"BayesLinear": "Linear", "BayesConv2d": "Conv2d", "DropConnectLinear": "Linear"}


def from_probly(model: Any, samples: int = 20, seed: int = 0) -> Posterior:
    """The members of an ensemble, or networks drawn from a model with random layers, which is not changed."""
    name = type(model).__name__
    if hasattr(model, "models"):
        return list(model.models)
    if name == "Dropout":
        return MCDropout(model.model, samples, seed)
    core = getattr(model, "model", model)
    layers = [layer for layer in core.modules() if type(layer).__name__ in LAYERS]
    if not layers:
        raise PosteriorTypeError(
            f"The probly {name} cannot be taken apart into networks. Ensemble, SubEnsemble, Dropout, DropConnect and "
            "Bayesian can; from others, pass a list of networks."
        )
    check_samples(samples)
    rng = torch.Generator().manual_seed(seed)
    draws = [{id(layer): draw_layer(layer, rng) for layer in layers} for _ in range(samples)]
    return networks_with(core, draws)


def draw_layer(layer: Any, rng: torch.Generator) -> nn.Module:
    """Draw the weights of a layer once, into a `torch.nn` layer."""
    kind = LAYERS[type(layer).__name__]
    if type(layer).__name__ == "DropConnectLinear":
        keep = torch.rand(layer.weight.shape, generator=rng) > layer.p
        return build_torch_layer(kind, layer, layer.weight.detach() * keep.to(layer.weight), layer.bias)
    weight = draw_gaussian(layer.weight_mu, layer.weight_rho, rng)
    bias = draw_gaussian(layer.bias_mu, layer.bias_rho, rng) if layer.bias else None
    return build_torch_layer(kind, layer, weight, bias)
