"""Training data of the fitting functions: anything that yields (images, labels) on every pass."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from dubium.errors import OptionError

Batches = Iterable[Any]
"""Yields (images, labels) on every pass: a DataLoader, or a list of pairs."""


@dataclass(frozen=True, eq=False)
class TrainingBatches:
    """Batches on the device of `like`. `dataset` has the number of images, where laplace-torch looks for it."""

    batches: Batches
    dataset: range
    like: Tensor

    def __len__(self) -> int:
        return sum(1 for _ in self.batches)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        for x, y in self.batches:
            yield x.to(self.like.device), y.to(self.like.device)


def training_batches(batches: Batches, network: nn.Module) -> TrainingBatches:
    """Count the images; batches that cannot be read a second time, such as a generator, are refused."""
    first = next(iter(batches), None) if not isinstance(batches, Tensor) else batches
    if first is not None and not (isinstance(first, tuple | list) and len(first) == 2):
        raise OptionError(
            f"The batches are a {type(batches).__name__} of {type(first).__name__}; pairs (images, labels) are needed: "
            "a DataLoader, or a list of them, as in [(images, labels)]."
        )
    images = sum(len(y) for _, y in batches)
    if images == 0 or sum(len(y) for _, y in batches) != images:
        raise OptionError(
            "The batches gave no images, or other images when read again, as an iterator does; they are read several "
            "times. Pass a DataLoader or a list of (images, labels), not a generator."
        )
    return TrainingBatches(batches, range(images), next(network.parameters()))
