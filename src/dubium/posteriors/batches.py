"""Training data as the fitting functions take it: anything that yields (images, labels), again and again."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from dubium.errors import OptionError

Batches = Iterable[Any]
"""Yields (images, labels) on every pass: a DataLoader, or a list of pairs."""


@dataclass(frozen=True, eq=False)
class Counted:
    """Batches on the network's device, with what laplace-torch reads off a DataLoader: the number of images."""

    batches: Batches
    dataset: range
    like: Tensor

    def __len__(self) -> int:
        return sum(1 for _ in self.batches)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        for x, y in self.batches:
            yield x.to(self.like.device), y.to(self.like.device)


def counted(batches: Batches, network: nn.Module) -> Counted:
    images = sum(len(y) for _, y in batches)
    if images == 0 or sum(len(y) for _, y in batches) != images:
        raise OptionError(
            f"The batches gave {images} images, and another number or none when read again; they are read several "
            "times. Pass a DataLoader or a list of (images, labels), not a generator."
        )
    return Counted(batches, range(images), next(network.parameters()))
