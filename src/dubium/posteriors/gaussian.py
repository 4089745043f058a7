"""A Gaussian over weights: mean-field variational inference, and SWAG on networks without BatchNorm."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import SupportsIndex

import torch
from torch import Tensor, nn

from dubium.checks import check_seed
from dubium.errors import PosteriorError
from dubium.posteriors.weights import check_weights, describe_posterior, snapshot, with_weights


@dataclass(frozen=True, eq=False, repr=False)
class Gaussian:
    """`mean` plus independent noise of standard deviation `std[name]`, plus low-rank noise common to all weights.

    Args:
        mean: the network with the mean weights; it is copied.
        std: by parameter name; a parameter that is not named has no independent noise.
        factors: (R, *shape) by parameter name: R directions, each multiplied by a standard normal number that is the
            same for all weights.

    >>> network = nn.Linear(2, 2)
    >>> posterior = Gaussian(network, {"weight": torch.full((2, 2), 0.1)}, samples=3)
    >>> len(posterior), [torch.equal(sample.bias, network.bias) for sample in posterior]
    (3, [True, True, True])
    """

    mean: nn.Module
    std: Mapping[str, Tensor]
    factors: Mapping[str, Tensor] = field(default_factory=dict)
    samples: int = 20
    seed: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "mean", snapshot(self.mean))
        check_samples(self.samples)
        check_seed(self.seed)
        check_weights(self.mean, self.std, "std")
        for name, directions in self.factors.items():
            if len(directions) == 0:
                raise PosteriorError(
                    f"factors[{name!r}] has no direction; give (R, *shape) with R of at least 1, or none."
                )
            check_weights(self.mean, {name: directions[0]}, "factors")
        buffers = [name for name in {**self.std, **self.factors} if name not in dict(self.mean.named_parameters())]
        if buffers:
            raise PosteriorError(f"std or factors names {', '.join(buffers)}: no parameter, so it would have no noise.")
        for name, std in self.std.items():
            if not (std >= 0).all():
                raise PosteriorError(f"std[{name!r}] has values below 0, or NaN; standard deviations are needed.")
        ranks = {len(directions) for directions in self.factors.values()}
        if len(ranks) > 1:
            raise PosteriorError(f"factors has {sorted(ranks)} directions; every weight needs the same number.")

    def __repr__(self) -> str:
        return describe_posterior(self, self.mean)

    def __len__(self) -> int:
        return self.samples

    def __iter__(self) -> Iterator[nn.Module]:
        for weights in self.draw():
            yield with_weights(self.mean, weights)

    def draw(self) -> Iterator[dict[str, Tensor]]:
        """The weights of each sample; drawn on the CPU, so that they are the same on every device."""
        rng = torch.Generator().manual_seed(self.seed)
        rank = max((len(directions) for directions in self.factors.values()), default=0)
        for _ in range(self.samples):
            common = torch.randn(rank, generator=rng)
            weights = {}
            for name, mean in self.mean.named_parameters():
                noise = torch.zeros_like(mean)
                if name in self.std:
                    own = torch.randn(mean.shape, generator=rng, dtype=mean.dtype)
                    noise += self.std[name].to(mean) * own.to(mean)
                if name in self.factors:
                    noise += torch.tensordot(common.to(mean), self.factors[name].to(mean), 1)
                if name in self.std or name in self.factors:
                    weights[name] = mean + noise
            yield weights


def check_samples(samples: int) -> None:
    """Raise an error unless there is at least one sample."""
    if isinstance(samples, bool) or not isinstance(samples, SupportsIndex) or samples < 1:
        raise PosteriorError(f"samples is {samples!r}; a whole number, at least 1, is needed.")
