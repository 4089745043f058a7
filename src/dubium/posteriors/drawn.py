"""A posterior given as a function that returns one network per call."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from torch import nn

from dubium.checks import check_seed
from dubium.errors import PosteriorTypeError
from dubium.posteriors.gaussian import check_samples
from dubium.posteriors.weights import describe_posterior, snapshot
from dubium.seeds import numbered_seed, temporary_seed


@dataclass(frozen=True, eq=False, repr=False)
class Drawn:
    """The networks `sample(0)`, ..., `sample(samples - 1)`; each is copied, so that `sample` may reuse one network.

    torch's random numbers are seeded before each call, so that a random `sample` is repeatable too.

    >>> from torch import nn
    >>> posterior = Drawn(lambda index: nn.Linear(2, 2), samples=3)
    >>> len(posterior), [bool((a.weight == b.weight).all()) for a, b in zip(posterior, posterior)]
    (3, [True, True, True])
    """

    sample: Callable[[int], nn.Module]
    samples: int
    seed: int = 0

    def __post_init__(self) -> None:
        check_samples(self.samples)
        check_seed(self.seed)

    def __repr__(self) -> str:
        return describe_posterior(self, self.sample)

    def __len__(self) -> int:
        return self.samples

    def __iter__(self) -> Iterator[nn.Module]:
        for index in range(self.samples):
            with temporary_seed(numbered_seed(self.seed, index)):
                network = self.sample(index)
            if not isinstance(network, nn.Module):
                raise PosteriorTypeError(f"sample({index}) gave a {type(network).__name__}; a network is needed.")
            yield snapshot(network)
