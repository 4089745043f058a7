"""Baselines beside the passes that they cannot do without: python -m benchmarks.methods [part ...].

`passes`: SmoothGrad, IG and Blur IG on one kind of uncertainty, over as many plain forward and input-backward passes at
their best batch size. `clue`: time per image at batch 1 over batch 64. `paper`: times per image as in its Table 5,
relative to UA-Backprop. `memory`: peak of a process at 100 steps and 64 images, over the limit. JSON lines.
"""

import json
import resource
import subprocess
import sys
from collections.abc import Callable
from functools import partial

import torch
from torch import nn

import dubium
from benchmarks._measure import machine, seconds
from dubium.models import cnn, vae_dense
from dubium.posteriors import stack
from dubium.shares import UncertaintyTarget

IMAGES, STEPS = 16, 20


def posterior() -> list[nn.Module]:
    torch.manual_seed(0)
    return [cnn().eval().requires_grad_(False) for _ in range(5)]


def plain(networks: list[nn.Module], batch: int, count: int) -> Callable[[], None]:
    """`count` forward and backward passes through all networks to the input, `batch` images at a time."""
    whole, target = stack(networks), UncertaintyTarget(("epistemic",))

    def run() -> None:
        for _ in range(0, count, batch):
            x = torch.rand(batch, 1, 28, 28, requires_grad=True)
            torch.autograd.grad(target(whole(x)).sum(), x)

    return run


def passes() -> None:
    networks, x, count = posterior(), torch.rand(IMAGES, 1, 28, 28), IMAGES * STEPS
    runs: dict[str, Callable[[], object]] = {f"plain {n}": plain(networks, n, count) for n in (8, 16, 32, 64)}
    for method, option in (("smoothgrad", "samples"), ("ig", "steps"), ("blur-ig", "steps")):
        runs[method] = partial(dubium.explain, networks, x, method=method, kinds="epistemic", **{option: STEPS})
    times = seconds(runs, 5)
    best = min(time for name, time in times.items() if name.startswith("plain"))
    for method in ("smoothgrad", "ig", "blur-ig"):
        line = {"part": "passes", "method": method, "ratio": round(times[method] / best, 2)}
        print(json.dumps(line | machine()), flush=True)


def clue() -> None:
    networks, x = posterior(), torch.rand(64, 1, 28, 28)
    vae = vae_dense(latent=12).eval()
    run = partial(dubium.explain, networks, method="clue", kinds="epistemic", vae=vae, steps=20)
    times = seconds({"1": lambda: run(x[:1]), "64": lambda: run(x)}, 5)
    speedup = times["1"] * 64 / times["64"]
    print(json.dumps({"part": "clue", "batch 1 over 64, per image": round(speedup, 2)} | machine()), flush=True)


def paper() -> None:
    """One image, and 64; CLUE with a tenth of its steps, times ten."""
    networks, vae = posterior(), vae_dense(latent=12).eval()
    for batch in (1, 64):
        x = torch.rand(batch, 1, 28, 28)
        run = partial(dubium.explain, networks, x, kinds="epistemic")
        runs = {
            "ua-backprop": run,
            "blur-ig": partial(run, method="blur-ig"),
            "smoothgrad": partial(run, method="smoothgrad"),
            "clue": partial(run, method="clue", vae=vae, steps=50),
        }
        times = seconds(runs, 3)
        times["clue"] *= 10
        ratios = {method: round(time / times["ua-backprop"], 1) for method, time in times.items()}
        print(json.dumps({"part": "paper", "batch": batch, **ratios} | machine()), flush=True)


def memory(limit: int = 2**28) -> None:
    for method in ("smoothgrad", "ig", "blur-ig"):
        command = [sys.executable, "-m", "benchmarks.methods", "--peak", method, str(limit)]
        ratio = float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
        print(json.dumps({"part": "memory", "method": method, "peak over limit": round(ratio, 2)}), flush=True)


def peak(method: str, limit: int) -> None:
    def highest() -> int:
        return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    networks, x = posterior(), torch.rand(64, 1, 28, 28)
    steps = {"samples" if method == "smoothgrad" else "steps": 1}
    dubium.explain(networks, x[:1], method=method, memory=2**20, **steps)  # what torch needs for its kernels
    before = highest()
    dubium.explain(networks, x, method=method, memory=limit, **dict.fromkeys(steps, 100))
    print((highest() - before) / limit)


PARTS = {"passes": passes, "clue": clue, "paper": paper, "memory": memory}

if __name__ == "__main__":
    if sys.argv[1:2] == ["--peak"]:
        peak(sys.argv[2], int(sys.argv[3]))
    else:
        for name in sys.argv[1:] or PARTS:
            PARTS[name]()
