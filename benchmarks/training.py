"""Training throughput against the plainest PyTorch loop, in turns within one process.

python -m benchmarks.training [--threads N] [--repeats N]

Prints a JSON line per network: images a second of both, and their ratio (ours / plain; 1 is as fast).
"""

import argparse
import json
from statistics import median
from time import perf_counter

import torch
from torch.nn import functional as F

from benchmarks._measure import machine
from dubium.data import Dataset
from dubium.training import Recipe, fit, network_for

CASES = {  # name: channels, size, images an epoch, recipe
    "paper's CNN, batch 128": (1, 28, 1280, Recipe(options={"channels": 1}, epochs=1)),
    "small CNN, batch 64": (1, 28, 3200, Recipe(options={"filters": 8, "units": 32}, epochs=1, batch_size=64)),
    "ResNet-8, batch 128": (3, 32, 640, Recipe("cifar-resnet", {"depth": 8}, epochs=1)),
}


def plain(data: Dataset, recipe: Recipe) -> None:
    """What one would write without a library."""
    network = network_for(recipe, 0)
    optimizer = torch.optim.SGD(network.parameters(), recipe.lr, recipe.momentum)
    for rows in torch.randperm(len(data)).split(recipe.batch_size):
        x = data.images[rows].float() / 255
        loss = F.cross_entropy(network(x), data.labels[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def measure(data: Dataset, recipe: Recipe, repeats: int) -> dict[str, float]:
    """Medians, and the median of the ratios of neighbours in time, which a busy moment hits alike."""
    times = []
    for turn in range(repeats + 1):
        marks = [perf_counter()]
        for run in (plain, ours) if turn % 2 else (ours, plain):
            run(data, recipe)
            marks.append(perf_counter())
        first, second = marks[1] - marks[0], marks[2] - marks[1]
        times.append((first, second) if turn % 2 else (second, first))
    kept = times[1:]  # the first round is a warm-up
    return {
        "plain": round(len(data) / median(p for p, _ in kept), 1),
        "ours": round(len(data) / median(o for _, o in kept), 1),
        "ratio": round(median(p / o for p, o in kept), 3),
    }


def ours(data: Dataset, recipe: Recipe) -> None:
    fit(network_for(recipe, 0), data, recipe)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--repeats", type=int, default=11)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    for name, (channels, size, count, recipe) in CASES.items():
        images = torch.randint(0, 256, (count, channels, size, size), dtype=torch.uint8)
        data = Dataset(images, torch.arange(count) % 10, tuple("0123456789"), "random", "train")
        found = measure(data, recipe, arguments.repeats)
        print(json.dumps({"network": name, **found, "repeats": arguments.repeats, **machine()}), flush=True)


if __name__ == "__main__":
    main()
