"""Cascading weight randomisation (Adebayo et al., 2018, arXiv:1810.03292) of networks, from the top or the bottom."""

from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass
from math import ceil
from typing import Literal

import torch
from torch import Tensor, nn

from dubium.types import Posterior

Side = Literal["top", "bottom"]
"""Which layers lose their weights first: those next to the output, or those next to the image."""


@dataclass(frozen=True)
class Randomised:
    """A posterior whose networks have new weights in a fraction of their layers, each its own; see `randomise`.

    Example:
        >>> len(Randomised([nn.Linear(2, 2), nn.Linear(2, 2)], fraction=1.0))
        2
    """

    posterior: Posterior
    fraction: float
    seed: int = 0
    side: Side = "top"

    def __len__(self) -> int:
        return len(self.posterior)

    def __iter__(self) -> Iterator[nn.Module]:
        for index, network in enumerate(self.posterior):
            yield randomise(network, self.fraction, seed=self.seed + 1000 * index, side=self.side)


def randomise(network: nn.Module, fraction: float, *, seed: int = 0, side: Side = "top") -> nn.Module:
    """A copy with new weights in a fraction of the layers that have any, in the order they are declared.

    Weights are drawn from a Gaussian of their own standard deviation and biases are shuffled, so that nothing but what
    was learned is lost; BatchNorm keeps its statistics.

    Args:
        network: it stays as it is.
        fraction: of the layers, from 0 to 1.
        seed: of the new weights.
        side: the last layers ("top") or the first ("bottom").

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
    layers = [module for module in copied.modules() if any(True for _ in module.parameters(recurse=False))]
    with torch.no_grad():
        count = ceil(fraction * len(layers))
        for layer in layers[len(layers) - count :] if side == "top" else layers[:count]:
            for parameter in layer.parameters(recurse=False):
                parameter.copy_(_randomised_tensor(parameter, draws))
    return copied


def _randomised_tensor(parameter: Tensor, draws: torch.Generator) -> Tensor:
    if parameter.ndim > 1:
        return torch.randn(parameter.shape, generator=draws).to(parameter) * parameter.std()
    return parameter[torch.randperm(len(parameter), generator=draws).to(parameter.device)]
