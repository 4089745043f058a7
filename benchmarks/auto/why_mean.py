"""Why is `auto` behind `ua-backprop` where pixels of CIFAR-100 go to the mean? Manipulations on development images.

    python -m benchmarks.auto.why_mean RUN DATASET [SKIP [ROW ...]]   # these rows alone, beside those that are kept

The most uncertain development images but for the first SKIP (60 by default: the reason was found on these, so that the
others confirm it). Each row is symmetric relevance gain with one thing changed: the map, its scatter (smoothed, whole
blocks, noise added to its ranks, the same map at another place), how a pixel goes (a part of the way to the mean; or
through a mask with soft edges: the same colour, fainter dots), or the networks (without the class that images with dots
are taken for). Printed and written to benchmarks/results/auto_why_mean.json: means with 95 % intervals over images, and
differences from another row.
"""

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn
from torch.nn.functional import avg_pool2d, interpolate

import dubium
from benchmarks.auto.choose import DEFAULT, SEED, smooth
from benchmarks.auto.keep import round_numbers
from benchmarks.auto.net import EPISTEMIC, REMOVAL_STEPS
from benchmarks.auto.split import split_indices
from dubium.attribution._context import DEFAULT_CONTEXT
from dubium.attribution.blur_path import PARTS_OF_TOTAL, blur_credits, mean_rise
from dubium.data import load
from dubium.evaluation.metrics.removal import removal_counts, removal_curves, removal_order, symmetric_gain
from dubium.evaluation.metrics.scoring import Uncertainty, predictor, scorer
from dubium.evaluation.statistics import bootstrap, mean
from dubium.files import write_atomically
from dubium.posteriors.stack import stack
from dubium.shares import UncertaintyTarget
from dubium.types import Images, Posterior

RESULTS = Path(__file__).parents[1] / "results" / "auto_why_mean.json"
IMAGES, SKIP = 50, 60
Ranking = Float[Tensor, "B H W"]


class Row(NamedTuple):
    """A ranking, how its pixels go, and the row that it is compared with."""

    name: str
    ranking: Ranking
    base: str = ""
    way: str = "mean"
    edge: float = 0  # sigma of the mask's edges, in pixels
    part: float = 1  # of the way to the mean
    spared: bool = False  # networks without the class that images with dots are taken for


class Without(nn.Module):
    """A network that does not know one of its classes."""

    def __init__(self, network: nn.Module, lost: int) -> None:
        super().__init__()
        self.network, self.lost = network, lost

    def forward(self, x: Images) -> Tensor:
        logits: Tensor = self.network(x)
        return torch.cat([logits[:, : self.lost], logits[:, self.lost + 1 :]], 1)


def base_maps(posterior: Posterior, x: Images) -> dict[str, Ranking]:
    """Epistemic maps of `auto`, also with their signs, of `ua-backprop` and of a control."""
    network, target = stack(posterior), UncertaintyTarget(PARTS_OF_TOTAL)
    lines = torch.cat([blur_credits(network, some, target, DEFAULT, DEFAULT_CONTEXT) for some in x.split(10)])
    found = {"auto": mean_rise(lines, 1)[:, EPISTEMIC], "signed": lines.mean(1)[:, EPISTEMIC]}
    for method in ("ua-backprop", "local-contrast"):
        parts = [dubium.explain(posterior, some, method=method, kinds=["epistemic"]) for some in x.split(10)]
        found[method] = torch.cat([part.maps["epistemic"] for part in parts])
    return {name: maps.detach().double() for name, maps in found.items()}


def in_blocks(maps: Ranking, side: int) -> Ranking:
    """Whole blocks in the order of their means; blocks that are alike do not mix."""
    ranks = removal_order(avg_pool2d(maps, side)).double()
    return -interpolate(ranks[:, None], scale_factor=side)[:, 0]


def elsewhere(maps: Ranking) -> Ranking:
    """The same map, moved by half the image both ways."""
    return maps.roll((maps.shape[1] // 2, maps.shape[2] // 2), (1, 2))


def rows(x: Images, maps: dict[str, Ranking]) -> Iterator[Row]:
    auto, ua, signed, contrast = (maps[name] for name in ("auto", "ua-backprop", "signed", "local-contrast"))
    distance = (x - x.mean((2, 3), keepdim=True)).abs().mean(1).double()
    noise = torch.rand(auto.shape, generator=torch.Generator().manual_seed(SEED), dtype=torch.float64)
    wide = smooth(auto[:, None], 2)[:, 0]
    yield Row("ua-backprop", ua)
    yield Row("auto", auto, "ua-backprop")
    yield Row("random", noise)
    for edge in (1, 0.5):
        yield Row(f"ua-backprop, edge {edge}", ua, edge=edge)
        yield Row(f"auto, edge {edge}", auto, f"ua-backprop, edge {edge}", edge=edge)
    for part in (0.25, 0.5):
        yield Row(f"ua-backprop, part {part}", ua, part=part)
        yield Row(f"auto, part {part}", auto, f"ua-backprop, part {part}", part=part)
    for side in (4, 2):
        yield Row(f"ua-backprop, blocks of {side}", in_blocks(ua, side))
        yield Row(f"auto, blocks of {side}", in_blocks(auto, side), f"ua-backprop, blocks of {side}")
    yield Row("ua-backprop, class spared", ua, spared=True)
    yield Row("auto, class spared", auto, "ua-backprop, class spared", spared=True)
    yield Row("auto, elsewhere", elsewhere(auto))
    yield Row("ua-backprop, elsewhere", elsewhere(ua))
    yield Row("ua-backprop, noise in ranks", noise - removal_order(ua).double() / ua[0].numel(), "ua-backprop")
    yield Row("auto, smoothed by 2", wide, "auto")
    yield Row("auto, ties by the smoothed map", auto + 1e-9 * wide, "auto")
    yield Row("auto, signed", signed, "auto")
    yield Row("distance from the mean", distance, "auto")
    yield Row("auto times distance", auto * distance, "auto")
    yield Row("local-contrast", contrast, "auto")
    yield Row("local-contrast, edge 1", contrast, "auto, edge 1", edge=1)
    yield Row("ua-backprop, linear", ua, way="linear")
    yield Row("auto, linear", auto, "ua-backprop, linear", way="linear")
    yield Row("auto, ties by the smoothed map, linear", auto + 1e-9 * wide, "auto, linear", way="linear")


def curves(uncertainty: Uncertainty, x: Images, row: Row) -> Float[Tensor, "2 B steps"]:
    """U(x_t) / U(x), most and least relevant pixels first."""
    order = removal_order(row.ranking)
    pixels = order[0].numel()
    counts = removal_counts(pixels, REMOVAL_STEPS)
    both = (order, pixels - 1 - order)
    if row.edge or row.part < 1:
        found = [soft_curves(uncertainty, x, ranks, counts, row) for ranks in both]
    else:
        found = [removal_curves(uncertainty, x, ranks, row.way, counts) for ranks in both]
    return torch.stack(found) / uncertainty(x)[:, None]


def soft_curves(
    uncertainty: Uncertainty, x: Images, order: Int64[Tensor, "B H W"], counts: Sequence[int], row: Row
) -> Float[Tensor, "B steps"]:
    """Uncertainty as pixels go a part of the way to the mean, through a mask that may be blurred."""
    change = row.part * (x.mean((2, 3), keepdim=True) - x)
    masks = ((order < count).to(x)[:, None] for count in counts)
    blurred = (smooth(mask, row.edge) if row.edge else mask for mask in masks)
    return torch.stack([uncertainty(x + mask * change) for mask in blurred], 1)


def interval(values: Tensor) -> list[float]:
    found = bootstrap(values.numpy(), mean)
    return [found.value, found.low, found.high]


def half_gone(posterior: Posterior, x: Images, ranking: Ranking) -> tuple[Tensor, dict[str, Any]]:
    """What networks say with half of the pixels at the mean: their classes, and a summary."""
    gone = removal_order(ranking) < ranking[0].numel() // 2
    scores, probs = predictor(posterior)(torch.where(gone[:, None], x.mean((2, 3), keepdim=True), x))
    classes = probs.argmax(1)
    edges = torch.cat([gone.diff(dim=1).flatten(1), gone.diff(dim=2).flatten(1)], 1).double().mean(1)
    summary = {
        "commonest class": int(classes.mode().values),
        "part of the images": float((classes == classes.mode().values).double().mean()),
        "highest probability": interval(probs.amax(1)),
        "uncertainty left": interval(scores / scorer(posterior)(x)),
        "neighbours parted": interval(edges),
    }
    return classes, summary


def judge(run: str, dataset: str, skip: int, names: Sequence[str]) -> dict[str, Any]:
    posterior, test = dubium.load_posterior(run), load(dataset, "test")
    uncertainty = scorer(posterior)
    pool = test.batch(split_indices(dataset, len(test), "development"))
    x = pool[uncertainty(pool).argsort(descending=True)[skip : skip + IMAGES]]
    maps = base_maps(posterior, x)
    every = list(rows(x, maps))
    half = {row.name: half_gone(posterior, x, row.ranking) for row in every[:3]}
    dots = int(half["random"][0].mode().values)
    spared = scorer([Without(network, dots) for network in posterior])
    flat = uncertainty(x.mean((2, 3), keepdim=True).expand_as(x)) / uncertainty(x)
    found: dict[str, Any] = {"skip": skip, "images": len(x), "all gone": interval(flat)}
    found["half gone"] = {name: summary for name, (_, summary) in half.items()}
    print(json.dumps(round_numbers(found)), flush=True)
    gains: dict[str, Tensor] = {}
    found["rows"] = {}
    for row in every:
        if names and row.name not in names:
            continue
        most, least = curves(spared if row.spared else uncertainty, x, row)
        gains[row.name] = symmetric_gain(most, least, torch.ones(len(x)))
        result = {"gain": interval(gains[row.name]), "most": float(most.mean()), "least": float(least.mean())}
        if row.base in gains:
            result |= {"less": row.base, "difference": interval(gains[row.name] - gains[row.base])}
        if row.name in ("auto", "ua-backprop"):
            result["curves"] = {"most": most.mean(0).tolist(), "least": least.mean(0).tolist()}
        found["rows"][row.name] = round_numbers(result)
        print(row.name, json.dumps(found["rows"][row.name]), flush=True)
    return found


def main(run: str, dataset: str, skip: str = str(SKIP), *names: str) -> None:
    torch.set_num_threads(1)
    found = round_numbers(judge(run, dataset, int(skip), names))
    kept = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    key = f"{run} {dataset} {skip}"
    if names and key in kept:
        found["rows"] = kept[key]["rows"] | found["rows"]
    kept[key] = found
    write_atomically(RESULTS, json.dumps(kept, indent=1) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
