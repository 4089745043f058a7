"""Other ways to trace fewer classes, tried on the CIFAR-100 ensemble: python -m benchmarks.classes_tried [IMAGES].

Prints a JSON line per way and n: relative L1 error and overlap of the top 5 % of pixels for the epistemic kind, means
over images and seeds. `unbiased` ways are the exact maps on average; the others need no seeds to be wrong.
"""

import json
import sys
from collections.abc import Callable, Iterator
from copy import deepcopy

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize, one_hot

from benchmarks._class_maps import Population, cifar100
from benchmarks.classes import plain, shipped
from dubium.class_sampling import class_weights
from dubium.evaluation import gaussian_blur

COUNTS, SEEDS = (5, 10, 20, 50), 5
Weights = Callable[[Tensor, int, int], Tensor]


def separate(share: Tensor, count: int, seed: int) -> Tensor:
    """Large classes set apart, but a draw for each kind."""
    kinds = [shipped(share[:, [t, t, t]], count, 2 * seed + t)[:, 1] for t in (1, 2)]
    return torch.stack([kinds[0] + kinds[1], *kinds], 1)


def independent(share: Tensor, count: int, seed: int) -> Tensor:
    """Every network with an offset of its own."""
    start = torch.rand(len(share), 1, 1, generator=torch.Generator().manual_seed(seed)).double()
    return class_weights(share, torch.full((share.shape[2],), count), start)


def ordered(order: Callable[[Tensor], Tensor]) -> Weights:
    """Classes laid out in another order, (S, B, K): neighbours are not drawn together."""

    def weights(share: Tensor, count: int, seed: int) -> Tensor:
        places = order(share)[:, None].expand_as(share)
        return torch.empty_like(share).scatter_(-1, places, shipped(share.gather(-1, places), count, seed))

    return weights


def last_weights(population: Population) -> list[Tensor]:
    layers = [[m for m in network.modules() if isinstance(m, nn.Linear)][-1] for network in population.posterior]
    return [layer.weight.detach() for layer in layers]


def clusters(rows: Tensor, count: int) -> Tensor:
    """k-means by angle."""
    rows = normalize(rows, dim=1)
    centres = rows[torch.randperm(len(rows), generator=torch.Generator().manual_seed(0))[:count]]
    for _ in range(20):
        nearest = (rows @ centres.T).argmax(1)
        centres = normalize(one_hot(nearest, count).float().T @ rows, dim=1)
    return nearest


def grouped(population: Population, groups: Callable[[int], Tensor]) -> Tensor:
    """One map for each group of classes: that of the sum of their logits, by share."""
    maps = torch.zeros_like(population.exact)
    for s, network in enumerate(population.posterior):
        members = one_hot(groups(s)).float()
        for b, share in enumerate(population.share[s, 2].float()):
            alone = Population("one", population.posterior, population.x[b : b + 1])
            weights = members * share[:, None]
            where = alone.maps_of(network, lambda logits, weights=weights: logits @ weights)[0]
            maps[2, b] += weights.sum(0) @ where / len(population.share)
    return maps


def low_rank(population: Population, rank: int) -> Tensor:
    """All maps, from gradients that are combinations of `rank` of them: the last layer's largest directions."""
    where = []
    for network, weight in zip(population.posterior, last_weights(population), strict=True):
        near = deepcopy(network)
        left, size, right = torch.linalg.svd(weight, full_matrices=False)
        layer = [m for m in near.modules() if isinstance(m, nn.Linear)][-1]
        layer.weight.copy_((left[:, :rank] * size[:rank]) @ right[:rank])
        where.append(population.maps_of(near, lambda logits: logits))
    return torch.einsum("stbk,sbkp->tbp", population.share.float(), torch.stack(where)) / len(where)


def rescaled(maps: Tensor, population: Population) -> Tensor:
    return maps / maps.sum(-1, keepdim=True) * population.exact.sum(-1, keepdim=True)


def power_mean(population: Population, weights: Tensor, power: float) -> Tensor:
    """Less swayed by single sharp maps than the mean."""
    parts = torch.einsum("stbk,sbkp->tbp", weights.float() / weights.sum((0, 3), keepdim=True).float(),
                         population.where**power)  # fmt: skip
    return rescaled(parts ** (1 / power), population)


def blurred(population: Population, maps: Tensor) -> Tensor:
    size = population.x.shape[2:]
    return rescaled(gaussian_blur(maps.unflatten(-1, size), [0.5])[0].flatten(-2), population)


def ways(population: Population) -> Iterator[tuple[str, bool, int, list[Tensor]]]:
    """Name, whether it is unbiased, n, and maps for each seed."""
    rows = last_weights(population)
    along = torch.stack([(row - row.mean(0)) @ torch.linalg.svd(row - row.mean(0)).Vh[0] for row in rows])
    of_weights = along.argsort(-1)[:, None].expand(-1, len(population.x), -1)
    draws: dict[str, Weights] = {
        "plain": plain, "large classes apart": separate, "shipped": shipped, "independent offsets": independent,
        "ordered by share": ordered(lambda share: share[:, 0].argsort(-1)),
        "ordered by last layer": ordered(lambda _share: of_weights),
    }  # fmt: skip
    summed = grouped(population, lambda _s: torch.zeros(rows[0].shape[0], dtype=torch.long))
    yield "one summed backward", False, 1, [summed]
    for count in COUNTS:
        for name, draw in draws.items():
            weights = [draw(population.share, count, seed) for seed in range(SEEDS)]
            maps = [population.added(weight) for weight in weights]
            yield name, True, count, maps
            if name == "shipped":
                yield "10 % of one summed backward", False, count, [0.9 * drawn + 0.1 * summed for drawn in maps]
                yield "power mean, 1/2", False, count, [power_mean(population, weight, 0.5) for weight in weights]
                yield "blurred by half a pixel", False, count, [blurred(population, drawn) for drawn in maps]
        yield (
            "groups alike in the last layer",
            False,
            count,
            [grouped(population, lambda s, count=count: clusters(rows[s], count))],
        )
        yield "gradients of rank n", False, count, [low_rank(population, count)]


def main(images: int = 24) -> None:
    population = cifar100()
    population.x = population.x[:: max(1, len(population.x) // images)]
    with torch.no_grad():
        for name, unbiased, count, maps in ways(population):
            errors = [population.errors(drawn) for drawn in maps]
            means = {key: round(sum(e[key][2] for e in errors) / len(errors), 3) for key in ("l1", "overlap")}
            print(json.dumps({"way": name, "unbiased": unbiased, "n": count, **means}), flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
