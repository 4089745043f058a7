"""Models of torch-uncertainty. Their output is (N * B, K), estimator by estimator; here each estimator is a network."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.dropout import _DropoutNd

from dubium.errors import PosteriorError, PosteriorTypeError
from dubium.posteriors.adapters.bayesian_torch import draw_gaussian
from dubium.posteriors.adapters.layers import build_torch_layer, networks_with
from dubium.posteriors.gaussian import check_samples
from dubium.posteriors.mc_dropout import MCDropout
from dubium.posteriors.weights import snapshot
from dubium.types import Posterior

LAYERS = "torch_uncertainty.layers."
BATCH = {"BatchLinear": "Linear", "BatchConv1d": "Conv1d", "BatchConv2d": "Conv2d"}
BAYES = {"BayesLinear": "Linear", "BayesConv1d": "Conv1d", "BayesConv2d": "Conv2d", "BayesConv3d": "Conv3d"}


def from_torch_uncertainty(model: Any, samples: int | None = None, seed: int = 0) -> Posterior:
    """The estimators of an ensemble, BatchEnsemble, MC-dropout, SWAG or Bayesian model, which is not changed.

    Args:
        samples: the number of networks, for models that are drawn from; by default the model's own number.
    """
    core = getattr(model, "core_model", model)
    layers = [layer for layer in core.modules() if type(layer).__module__.startswith(LAYERS)]
    names = {type(layer).__name__ for layer in layers} & {*BATCH, *BAYES}
    if hasattr(model, "core_models"):
        return list(model.core_models)
    if hasattr(model, "saved_models"):
        return [*model.saved_models, *([core] if model.use_final_model else [])]
    if hasattr(model, "filtered_modules"):
        return from_mc_dropout(core, model.filtered_modules, samples or model.num_estimators, seed)
    if hasattr(model, "swag_stats"):
        if not model.samples:
            raise PosteriorError("The SWAG model has drawn no samples yet. Call its update_wrapper(epoch) in training.")
        return [snapshot(sample) for sample in model.samples]
    if names and names <= BATCH.keys():
        return from_batch_ensemble(core, layers)
    if names and names <= BAYES.keys():
        own: int = getattr(model, "num_samples", 20)
        return from_bayes_layers(core, layers, samples or own, seed)
    raise PosteriorTypeError(
        f"The torch-uncertainty {type(model).__name__} cannot be taken apart into networks. deep_ensembles, "
        "mc_dropout, BatchEnsemble, CheckpointCollector, SWAG and StochasticModel (with linear and convolutional "
        "layers) can; from others, pass a list of networks."
    )


def from_mc_dropout(core: nn.Module, active: list[nn.Module], samples: int, seed: int) -> MCDropout:
    """MC dropout in the `active` layers; the other dropout layers are off, as in the model."""
    off = [layer for layer in core.modules() if isinstance(layer, _DropoutNd) and layer not in active]
    return MCDropout(snapshot(core, {id(layer): nn.Identity() for layer in off}), samples, seed)


def from_batch_ensemble(core: nn.Module, layers: list[Any]) -> list[nn.Module]:
    """One network per estimator: `layer(x * r) * s + bias` is a layer with weights of its own."""
    layers = [layer for layer in layers if type(layer).__name__ in BATCH]
    count = layers[0].num_estimators
    networks = networks_with(core, [{id(layer): fold_estimator(layer, i) for layer in layers} for i in range(count)])
    for network in networks:
        for module in network.modules():
            if hasattr(module, "num_estimators"):
                module.num_estimators = 1  # type: ignore[assignment]  # how often a model repeats its input
    return networks


def fold_estimator(layer: Any, estimator: int) -> nn.Module:
    """One estimator of a BatchEnsemble layer as a `torch.nn` layer: r and s are multiplied into its weights."""
    kind = BATCH[type(layer).__name__]
    inner = layer.linear if kind == "Linear" else layer.conv
    r, s = layer.r_group[estimator].detach(), layer.s_group[estimator].detach()
    bias = None if layer.bias is None else layer.bias[estimator].detach().clone()
    weight: Tensor = inner.weight.detach()  # (out, in / groups, ...)
    groups = getattr(inner, "groups", 1)
    inputs = r.view(groups, -1).repeat_interleave(len(s) // groups, 0)  # (out, in / groups)
    scale = (s[:, None] * inputs).view(*weight.shape[:2], *[1] * (weight.ndim - 2))
    return build_torch_layer(kind, inner, weight * scale, bias)


def from_bayes_layers(core: nn.Module, layers: list[Any], samples: int, seed: int) -> list[nn.Module]:
    """Draw networks of ordinary `torch.nn` layers from a model with Bayesian layers."""
    check_samples(samples)
    rng = torch.Generator().manual_seed(seed)
    layers = [layer for layer in layers if type(layer).__name__ in BAYES]
    return networks_with(core, [{id(layer): draw_bayes_layer(layer, rng) for layer in layers} for _ in range(samples)])


def draw_bayes_layer(layer: Any, rng: torch.Generator) -> nn.Module:
    """Draw the weights of a Bayesian layer once, into a `torch.nn` layer; a frozen layer is at its mean."""
    if layer.frozen:
        weight, bias = layer.weight_mu.detach(), layer.bias_mu
    else:
        weight = draw_gaussian(layer.weight_mu, layer.weight_sigma, rng)
        bias = None if layer.bias_mu is None else draw_gaussian(layer.bias_mu, layer.bias_sigma, rng)
    return build_torch_layer(BAYES[type(layer).__name__], layer, weight, bias)
