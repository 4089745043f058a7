"""Models of torch-uncertainty. Their output is (N * B, K), estimator by estimator; here each estimator is a network."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.dropout import _DropoutNd

from dubium.errors import OutputError, PosteriorError, PosteriorTypeError
from dubium.posteriors.adapters.bayesian_torch import draw_gaussian
from dubium.posteriors.adapters.layers import build_torch_layer, networks_with
from dubium.posteriors.gaussian import check_samples
from dubium.posteriors.mc_dropout import MCDropout
from dubium.posteriors.weights import snapshot
from dubium.types import Posterior

LAYERS = "torch_uncertainty.layers."
BATCH = {"BatchLinear": "Linear", "BatchConv1d": "Conv1d", "BatchConv2d": "Conv2d"}
MASKED = {"MaskedLinear": "Linear", "MaskedConv2d": "Conv2d"}
BAYES = {"BayesLinear": "Linear", "BayesConv1d": "Conv1d", "BayesConv2d": "Conv2d", "BayesConv3d": "Conv3d"}


def from_torch_uncertainty(model: Any, samples: int | None = None, seed: int = 0) -> Posterior:
    """The estimators of an ensemble of any kind, an MC-dropout, SWAG or Bayesian model, which is not changed.

    Args:
        model: the model, or a `ClassificationRoutine` with it.
        samples: the number of networks, for models that are drawn from; by default the model's own number.
    """
    if type(model).__name__.endswith("Routine"):
        return from_routine(model, samples, seed)
    core = getattr(model, "core_model", model)
    layers = [layer for layer in core.modules() if type(layer).__module__.startswith(LAYERS)]
    names = {type(layer).__name__ for layer in layers} & {*BATCH, *BAYES, *MASKED}
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
    if names and (names <= BATCH.keys() or names <= MASKED.keys()):
        return from_folded_layers(core, [layer for layer in layers if type(layer).__name__ in names])
    if names and names <= BAYES.keys():
        own: int = getattr(model, "num_samples", 20)
        return from_bayes_layers(core, layers, samples or own, seed)
    if any(getattr(layer, "last", False) for layer in layers) or "MIMO" in type(core).__name__:  # packed, or MIMO
        count = next(module.num_estimators for module in core.modules() if hasattr(module, "num_estimators"))
        return [EstimatorRows(core, index, int(count)).eval() for index in range(int(count))]
    raise PosteriorTypeError(
        f"The torch-uncertainty {type(model).__name__} cannot be taken apart into networks. deep_ensembles, packed, "
        "masked, MIMO and batch ensembles, mc_dropout, CheckpointCollector, SWAG and StochasticModel (with linear and "
        "convolutional layers) can; from others, pass a list of networks."
    )


def from_routine(routine: Any, samples: int | None, seed: int) -> Posterior:
    """The model that a `ClassificationRoutine` trains."""
    name = type(routine).__name__
    if name != "ClassificationRoutine":
        raise PosteriorTypeError(f"The {name} is not supported yet: dubium explains classifiers of images.")
    if routine.post_processing is not None:
        raise PosteriorTypeError(
            f"The {name} has post-processing ({type(routine.post_processing).__name__}), which belongs to no network. "
            "Give routine.model to explain the networks without it."
        )
    from dubium.posteriors.adapters.dispatch import as_posterior

    return as_posterior(routine.model, samples, seed)


def from_mc_dropout(core: nn.Module, active: list[nn.Module], samples: int, seed: int) -> MCDropout:
    """MC dropout in the `active` layers; the other dropout layers are off, as in the model."""
    off = [layer for layer in core.modules() if isinstance(layer, _DropoutNd) and layer not in active]
    return MCDropout(snapshot(core, {id(layer): nn.Identity() for layer in off}), samples, seed)


class EstimatorRows(nn.Module):
    """One estimator of a model whose layers hold all of them: its rows of the output, (N * B, K)."""

    def __init__(self, model: nn.Module, index: int, count: int) -> None:
        super().__init__()
        self.model, self.index, self.count = model, index, count

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.model(x)
        if len(out) != self.count * len(x):
            raise OutputError(
                f"The {type(self.model).__name__} gives {len(out)} rows for {len(x)} images; of {self.count} "
                f"estimators, {self.count * len(x)} are needed."
            )
        return out[self.index * len(x) : (self.index + 1) * len(x)]


def from_folded_layers(core: nn.Module, layers: list[Any]) -> list[nn.Module]:
    """One network per estimator: `layer(x * r) * s + bias` is a layer with weights of its own."""
    count = layers[0].num_estimators if hasattr(layers[0], "num_estimators") else len(layers[0].mask.masks)
    networks = networks_with(core, [{id(layer): fold_estimator(layer, i) for layer in layers} for i in range(count)])
    for network in networks:
        for module in network.modules():
            if hasattr(module, "num_estimators"):
                module.num_estimators = 1  # type: ignore[assignment]  # how often a model repeats its input
    return networks


def fold_estimator(layer: Any, estimator: int) -> nn.Module:
    """One estimator of a BatchEnsemble or masked layer as a `torch.nn` layer, whose weights have r and s in them."""
    kind = (BATCH | MASKED)[type(layer).__name__]
    inner = layer.linear if kind == "Linear" else layer.conv
    weight: Tensor = inner.weight.detach()  # (out, in / groups, ...)
    if type(layer).__name__ in MASKED:
        r, s, bias = layer.mask.masks[estimator].detach().to(weight), weight.new_ones(len(weight)), inner.bias
    else:
        r, s = layer.r_group[estimator].detach(), layer.s_group[estimator].detach()
        bias = None if layer.bias is None else layer.bias[estimator]
    bias = None if bias is None else bias.detach().clone()
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
