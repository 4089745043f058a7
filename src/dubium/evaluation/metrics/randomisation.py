"""Cascading weight randomisation (Adebayo et al., 2018, arXiv:1810.03292) of networks, from the top or the bottom."""

from collections.abc import Collection, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from math import ceil
from typing import Literal

import torch
from torch import Tensor, nn

from dubium.types import Images, Posterior

Side = Literal["top", "bottom"]
"""Which layers lose their weights first: those next to the output, or those next to the image."""


@dataclass(frozen=True)
class Randomised:
    """A posterior whose networks have new weights in a fraction of their layers, each its own; see `randomise`.

    `unused` has the names of the layers that are left out for each network, see `unused_layers`; none if it is empty.

    Example:
        >>> len(Randomised([nn.Linear(2, 2), nn.Linear(2, 2)], fraction=1.0))
        2
    """

    posterior: Posterior
    fraction: float
    seed: int = 0
    side: Side = "top"
    unused: Sequence[Collection[str]] = ()

    def __len__(self) -> int:
        return len(self.posterior)

    def __iter__(self) -> Iterator[nn.Module]:
        for index, network in enumerate(self.posterior):
            unused = self.unused[index] if self.unused else ()
            yield randomise(network, self.fraction, seed=self.seed + 1000 * index, side=self.side, unused=unused)


def randomise(
    network: nn.Module, fraction: float, *, seed: int = 0, side: Side = "top", unused: Collection[str] = ()
) -> nn.Module:
    """A copy with new weights in a fraction of the layers that have any, in the order they are declared.

    Weights are drawn from a Gaussian of their own standard deviation and biases are shuffled, so that nothing but what
    was learned is lost; BatchNorm keeps its statistics, and a parameter that is one number (a temperature) its value.

    Args:
        network: it stays as it is.
        fraction: of the layers, from 0 to 1.
        seed: of the new weights.
        side: the last layers ("top") or the first ("bottom").
        unused: names of layers that keep their weights and are not counted, see `unused_layers`.

    Returns:
        The copy.

    Example:
        >>> network = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
        >>> copy = randomise(network, 0.5)
        >>> [torch.equal(a.weight, b.weight) for a, b in zip(network, copy)]
        [True, False]
    """
    copied = deepcopy(network)
    draws = torch.Generator().manual_seed(seed)
    layers = [layer for name, layer in layers_with_weights(copied).items() if name not in unused]
    with torch.no_grad():
        count = ceil(fraction * len(layers))
        for layer in layers[len(layers) - count :] if side == "top" else layers[:count]:
            for parameter in layer.parameters(recurse=False):
                parameter.copy_(_randomised_tensor(parameter, draws))
    return copied


def unused_layers(network: nn.Module, image: Images) -> frozenset[str]:
    """Names of the layers that the logits of an image do not depend on, such as an auxiliary head in eval mode.

    They have no gradient, and the logits stay as they are when all of their weights are others: layers before a cut of
    the gradient (`detach`) are used.

    Args:
        network: puts out logits; it stays as it is.
        image: one of them, (1, C, H, W).

    Example:
        >>> network = nn.Sequential(nn.Flatten(), nn.Linear(4, 2))
        >>> network[0].aux = nn.Linear(4, 2)
        >>> sorted(unused_layers(network, torch.rand(1, 1, 2, 2)))
        ['0.aux']
    """
    copied = deepcopy(network)
    layers = layers_with_weights(copied)
    weights = {
        name: [weight.requires_grad_() for weight in layer.parameters(recurse=False) if weight.is_floating_point()]
        for name, layer in layers.items()
    }
    with torch.enable_grad():
        logits = copied(image)
        flat = [weight for own in weights.values() for weight in own]
        slopes = (
            torch.autograd.grad(logits.sum(), flat, allow_unused=True) if logits.requires_grad else [None] * len(flat)
        )
    reached = {id(weight) for weight, slope in zip(flat, slopes, strict=True) if slope is not None}
    suspects = [name for name, own in weights.items() if own and not any(id(weight) in reached for weight in own)]
    if not suspects or _logits_stay(copied, image, logits, [weights[name] for name in suspects]):
        return frozenset(suspects)
    return frozenset(name for name in suspects if _logits_stay(copied, image, logits, [weights[name]]))


@torch.no_grad()
def _logits_stay(network: nn.Module, image: Images, logits: Tensor, weights: Sequence[Sequence[Tensor]]) -> bool:
    """Whether the logits are the same with other weights; the network then has its own again."""
    flat = [weight for own in weights for weight in own]
    before = [weight.clone() for weight in flat]
    draws = torch.Generator().manual_seed(0)
    for weight in flat:
        weight.add_(torch.randn(weight.shape, generator=draws, dtype=torch.float32).to(weight))
    stays = torch.equal(network(image), logits)
    for weight, own in zip(flat, before, strict=True):
        weight.copy_(own)
    return stays


def layers_with_weights(network: nn.Module) -> dict[str, nn.Module]:
    """Modules with parameters of their own by name, in the order they are declared."""
    return {
        name: module for name, module in network.named_modules() if any(True for _ in module.parameters(recurse=False))
    }


def _randomised_tensor(parameter: Tensor, draws: torch.Generator) -> Tensor:
    if parameter.numel() == 1:  # it has no standard deviation, and nothing to be shuffled with
        return parameter
    if parameter.ndim > 1:
        return torch.randn(parameter.shape, generator=draws, dtype=torch.float32).to(parameter) * parameter.std()
    return parameter[torch.randperm(len(parameter), generator=draws).to(parameter.device)]
