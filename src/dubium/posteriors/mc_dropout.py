"""MC dropout (Gal and Ghahramani, 2016, arXiv:1506.02142) with masks that stay the same.

One mask a sample, shared by all images: a sample is then one fixed function of one image, and an image's result does
not depend on its batch.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.dropout import _DropoutNd

from dubium.errors import NetworkStateError
from dubium.posteriors.functional_dropout import refuse_functional_dropout
from dubium.posteriors.gaussian import check_samples
from dubium.posteriors.weights import snapshot

ALPHA = -1.7580993408473766  # where SELU saturates: what (Feature)AlphaDropout puts in place of a value
ELEMENTWISE = (nn.Dropout, nn.AlphaDropout)
CHANNELWISE = (nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.FeatureAlphaDropout)
SATURATING = (nn.AlphaDropout, nn.FeatureAlphaDropout)


@dataclass(frozen=True, eq=False)
class MCDropout:
    """A network with dropout layers, as `samples` networks with the same weights and different fixed masks.

    Dropout through functions (`F.dropout`) cannot be fixed; it is refused when a sample first sees an image.
    """

    network: nn.Module
    samples: int = 20
    seed: int = 0
    _checked: set[tuple[int, ...]] = field(default_factory=set, init=False, repr=False)

    def __post_init__(self) -> None:
        check_samples(self.samples)
        dropout_layers(self.network)
        object.__setattr__(self, "network", snapshot(self.network))

    def __len__(self) -> int:
        return self.samples

    def __iter__(self) -> Iterator[nn.Module]:
        for sample in range(self.samples):
            yield Masked(self.network, (self.seed % 2**64, sample), self._checked)


def dropout_layers(network: nn.Module) -> list[_DropoutNd]:
    """The layers to fix; what would stay random, or stay off, is refused."""
    layers = [layer for layer in network.modules() if isinstance(layer, _DropoutNd)]
    for name, layer in network.named_modules():
        known = type(layer) in (*ELEMENTWISE, *CHANNELWISE)
        inside = isinstance(layer, nn.MultiheadAttention | nn.RNNBase) and layer.dropout > 0
        if inside or (isinstance(layer, _DropoutNd) and not known):
            raise NetworkStateError(
                f"The {type(layer).__name__} {name!r} drops out on its own, so its masks cannot be fixed. Use a layer "
                "without dropout, and nn.Dropout, nn.Dropout1d, 2d or 3d after it."
            )
    if not any(layer.p > 0 for layer in layers):
        raise NetworkStateError(
            f"The {type(network).__name__} has no dropout layer with p > 0, so that all samples would be the same. Use "
            "nn.Dropout layers in place of F.dropout, or another posterior."
        )
    return layers


class Masked(nn.Module):
    """One sample: a copy of the network that shares its parameters and has fixed masks for dropout."""

    def __init__(self, network: nn.Module, seed: tuple[int, ...], checked: set[tuple[int, ...]]) -> None:
        super().__init__()
        replaced: dict[int, Any] = {id(parameter): parameter for parameter in network.parameters()}
        for index, layer in enumerate(dropout_layers(network)):
            replaced[id(layer)] = fixed(layer, (*seed, index))
        self.network = snapshot(network, replaced)
        self.checked = checked
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        if tuple(x.shape[1:]) not in self.checked:
            refuse_functional_dropout(self.network, x)
            self.checked.add(tuple(x.shape[1:]))
        for layer in self.network.modules():
            if isinstance(layer, FixedDropout):
                layer.calls = 0
        out: Tensor = self.network(x)
        return out


def fixed(layer: _DropoutNd, seed: tuple[int, ...]) -> nn.Module:
    channels = isinstance(layer, CHANNELWISE)
    return (FixedAlphaDropout if isinstance(layer, SATURATING) else FixedDropout)(layer.p, channels, seed)


class FixedDropout(nn.Dropout):
    """Dropout whose mask depends on the seed, on the shape of one image's features, and on how often it was called.

    A layer that a network uses in several places has a mask for each, as in training.
    """

    def __init__(self, p: float, channels: bool, seed: tuple[int, ...]) -> None:
        super().__init__(p)
        self.channels, self.seed, self.calls = channels, seed, 0
        self.masks: dict[tuple[int, torch.Size], Tensor] = {}

    def forward(self, input: Tensor) -> Tensor:
        keep = kept(self, input, self.calls)
        self.calls += 1
        return input * (keep / max(1 - self.p, 1e-12))  # with p = 1, keep is 0


class FixedAlphaDropout(nn.Module):
    """Alpha dropout (Klambauer et al., 2017, arXiv:1706.02515) with one mask, in however many places it is used."""

    def __init__(self, p: float, channels: bool, seed: tuple[int, ...]) -> None:
        super().__init__()
        self.p, self.channels, self.seed = p, channels, seed
        self.masks: dict[tuple[int, torch.Size], Tensor] = {}

    def forward(self, input: Tensor) -> Tensor:
        keep = kept(self, input, 0)
        scale = ((1 - self.p) * (1 + self.p * ALPHA**2)) ** -0.5 if self.p < 1 else 0.0
        return scale * (input * keep + ALPHA * (1 - keep) - ALPHA * self.p)


def kept(layer: FixedDropout | FixedAlphaDropout, input: Tensor, call: int) -> Tensor:
    """1 where the layer keeps, 0 where it drops: for every value of one image, or for its channels.

    NumPy draws the mask: torch may not draw inside `torch.func.vmap`, and NumPy's numbers are the same on every device.
    """
    shape = input.shape[1:2] + (1,) * (input.ndim - 2) if layer.channels else input.shape[1:]
    if (call, shape) not in layer.masks:
        drawn = np.random.default_rng((*layer.seed, call)).random(tuple(shape)) >= layer.p
        layer.masks[call, shape] = torch.from_numpy(np.asarray(drawn))
    return layer.masks[call, shape].to(input)
