"""What `blur-path` costs: over its bare passes, and beside UA-Backprop with all of 1,000 classes. JSON lines.

    python -m benchmarks.auto.cost [passes] [classes] [NETWORK ...]

`passes`: three kinds at the default, over S x 16 plain forward passes and two input gradients each, at their best batch
size. `classes`: exact UA-Backprop and `blur-path`, three kinds, same networks and images, one run.
Processor time of this process, one thread, medians: others may use the machine.
"""

import json
import sys
from collections.abc import Callable
from functools import partial
from statistics import median
from time import process_time

import torch
from torch import nn

import dubium
from benchmarks._measure import machine, turns
from dubium.attribution.blur_path import PARTS_OF_TOTAL
from dubium.models import cifar_resnet, cnn, resnet18
from dubium.posteriors import stack
from dubium.shares import UncertaintyTarget

POINTS, FEW, BASE = 16, 8, "ua-backprop"
PASSES = {  # network, image, S, B, repeats
    "MNIST CNN": (cnn, (1, 28, 28), 5, 4, 5),
    "ResNet-20": (partial(cifar_resnet, depth=20), (3, 32, 32), 2, 2, 3),
}
MANY = {
    "ResNet-20": (partial(cifar_resnet, depth=20), (3, 32, 32), 2, 2, 6),
    "ResNet-18": (resnet18, (3, 32, 32), 1, 1, 2),
}


def bare_passes(networks: list[nn.Module], x: torch.Tensor, batch: int) -> Callable[[], None]:
    """As many passes as the default needs, `batch` points at a time."""
    whole, target = stack(networks), UncertaintyTarget(PARTS_OF_TOTAL)

    def run() -> None:
        for _ in range(0, POINTS * len(x), batch):
            points = torch.rand(batch, *x.shape[1:], requires_grad=True)
            aleatoric, epistemic = target(whole(points)).sum(0)
            torch.autograd.grad(aleatoric, points, retain_graph=True)
            torch.autograd.grad(epistemic, points)

    return run


def passes(name: str) -> dict[str, object]:
    make, shape, samples, images, repeats = PASSES[name]
    networks, x = posterior(make, samples, 10), torch.rand(images, *shape)
    runs: dict[str, Callable[[], object]] = {f"bare {n}": bare_passes(networks, x, n) for n in (16, 32)}
    runs["blur-path"] = partial(dubium.explain, networks, x, method="blur-path")
    times = {run: median(values) for run, values in turns(runs, repeats, clock=process_time).items()}
    best = min(time for run, time in times.items() if run.startswith("bare"))
    return {"S": samples, "B": images, "over bare passes": round(times["blur-path"] / best, 2)}


def classes(name: str) -> dict[str, object]:
    make, shape, samples, images, repeats = MANY[name]
    networks, x = posterior(make, samples, 1000), torch.rand(images, *shape)
    explain = partial(dubium.explain, networks, x)
    paths = {
        "default": partial(explain, method="blur-path"),
        f"passes={FEW}": partial(explain, method="blur-path", passes=FEW),
    }
    before = turns(paths, repeats, clock=process_time)
    exact = median(turns({BASE: explain}, repeats // 2, 0, clock=process_time)[BASE])  # long, between the others
    after = turns(paths, repeats, 0, clock=process_time)
    seconds = {run: median(before[run] + after[run]) for run in paths}
    line: dict[str, object] = {"K": 1000, "S": samples, "B": images, f"{BASE}, s an image": round(exact / images, 3)}
    for run, time in seconds.items():
        line |= {f"{run}, s an image": round(time / images, 3), f"{run}, times faster": round(exact / time, 1)}
    return line


def posterior(make: Callable[..., nn.Module], samples: int, count: int) -> list[nn.Module]:
    torch.manual_seed(0)
    return [make(classes=count).eval().requires_grad_(False) for _ in range(samples)]


if __name__ == "__main__":
    torch.set_num_threads(1)
    asked = set(sys.argv[1:])
    for part, cases in (("classes", MANY), ("passes", PASSES)):
        for case in cases:
            if (part in asked or asked <= {*PASSES, *MANY}) and (case in asked or asked <= {"passes", "classes"}):
                found = passes(case) if part == "passes" else classes(case)
                print(json.dumps({"part": part, "network": case, **found} | machine()), flush=True)
