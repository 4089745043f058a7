"""Models of bayesian-torch, whose layers draw new weights at every forward pass: one draw is kept a sample.

Flipout layers also flip the signs of the noise, value by value, which makes gradients less noisy in training; their
posterior over weights is the same Gaussian as without, and is what is drawn from here.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from dubium.errors import PosteriorTypeError
from dubium.posteriors.adapters.layers import build_torch_layer, networks_with
from dubium.posteriors.gaussian import check_samples

SUFFIXES = ("Reparameterization", "Flipout")
LAYERS = ("Linear", *(f"{conv}{axes}d" for conv in ("Conv", "ConvTranspose") for axes in (1, 2, 3)))


def from_bayesian_torch(model: nn.Module, samples: int = 20, seed: int = 0) -> list[nn.Module]:
    """Draw networks of ordinary `torch.nn` layers from a bayesian-torch model, which is not changed."""
    check_samples(samples)
    rng = torch.Generator().manual_seed(seed)
    layers = bayesian_layers(model)
    replacements = [{id(layer): draw_layer(layer, kind, rng) for layer, kind in layers.items()} for _ in range(samples)]
    networks = networks_with(model, replacements)
    returns_logits = all(getattr(layer, "dnn_to_bnn_flag", False) for layer in layers)
    return networks if returns_logits else [LogitsOnly(network).eval() for network in networks]


def bayesian_layers(model: nn.Module) -> dict[nn.Module, str]:
    """The random layers, each with the name of the `torch.nn` layer that computes the same from fixed weights."""
    found = {}
    for name, layer in model.named_modules():
        own = type(layer).__name__
        if type(layer).__module__.startswith("bayesian_torch.") and hasattr(layer, "kl_loss"):
            kind = next((own.removesuffix(suffix) for suffix in SUFFIXES if own.endswith(suffix)), own)
            if kind not in LAYERS:
                raise PosteriorTypeError(
                    f"The bayesian-torch layer {name!r} is a {own}, whose weights cannot be fixed. Those of "
                    f"{', '.join(LAYERS)} can, with {' or '.join(SUFFIXES)}."
                )
            found[layer] = kind
    return found


def draw_layer(layer: Any, kind: str, rng: torch.Generator) -> nn.Module:
    """Draw the layer's weights once, into a `torch.nn` layer that returns what the model expects."""
    stem = "weight" if kind == "Linear" else "kernel"
    weight = draw_gaussian(getattr(layer, f"mu_{stem}"), getattr(layer, f"rho_{stem}"), rng)
    bias = None if layer.mu_bias is None else draw_gaussian(layer.mu_bias, layer.rho_bias, rng)
    fixed = build_torch_layer(kind, layer, weight, bias)
    return fixed if getattr(layer, "dnn_to_bnn_flag", False) else WithDivergence(fixed)


def draw_gaussian(mean: Tensor, rho: Tensor, rng: torch.Generator) -> Tensor:
    """Draw from N(mean, softplus(rho)^2), on the CPU, so that the draw is the same on every device."""
    return mean.detach() + softplus(rho.detach()) * torch.randn(mean.shape, generator=rng, dtype=mean.dtype).to(mean)


class WithDivergence(nn.Module):
    """A layer that returns a Kullback-Leibler divergence beside its output, as bayesian-torch layers do; here 0."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor, return_kl: bool = True) -> Tensor | tuple[Tensor, Tensor]:
        out: Tensor = self.layer(x)
        return (out, out.new_zeros(())) if return_kl else out


class LogitsOnly(nn.Module):
    """The logits of a network that returns (logits, divergence), as bayesian-torch models do."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor | tuple[Tensor, ...] = self.network(x)
        return out[0] if isinstance(out, tuple) else out
