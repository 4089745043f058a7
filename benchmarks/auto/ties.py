"""Do pixels of which `auto` keeps nothing have a better order than a random one? Differences, development images.

    python -m benchmarks.auto.ties RUN DATASET     # RUN may be "demo"

Some 40 to 70 % of the pixels of a map of `auto` are exactly zero, and go in random order where pixels are removed. Each
row has the order of `auto` among the others, and another order of these; or the whole signed map. Printed: symmetric
relevance gain of `auto` with its standard error, and for each other row the mean of the differences from it. Leads, not
results.
"""

import sys
from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Tensor

import dubium
from benchmarks.auto.choose import DEFAULT, mean_and_error, smooth
from benchmarks.auto.split import split_indices
from dubium.attribution._context import DEFAULT_CONTEXT
from dubium.attribution.blur_path import blur_credits, mean_rise
from dubium.data import load
from dubium.evaluation.metrics.removal import REMOVALS, relevance_gain
from dubium.evaluation.metrics.scoring import scorer
from dubium.posteriors.stack import stack
from dubium.shares import UncertaintyTarget
from dubium.types import Images, Posterior

IMAGES, CANDIDATES, REMOVAL_STEPS, TINY = 40, 1000, 20, 1e-9
Ranking = Float[Tensor, "B H W"]


def rankings(posterior: Posterior, x: Images) -> Iterator[tuple[str, Ranking]]:
    target = UncertaintyTarget(("epistemic",))
    lines = [blur_credits(stack(posterior), some, target, DEFAULT, DEFAULT_CONTEXT) for some in x.split(10)]
    credits = torch.cat(lines).double()
    auto, falls, signed = mean_rise(credits, 1), mean_rise(-credits, 1), credits.mean(1)
    orders = {
        "zeros by the signed map": signed,
        "zeros by what falls": -falls,
        "zeros by the signed map, smoothed by 1": smooth(signed, 1),
        "zeros by the signed map, smoothed by 2": smooth(signed, 2),
        "zeros by the map, smoothed by 2": smooth(auto, 2),
    }
    yield "auto", auto[:, 0]
    for name, order in orders.items():
        yield (
            name,
            (auto / auto.amax((2, 3), keepdim=True) + TINY * order / order.abs().amax((2, 3), keepdim=True))[:, 0],
        )
    yield "rises less falls", (auto - falls)[:, 0]
    yield "signed map", signed[:, 0]


def judge(run: str, dataset: str) -> None:
    posterior, test = dubium.load_posterior(run), load(dataset, "test")
    uncertainty = scorer(posterior)
    pool = test.batch(split_indices(dataset, len(test), "development"))[:CANDIDATES]
    x = pool[torch.cat([uncertainty(some) for some in pool.split(200)]).argsort(descending=True)[:IMAGES]]
    base: dict[str, Tensor] = {}
    for name, ranking in rankings(posterior, x):
        gains = {way: relevance_gain(uncertainty, x, ranking, way, steps=REMOVAL_STEPS) for way in REMOVALS}
        shown = {way: gain - base[way] if base else gain for way, gain in gains.items()}
        cells = ("{} {:+.3f} ({:.3f})".format(way, *mean_and_error(value)) for way, value in shown.items())
        print(f"{name:42}", *cells, sep="  ", flush=True)
        base = base or gains


if __name__ == "__main__":
    torch.set_num_threads(1)
    judge(*sys.argv[1:])
