"""MC dropout (Gal and Ghahramani, 2016, arXiv:1506.02142) with fixed masks.

A sample has one mask for all images, so that it is a fixed function of one image, and an image's result does not
depend on its batch.
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

    Dropout by a function (`F.dropout`) cannot be fixed; it is refused at the first forward pass of a sample.

    >>> network = nn.Sequential(nn.Flatten(), nn.Dropout(), nn.Linear(4, 2))
    >>> posterior, x = MCDropout(network, samples=3), torch.ones(1, 1, 2, 2)
    >>> len(posterior), all(torch.equal(a(x), b(x)) for a, b in zip(posterior, posterior))
    (3, True)
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
    """The network's dropout layers; raises an error where masks cannot be fixed, or where there is no dropout."""
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
            replaced[id(layer)] = fixed_dropout(layer, (*seed, index))
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


def fixed_dropout(layer: _DropoutNd, seed: tuple[int, ...]) -> nn.Module:
    """The layer with masks that depend on the seed only."""
    channels = isinstance(layer, CHANNELWISE)
    return (FixedAlphaDropout if isinstance(layer, SATURATING) else FixedDropout)(layer.p, channels, seed)


class FixedDropout(nn.Dropout):
    """Dropout whose mask depends on the seed, the shape of one image's features, and the number of the call.

    A layer that a network calls in several places has a mask for each of them, as in training.
    """

    def __init__(self, p: float, channels: bool, seed: tuple[int, ...]) -> None:
        super().__init__(p)
        self.channels, self.seed, self.calls = channels, seed, 0
        self.masks: dict[tuple[int, torch.Size], Tensor] = {}

    def forward(self, input: Tensor) -> Tensor:
        keep = dropout_mask(self, input, self.calls)
        self.calls += 1
        return input * (keep / max(1 - self.p, 1e-12))  # with p = 1, keep is 0


class FixedAlphaDropout(nn.Module):
    """Alpha dropout (Klambauer et al., 2017, arXiv:1706.02515) with one mask for all calls."""

    def __init__(self, p: float, channels: bool, seed: tuple[int, ...]) -> None:
        super().__init__()
        self.p, self.channels, self.seed = p, channels, seed
        self.masks: dict[tuple[int, torch.Size], Tensor] = {}

    def forward(self, input: Tensor) -> Tensor:
        keep = dropout_mask(self, input, 0)
        scale = ((1 - self.p) * (1 + self.p * ALPHA**2)) ** -0.5 if self.p < 1 else 0.0
        return scale * (input * keep + ALPHA * (1 - keep) - ALPHA * self.p)


def dropout_mask(layer: FixedDropout | FixedAlphaDropout, input: Tensor, call: int) -> Tensor:
    """1 where a value is kept, 0 where it is dropped: (C, H, W) of one image, or (C, 1, 1) for whole channels.

    NumPy draws the mask: torch may not draw inside `torch.func.vmap`, and NumPy's numbers are the same on every device.
    """
    shape = input.shape[1:2] + (1,) * (input.ndim - 2) if layer.channels else input.shape[1:]
    if (call, shape) not in layer.masks:
        mask = np.random.default_rng((*layer.seed, call)).random(tuple(shape)) >= layer.p
        layer.masks[call, shape] = torch.from_numpy(np.asarray(mask))
    return layer.masks[call, shape].to(input)
