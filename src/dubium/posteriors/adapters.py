"""Take the user's object as it is: a list, or a model of another library."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from dubium.errors import PosteriorTypeError
from dubium.posteriors.gaussian import check_samples
from dubium.posteriors.weights import snapshot
from dubium.types import Posterior


def as_posterior(obj: Any, samples: int | None = None, seed: int = 0) -> Posterior:
    """The object as a sized, repeatable collection of networks; it is not changed, and a list is returned as it is.

    Args:
        obj: a list of networks or any `Posterior`; a fitted `laplace.Laplace`; a model of torch-uncertainty or
            bayesian-torch; or a function `sample(i) -> network`.
        samples: how many networks to draw, where they are drawn: 20 by default, or what the object says.
        seed: of the draws.
    """
    if isinstance(obj, list | tuple):
        return obj
    if isinstance(obj, nn.ModuleList):
        return list(obj)
    if comes_from(obj, "laplace"):
        from dubium.posteriors.laplace import from_laplace

        return from_laplace(obj, samples or 20, seed)
    if isinstance(obj, nn.Module):
        return from_module(obj, samples, seed)
    if isinstance(obj, Posterior) and not isinstance(obj, str | bytes | dict | set | Tensor):
        return obj
    if callable(obj) and not isinstance(obj, type):
        count = samples or (len(obj) if hasattr(obj, "__len__") else 20)
        return Drawn(obj, count, seed)
    raise PosteriorTypeError(
        f"The posterior is a {type(obj).__name__}; expected a list of networks, a posterior of dubium.posteriors, a "
        "laplace.Laplace, a model of torch-uncertainty or bayesian-torch, or a function sample(i) -> network. A "
        "generator can be read only once: pass list(...)."
    )


def from_module(model: nn.Module, samples: int | None, seed: int) -> Posterior:
    """A network that is several: with random layers of another library, or wrapped by it."""
    libraries = {type(layer).__module__.partition(".")[0] for layer in model.modules()}
    if "bayesian_torch" in libraries:
        from dubium.posteriors.bayesian_torch import from_bayesian_torch

        return from_bayesian_torch(model, samples or 20, seed)
    if "torch_uncertainty" in libraries or comes_from(model, "torch_uncertainty"):
        from dubium.posteriors.torch_uncertainty import from_torch_uncertainty

        return from_torch_uncertainty(model, samples, seed)
    dropout = any(isinstance(layer, nn.modules.dropout._DropoutNd) for layer in model.modules())
    raise PosteriorTypeError(
        f"The posterior is a single {type(model).__name__}, not a collection. Give a list of networks, even for one: "
        "[network]." + (" It has dropout layers: dubium.posteriors.MCDropout(network) samples them." if dropout else "")
    )


def comes_from(obj: object, library: str) -> bool:
    """Whether the object's class, or one it is derived from, is the library's; the library is not imported."""
    return any(cls.__module__.partition(".")[0] == library for cls in type(obj).__mro__)


@dataclass(frozen=True, eq=False)
class Drawn:
    """The networks `sample(0)`, ..., `sample(samples - 1)`; each is copied, so that `sample` may reuse one network.

    torch's random numbers are seeded for each, so that a random `sample` is repeatable too.
    """

    sample: Callable[[int], nn.Module]
    samples: int
    seed: int = 0

    def __post_init__(self) -> None:
        check_samples(self.samples)

    def __len__(self) -> int:
        return self.samples

    def __iter__(self) -> Iterator[nn.Module]:
        for index in range(self.samples):
            with torch.random.fork_rng():
                torch.manual_seed(self.seed * 1_000_003 + index)
                network = self.sample(index)
            if not isinstance(network, nn.Module):
                raise PosteriorTypeError(f"sample({index}) gave a {type(network).__name__}; a network is needed.")
            yield snapshot(network)
