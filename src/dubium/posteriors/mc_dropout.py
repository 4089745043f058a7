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

from dubium.checks import check_seed
from dubium.errors import NetworkStateError, PosteriorTypeError
from dubium.posteriors.checkpoints import without_checkpoints
from dubium.posteriors.fixed_noise import Draw, restore_noise
from dubium.posteriors.functional_dropout import Sites, find_sites, fix_noise, has_noise, may_drop_out_inside
from dubium.posteriors.gaussian import check_samples
from dubium.posteriors.weights import describe_posterior, snapshot

ALPHA = -1.7580993408473766  # where SELU saturates: what (Feature)AlphaDropout puts in place of a value
ELEMENTWISE = (nn.Dropout, nn.AlphaDropout)
CHANNELWISE = (nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.FeatureAlphaDropout)
SATURATING = (nn.AlphaDropout, nn.FeatureAlphaDropout)
FUNCTION_SEED = 2**31  # in seeds of functions' masks, where those of a layer's masks have the layer's number


@dataclass(frozen=True, eq=False, repr=False)
class MCDropout:
    """A network with dropout, as `samples` networks with the same weights and different fixed masks.

    Dropout by a function (`F.dropout`, attention) is found at the first forward pass of a sample.

    >>> network = nn.Sequential(nn.Flatten(), nn.Dropout(), nn.Linear(4, 2))
    >>> posterior, x = MCDropout(network, samples=3), torch.ones(1, 1, 2, 2)
    >>> len(posterior), all(torch.equal(a(x), b(x)) for a, b in zip(posterior, posterior))
    (3, True)
    """

    network: nn.Module
    samples: int = 20
    seed: int = 0
    _sites: dict[tuple[int, ...], Sites] = field(default_factory=dict, init=False)  # by image shape

    def __post_init__(self) -> None:
        check_samples(self.samples)
        check_seed(self.seed)
        if not isinstance(self.network, nn.Module):
            raise PosteriorTypeError(f"MCDropout was given {self.network!r:.60}; one network is needed, an nn.Module.")
        dropout_layers(self.network)
        object.__setattr__(self, "network", snapshot(self.network))

    def __repr__(self) -> str:
        return describe_posterior(self, self.network)

    def __len__(self) -> int:
        return self.samples

    def __iter__(self) -> Iterator[nn.Module]:
        for sample in range(self.samples):
            yield Masked(self.network, (self.seed % 2**64, sample), self._sites)


def dropout_layers(network: nn.Module) -> list[_DropoutNd]:
    """The network's dropout layers; raises an error where masks cannot be fixed, or where there can be no dropout."""
    layers = [layer for layer in network.modules() if isinstance(layer, _DropoutNd)]
    for name, layer in network.named_modules():
        if isinstance(layer, _DropoutNd) and type(layer) not in (*ELEMENTWISE, *CHANNELWISE):
            raise NetworkStateError(
                f"The {type(layer).__name__} {name!r} drops out on its own, so its masks cannot be fixed. Use a layer "
                "without dropout, and nn.Dropout, nn.Dropout1d, 2d or 3d after it."
            )
    if not any(layer.p > 0 for layer in layers) and not may_drop_out_inside(network):
        raise NetworkStateError(no_dropout_text(network))
    return layers


def no_dropout_text(network: nn.Module) -> str:
    return (
        f"The {type(network).__name__} has no dropout layer with p > 0 and calls no dropout function, so that all "
        "samples would be the same. Add dropout (drop_rate=0.1 of timm.create_model, hidden_dropout_prob=0.1 of a "
        "Hugging Face config), or use another posterior."
    )


class Masked(nn.Module):
    """One sample: a copy of the network that shares its parameters and has fixed masks for dropout."""

    def __init__(self, network: nn.Module, seed: tuple[int, ...], sites: dict[tuple[int, ...], Sites]) -> None:
        super().__init__()
        replaced: dict[int, Any] = {id(parameter): parameter for parameter in network.parameters()}
        layers = dropout_layers(network)
        for index, layer in enumerate(layers):
            replaced[id(layer)] = fixed_dropout(layer, (*seed, index))
        self.network = snapshot(network, replaced)
        self.seed, self.sites = seed, sites
        self.has_layers = any(layer.p > 0 for layer in layers)
        self.masks: dict[tuple[str, Draw, tuple[int, ...]], Tensor] = {}
        self.fixed: tuple[int, ...] | None = None  # the shape of the images whose functional dropout is fixed
        self.eval()

    def forward(self, x: Tensor) -> Any:
        with without_checkpoints():  # their part of the backward pass would have other masks
            if self.fixed != tuple(x.shape[1:]):
                self.fix_functions(x)
            for layer in self.network.modules():
                if isinstance(layer, FixedDropout):
                    layer.calls = 0
            return self.network(x)

    def fix_functions(self, x: Tensor) -> None:
        """Fix what functions drop out for images of this shape."""
        shape = tuple(x.shape[1:])
        restore_noise(self.network)
        if shape not in self.sites:
            self.sites[shape] = find_sites(self.network, x)
        if not self.has_layers and not has_noise(self.network, self.sites[shape]):
            raise NetworkStateError(no_dropout_text(self.network))
        fix_noise(self.network, self.sites[shape], self.noise_mask)
        self.fixed = shape

    def noise_mask(self, layer: str, draw: Draw, shape: tuple[int, ...], probability: float) -> Tensor:
        """1 with this probability, in numbers of their own for each module, operation and draw."""
        key = layer, draw, shape
        if key not in self.masks:
            names = (name for name, _ in self.network.named_modules())
            number = next(index for index, name in enumerate(names) if name == layer)
            random = np.random.default_rng((*self.seed, FUNCTION_SEED, number, *draw)).random(shape)
            self.masks[key] = torch.from_numpy(np.asarray(random < probability))
        return self.masks[key]


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
        self.image_axes: dict[int, int] = {}
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
        self.image_axes: dict[int, int] = {}
        self.masks: dict[tuple[int, torch.Size], Tensor] = {}

    def forward(self, input: Tensor) -> Tensor:
        keep = dropout_mask(self, input, 0)
        scale = ((1 - self.p) * (1 + self.p * ALPHA**2)) ** -0.5 if self.p < 1 else 0.0
        return scale * (input * keep + ALPHA * (1 - keep) - ALPHA * self.p)


def dropout_mask(layer: FixedDropout | FixedAlphaDropout, input: Tensor, call: int) -> Tensor:
    """1 where a value is kept, 0 where it is dropped: (C, H, W) of one image, or (C, 1, 1) for whole channels.

    NumPy draws the mask: torch may not draw inside `torch.func.vmap`, and NumPy's numbers are the same on every device.
    """
    axis = 0 if layer.channels else layer.image_axes.get(call, 0)
    shape = input.shape[:axis] + input.shape[axis + 1 :]
    shape = shape[:1] + (1,) * (input.ndim - 2) if layer.channels else shape
    if (call, shape) not in layer.masks:
        mask = np.random.default_rng((*layer.seed, call)).random(tuple(shape)) >= layer.p
        layer.masks[call, shape] = torch.from_numpy(np.asarray(mask))
    return layer.masks[call, shape].unsqueeze(axis).to(input)
