"""Cascading weight randomisation (Adebayo et al., 2018, arXiv:1810.03292) of networks."""

from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass
from math import ceil

import torch
from torch import Tensor, nn

from dubium.types import Posterior


@dataclass(frozen=True)
class Randomised:
    """A posterior whose networks have new weights in the last `fraction` of their layers, each its own.

    Example:
        >>> len(Randomised([nn.Linear(2, 2), nn.Linear(2, 2)], fraction=1.0))
        2
    """

    posterior: Posterior
    fraction: float
    seed: int = 0

    def __len__(self) -> int:
        return len(self.posterior)

    def __iter__(self) -> Iterator[nn.Module]:
        for index, network in enumerate(self.posterior):
            yield randomise(network, self.fraction, seed=self.seed + 1000 * index)


def randomise(network: nn.Module, fraction: float, *, seed: int = 0) -> nn.Module:
    """A copy with new weights in the last `fraction` of the layers that have any, in the order they are declared.

    Weights are drawn from a Gaussian of their own standard deviation and biases are shuffled, so that nothing but what
    was learned is lost; BatchNorm keeps its statistics.

    Args:
        network: it stays as it is.
        fraction: of the layers, from 0 to 1.
        seed: of the new weights.

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
        for layer in layers[len(layers) - ceil(fraction * len(layers)) :]:
            for parameter in layer.parameters(recurse=False):
                parameter.copy_(_randomised_tensor(parameter, draws))
    return copied


def _randomised_tensor(parameter: Tensor, draws: torch.Generator) -> Tensor:
    if parameter.ndim > 1:
        return torch.randn(parameter.shape, generator=draws).to(parameter) * parameter.std()
    return parameter[torch.randperm(len(parameter), generator=draws).to(parameter.device)]
