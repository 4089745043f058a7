"""Models of bayesian-torch, whose layers draw new weights at every forward pass: one draw is kept a sample.

Flipout layers also flip the signs of the noise, value by value, which makes gradients less noisy in training; their
posterior over weights is the same Gaussian as without, and is what is drawn from here.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from dubium.errors import PosteriorTypeError
from dubium.posteriors.gaussian import check_samples
from dubium.posteriors.layers import networks_with, ordinary

SUFFIXES = ("Reparameterization", "Flipout")
KINDS = ("Linear", *(f"{conv}{axes}d" for conv in ("Conv", "ConvTranspose") for axes in (1, 2, 3)))


def from_bayesian_torch(model: nn.Module, samples: int = 20, seed: int = 0) -> list[nn.Module]:
    """Networks with ordinary layers and weights drawn from a bayesian-torch model, which is left as it is."""
    check_samples(samples)
    rng = torch.Generator().manual_seed(seed)
    layers = bayesian_layers(model)
    drawn = [{id(layer): frozen(layer, kind, rng) for layer, kind in layers.items()} for _ in range(samples)]
    networks = networks_with(model, drawn)
    told = all(getattr(layer, "dnn_to_bnn_flag", False) for layer in layers)
    return networks if told else [LogitsOnly(network).eval() for network in networks]


def bayesian_layers(model: nn.Module) -> dict[nn.Module, str]:
    """The random layers, and the `torch.nn` layer that each of them is without its noise."""
    found = {}
    for name, layer in model.named_modules():
        own = type(layer).__name__
        if type(layer).__module__.startswith("bayesian_torch.") and hasattr(layer, "kl_loss"):
            kind = next((own.removesuffix(suffix) for suffix in SUFFIXES if own.endswith(suffix)), own)
            if kind not in KINDS:
                raise PosteriorTypeError(
                    f"The bayesian-torch layer {name!r} is a {own}, whose weights cannot be fixed. Those of "
                    f"{', '.join(KINDS)} can, with {' or '.join(SUFFIXES)}."
                )
            found[layer] = kind
    return found


def frozen(layer: Any, kind: str, rng: torch.Generator) -> nn.Module:
    """One draw of the layer's weights, in a layer that returns what the model expects."""
    stem = "weight" if kind == "Linear" else "kernel"
    weight = gaussian(getattr(layer, f"mu_{stem}"), getattr(layer, f"rho_{stem}"), rng)
    bias = None if layer.mu_bias is None else gaussian(layer.mu_bias, layer.rho_bias, rng)
    fixed = ordinary(kind, layer, weight, bias)
    return fixed if getattr(layer, "dnn_to_bnn_flag", False) else WithDivergence(fixed)


def gaussian(mean: Tensor, rho: Tensor, rng: torch.Generator) -> Tensor:
    """A draw with standard deviation softplus(rho), on the CPU first: every device gets the same one."""
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
    """The first of what a network returns: bayesian-torch models return (logits, divergence)."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor | tuple[Tensor, ...] = self.network(x)
        return out[0] if isinstance(out, tuple) else out
