"""The blurring test in units of its bare forward passes, in one process: python -m benchmarks.blurring.

Prints a JSON line per network. `candidates` are the different (image, sigma, count) that must be scored; `ratio` is the
time of the whole test over that of as many plain forward passes through all networks, from a ready batch, at the batch
size that was fastest (contiguous images, as anyone would pass them). The aim is 1.2.
"""

import json
import sys
from collections.abc import Callable
from functools import partial

import torch

from benchmarks._measure import forwards, machine, seconds, unit
from dubium.evaluation.metrics.blurring import blurring_test, pixel_counts, sigma_grid
from dubium.evaluation.metrics.scoring import scorer
from dubium.models import cifar_resnet, cnn

SAMPLES, IMAGES = 5, 2


def main(names: list[str]) -> None:
    cases = {
        "mnist-cnn": (cnn, (1, 28, 28), (32, 64, 128, 256)),
        "resnet20": (lambda: cifar_resnet(depth=20), (3, 32, 32), (32, 64, 128)),
    }
    for name in names or list(cases):
        make, shape, batches = cases[name]
        torch.manual_seed(0)
        posterior = [make().eval() for _ in range(SAMPLES)]
        x, maps = torch.rand(IMAGES, *shape), torch.rand(IMAGES, *shape[1:])
        test = partial(blurring_test, x=x, maps=maps, counts=pixel_counts(*shape[1:]), sigmas=sigma_grid())
        candidates = counted(test)
        runs = forwards(posterior[0], x[0], batches)
        runs["test"] = partial(test, scorer(posterior))
        times = seconds(runs, 3)
        bare = SAMPLES * candidates * unit(times)
        line = {"network": name, "candidates": candidates, "ratio": round(times["test"] / bare, 3)}
        print(json.dumps(line | {"unit_us": round(1e6 * unit(times), 1)} | machine()), flush=True)


def counted(test: Callable[..., object]) -> int:
    """How many images the test asks about."""
    sizes: list[int] = []

    def uncertainty(batch: torch.Tensor) -> torch.Tensor:
        sizes.append(len(batch))
        return batch.double().flatten(1).sum(1)

    test(uncertainty)
    return sum(sizes)


if __name__ == "__main__":
    main(sys.argv[1:])
