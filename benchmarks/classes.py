"""`classes=n` and `tau1="auto"`: error against the exact maps, and time, over n and K.

    python -m benchmarks.classes [error] [auto] [moved] [time] [tau1] [POPULATION ...] > lines.jsonl
    python -m benchmarks.classes plot < lines.jsonl > docs/images/classes.png
    python -m benchmarks.classes picture > docs/images/tau1-auto.png

Prints JSON lines. Errors are means over images and seeds for total, aleatoric and epistemic, in that order; `maps` is
the number of relevance maps an image and network, for all three kinds. K = 100 needs the CIFAR-100 ensemble and data.
"""

import io
import json
import sys
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from matplotlib.figure import Figure
from torch import Tensor

import dubium
from benchmarks._class_maps import Population, cifar100, populations
from benchmarks._measure import machine, seconds
from dubium.class_sampling import class_weights, count_points, start_offsets
from dubium.figures import overlay, picture
from dubium.models import cifar_resnet, cnn, resnet18
from dubium.shares import class_shares
from dubium.softmax_share import diagonal_weight, scale_tau1, softmax_share

SEEDS = 10
COUNTS = {"mnist-10": (2, 3, 5), "cifar-100": (5, 10, 20, 50), "random-1000": (5, 10, 20, 50, 100)}
TIMES = {  # network, image, S, B, K, counts, repeats
    "mnist-cnn-10": (cnn, (1, 28, 28), 5, 8, 10, (2, 5), 5),
    "resnet20-100": (partial(cifar_resnet, depth=20), (3, 32, 32), 2, 2, 100, (5, 10, 20, 50), 3),
    "resnet20-1000": (partial(cifar_resnet, depth=20), (3, 32, 32), 2, 2, 1000, (20, 50, 100), 1),
    "resnet18-1000": (resnet18, (3, 32, 32), 1, 1, 1000, (20, 50, 100), 1),
}


def plain(share: Tensor, count: int, seed: int) -> Tensor:
    """Systematic sampling as it is usually done: a draw for each kind, weight U / n."""
    generator = torch.Generator().manual_seed(seed)
    scores = share[:, 1:].sum(-1, keepdim=True)
    starts = torch.rand(2, len(share), 1, 1, generator=generator).double()
    chances = count * share[:, 1:] / scores
    hits = torch.stack([count_points(chances[:, kind], starts[kind]) for kind in range(2)], 1)
    weights = hits * scores / count
    return torch.cat([weights.sum(1, keepdim=True), weights], 1)


def shipped(share: Tensor, count: int, seed: int) -> Tensor:
    return class_weights(share, torch.full((share.shape[2],), count), start_offsets(len(share), seed))


def error(population: Population) -> Iterator[dict[str, Any]]:
    for count in COUNTS[population.name]:
        for draw in (plain, shipped):
            found, maps = [], 0.0
            for seed in range(SEEDS):
                weights = draw(population.share, count, seed)
                found.append(population.errors(population.added(weights)))
                maps += (weights[:, 0] > 0).sum(-1).double().mean().item() / SEEDS
            means = {key: mean_of([errors[key] for errors in found]) for key in ("l1", "overlap")}
            yield {"n": count, "draw": draw.__name__, "maps": round(maps, 1), **means}


def auto(population: Population) -> Iterator[dict[str, Any]]:
    """What `classes="auto"` chooses for each image, and the error that it then has."""
    picked, found = [], []
    for seed in range(3):
        result = dubium.explain(population.posterior, population.x, classes="auto", seed=seed, tau1=population.tau1)
        picked += result.extras["classes"]["total"].tolist()
        found.append(population.errors(torch.stack([maps.flatten(1) for maps in result.maps.values()])))
    means = {key: mean_of([errors[key] for errors in found]) for key in ("l1", "overlap")}
    yield {"fewest": min(picked), "mean": sum(picked) / len(picked), "most": max(picked), **means}


def moved(population: Population) -> Iterator[dict[str, Any]]:
    """How far `tau1="auto"` takes the exact maps, and how many classes then carry half of a network's share."""
    for chosen in (population.taus[0], scale_tau1(population.logits.shape[-1], population.taus[0])):
        share = softmax_share(class_shares(population.logits), population.logits, chosen)
        parts = (share / share.sum(-1, keepdim=True)).sort(-1, descending=True).values.cumsum(-1)
        half = (1 + (parts < 0.5).sum(-1).double().mean((0, 2))).tolist()
        yield {"tau1": round(chosen, 4), "half": [round(n, 1) for n in half]} | {
            key: mean_of([values]) for key, values in population.errors(population.added(share)).items()
        }


def mean_of(lists: list[list[float]]) -> list[float]:
    return [round(sum(values) / len(values), 3) for values in zip(*lists, strict=True)]


def time(name: str) -> Iterator[dict[str, Any]]:
    """Seconds an image, forward passes included, of all kinds and of one, and how much faster than all classes."""
    make, shape, samples, batch, classes, counts, repeats = TIMES[name]
    torch.manual_seed(0)
    posterior, x = [make(classes=classes).eval() for _ in range(samples)], torch.rand(batch, *shape)
    kinds = {"three": ("total", "aleatoric", "epistemic"), "one": ("total",) if samples == 1 else ("epistemic",)}
    runs = {"all": partial(dubium.explain, posterior, x, kinds=kinds["one"])}
    for count in counts:
        for label, wanted in kinds.items():
            runs[f"{count} {label}"] = partial(dubium.explain, posterior, x, kinds=wanted, classes=count)
    times = seconds(runs, repeats)
    for run, taken in times.items():
        yield {"run": run, "seconds": round(taken / batch, 4), "faster": round(times["all"] / taken, 1)} | machine()


def tau1() -> Iterator[dict[str, Any]]:
    for images, ten in (("grey", 0.08), ("colour", 0.55)):
        for classes in (2, 10, 100, 1000):
            chosen = scale_tau1(classes, ten)
            yield {
                "images": images, "K": classes, "auto": round(chosen, 4),
                "own": round(diagonal_weight(classes, ten), 4), "own_auto": round(diagonal_weight(classes, chosen), 4),
            }  # fmt: skip


def plot() -> Figure:
    lines = [json.loads(line) for line in sys.stdin]
    figure = Figure(figsize=(9, 3.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    for name in COUNTS:
        for draw, style in (("plain", "--"), ("shipped", "-")):
            points = [line for line in lines if line.get("population") == name and line.get("draw") == draw]
            colour = f"C{list(COUNTS).index(name)}"
            label = f"{name}, {'plain' if draw == 'plain' else 'classes=n'}"
            for axis, key in ((left, "l1"), (right, "overlap")):
                axis.plot(
                    [p["maps"] for p in points],
                    [p[key][2] for p in points],
                    colour + style,
                    marker="o",
                    ms=3,
                    label=label,
                )
    left.set(ylabel="relative L1 error, epistemic", ylim=(0, None))
    right.set(ylabel="overlap of the top 5 % of pixels", ylim=(0, 1))
    for axis in (left, right):
        axis.set(xlabel="maps per image and network, for all three kinds", xscale="log")
        axis.set_xticks([2, 5, 10, 20, 50, 100], ["2", "5", "10", "20", "50", "100"])
        axis.minorticks_off()
        axis.spines[["top", "right"]].set_visible(False)
        axis.grid(alpha=0.3)
    right.legend(frameon=False, fontsize=8, loc="lower right")
    return figure


def compared(images: int = 4) -> Figure:
    """Epistemic maps of CIFAR-100 images: the paper's tau1, all classes and twenty; and `tau1="auto"`, the same."""
    population = cifar100()
    x = population.x[:images]
    columns = {"tau1=.55": {}, "and classes=20": {"classes": 20}, 'tau1="auto"': {"tau1": "auto"},
               "and classes=20 ": {"tau1": "auto", "classes": 20}}  # fmt: skip
    figure = Figure(figsize=(1.5 * (1 + len(columns)), 1.55 * images), layout="constrained")
    axes = figure.subplots(images, 1 + len(columns), squeeze=False)
    for column, (title, options) in enumerate(columns.items(), start=1):
        maps = dubium.explain(population.posterior, x, kinds="epistemic", **options).maps["epistemic"]
        axes[0, column].set_title(title, fontsize=9)
        for b in range(images):
            axes[b, column].imshow(overlay(x[b], maps[b]))
    for b in range(images):
        axes[b, 0].imshow(picture(x[b]))
    for axis in axes.flat:
        axis.axis("off")
    return figure


def png(figure: Figure) -> None:
    buffer = io.BytesIO()
    figure.savefig(buffer, dpi=110)
    sys.stdout.buffer.write(buffer.getvalue())


def main(words: list[str]) -> None:
    if words in (["plot"], ["picture"]):
        png(plot() if words == ["plot"] else compared())
        return
    known = ["error", "auto", "moved", "time", "tau1"]
    parts = [word for word in words if word in known] or known
    names = [word for word in words if word in populations() or word in TIMES] or [*populations(), *TIMES]
    for name, make in populations().items():
        if name in names and {"error", "auto", "moved"} & set(parts):
            population = make()
            for part in (error, auto, moved):
                for line in part(population) if part.__name__ in parts else ():
                    tell({"part": part.__name__, "population": name, **line})
    for name in TIMES if "time" in parts else ():
        for line in time(name) if name in names else ():
            tell({"part": "time", "network": name, **line})
    for line in tau1() if "tau1" in parts else ():
        tell({"part": "tau1", **line})


def tell(line: dict[str, Any]) -> None:
    print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
