"""What is measured: networks, and cells of classes, samples, images, pixels and memory limit."""

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from itertools import product

import torch
from torch import Tensor, nn

from dubium.attribution._context import DEFAULT_MEMORY
from dubium.models import cifar_resnet, cnn, resnet18

MIB = 2**20
SAMPLES, BATCHES = (1, 5, 20), (1, 8, 64)


@dataclass(frozen=True)
class Network:
    """How to build one, and the batch sizes among which the unit looks for the best."""

    make: Callable[..., nn.Module]
    channels: int
    size: int
    batches: tuple[int, ...]
    sized: bool = False  # whether `make` must be told the size of the images


NETWORKS = {
    "mnist-cnn": Network(cnn, 1, 28, (40, 80, 160, 640), sized=True),
    "resnet20": Network(partial(cifar_resnet, depth=20), 3, 32, (40, 80, 160)),
    "resnet18": Network(resnet18, 3, 32, (40, 80)),
}


@dataclass(frozen=True)
class Cell:
    """One call of `explain`: all kinds, default options."""

    network: str
    K: int = 10
    S: int = 5
    B: int = 8
    size: int = 0  # 0: the network's own
    limit: int = DEFAULT_MEMORY

    @property
    def rows(self) -> int:
        """Of plain forward passes in the unit."""
        return self.S * self.K * self.B

    @property
    def side(self) -> int:
        return self.size or NETWORKS[self.network].size

    @property
    def scale(self) -> float:
        """Pixels of an image over those that the network is meant for."""
        return (self.side / NETWORKS[self.network].size) ** 2

    @property
    def forward_batches(self) -> tuple[int, ...]:
        """Batch sizes for the unit; fewer of larger images."""
        return tuple(sorted({max(4, int(n / self.scale)) for n in NETWORKS[self.network].batches}))

    def build(self) -> tuple[list[nn.Module], Tensor]:
        """Random networks and images: the time does not depend on the values."""
        torch.manual_seed(0)
        network = NETWORKS[self.network]
        options = {"classes": self.K} | ({"size": self.side} if network.sized else {})
        networks = [network.make(**options).eval().requires_grad_(False) for _ in range(self.S)]
        return networks, torch.rand(self.B, network.channels, self.side, self.side)

    def about(self) -> dict[str, object]:
        return asdict(self) | {"size": self.side}


# (network, classes): the five of the grid. One ResNet-20 per number of classes, so that only K differs.
GRID = (("mnist-cnn", 10), ("resnet20", 10), ("resnet18", 10), ("resnet20", 100), ("resnet20", 1000))

TARGETS = (
    Cell("mnist-cnn", B=64),
    Cell("mnist-cnn", B=1),
    Cell("resnet20", B=8),
    Cell("resnet18", B=8),
)

# What is varied, everything else fixed. B = 1 is measured beside, and not fitted: a call's fixed cost shows there.
GROWTH: dict[tuple[str, str], tuple[Cell, ...]] = {
    ("mnist-cnn", "S"): tuple(Cell("mnist-cnn", S=s, B=64) for s in SAMPLES),
    ("mnist-cnn", "K"): tuple(Cell("mnist-cnn", K=k, S=1, B=32) for k in (10, 30, 100, 300, 1000)),
    ("mnist-cnn", "B"): tuple(Cell("mnist-cnn", B=b) for b in (8, 16, 32, 64, 128, 256)),
    ("mnist-cnn", "pixels"): tuple(Cell("mnist-cnn", B=8, size=n) for n in (28, 56, 112)),
    ("resnet20", "S"): tuple(Cell("resnet20", S=s, B=8) for s in SAMPLES),
    ("resnet20", "K"): tuple(Cell("resnet20", K=k, S=1, B=8) for k in (10, 100, 1000)),
    ("resnet20", "B"): tuple(Cell("resnet20", B=b) for b in (8, 16, 32, 64)),
    ("resnet20", "pixels"): tuple(Cell("resnet20", S=1, B=8, size=n) for n in (32, 64, 128)),
}

TIGHT = tuple(
    Cell(network, K, S=1, B=8, limit=limit * MIB) for network, K in GRID if K <= 100 for limit in (64, 128, 256)
)


@dataclass(frozen=True)
class Fraction:
    """How much of a cell a peer does; its time is scaled to the whole, since every peer is a loop."""

    members: int
    classes: int
    images: int  # of Integrated Gradients, which knows no classes


# The whole where it takes seconds. One member of five elsewhere: no peer shares work between members.
FRACTIONS: tuple[tuple[Cell, Fraction], ...] = (
    (Cell("mnist-cnn", B=64), Fraction(members=5, classes=10, images=64)),
    (Cell("mnist-cnn", B=1), Fraction(members=5, classes=10, images=1)),
    (Cell("resnet20", B=64), Fraction(members=1, classes=5, images=8)),
    (Cell("resnet20", B=1), Fraction(members=5, classes=10, images=1)),
    (Cell("resnet18", S=1, B=64), Fraction(members=1, classes=1, images=4)),
    (Cell("resnet18", S=1, B=1), Fraction(members=1, classes=10, images=1)),
    (Cell("resnet20", K=100, S=1, B=64), Fraction(members=1, classes=4, images=8)),
    (Cell("resnet20", K=1000, S=1, B=1), Fraction(members=1, classes=100, images=1)),
)

PROFILES = (Cell("mnist-cnn", B=64), Cell("resnet20", B=8))

QUICK = {
    "targets": (Cell("mnist-cnn", S=2, B=8),),
    "cells": (Cell("mnist-cnn", S=2, B=1), Cell("mnist-cnn", S=1, B=8), Cell("resnet20", S=1, B=1)),
    "peers": ((Cell("mnist-cnn", S=2, B=2), Fraction(members=1, classes=2, images=1)),),
    "profiles": (Cell("mnist-cnn", S=1, B=8),),
}


def others() -> Iterator[Cell]:
    """All cells beside the targets, each once, those for the exponents first."""
    seen = set(TARGETS)
    grid = (Cell(network, K, s, b) for (network, K), s, b in product(GRID, SAMPLES, BATCHES))
    for cell in (*(cell for series in GROWTH.values() for cell in series), *TIGHT, *grid):
        if cell not in seen:
            seen.add(cell)
            yield cell
