"""Why is `blur-path` behind `ua-backprop` where pixels of CIFAR-100 go to the mean? A test on development images.

    python -m benchmarks.auto.mean_start RUN DATASET

Written down before it was run. The widest blur is a quarter of the image, so no line credits what is larger: brightness
and colour of whole regions. Going to the channel's mean takes exactly that. If it is the reason, a line from the
image's mean colour raises `srg/mean`, alone or beside the four others. Printed: means with standard errors over images,
and those of the differences from the default.
"""

import sys

import torch

import dubium
from benchmarks.auto.choose import DEFAULT
from benchmarks.auto.net import EPISTEMIC, REMOVAL_STEPS, REMOVED, print_row
from benchmarks.auto.split import split_indices
from dubium.attribution._context import DEFAULT_CONTEXT
from dubium.attribution._paths import integrate_lines
from dubium.attribution.blur_path import PARTS_OF_TOTAL, blur_credits, mean_rise
from dubium.data import load
from dubium.evaluation.metrics.removal import relevance_gain
from dubium.evaluation.metrics.scoring import scorer
from dubium.posteriors.stack import stack
from dubium.shares import UncertaintyTarget
from dubium.types import Images, Maps, Posterior

POINTS = 8  # on the line from the mean


def candidate_maps(posterior: Posterior, x: Images) -> dict[str, Maps]:
    """Maps of both terms: the default, `net=1`, with a fifth line, and that line alone."""
    network, target = stack(posterior), UncertaintyTarget(PARTS_OF_TOTAL)
    lines = blur_credits(network, x, target, DEFAULT, DEFAULT_CONTEXT)
    means = x.mean((2, 3), keepdim=True).expand_as(x)[None]
    whole = integrate_lines(network, x, target, lambda images: means[:, images], POINTS, DEFAULT_CONTEXT)
    return {
        "default": mean_rise(lines),
        "net=1": mean_rise(lines, 1),
        "and the mean": torch.cat([lines, whole[:, None]], 1).clamp_min(0).mean(1),
        "half the mean": (mean_rise(lines) + whole.clamp_min(0)) / 2,
        "the mean alone": whole.clamp_min(0),
    }


def main(run: str, dataset: str) -> None:
    torch.set_num_threads(1)
    posterior, test = dubium.load_posterior(run), load(dataset, "test")
    uncertainty = scorer(posterior)
    pool = test.batch(split_indices(dataset, len(test), "development"))
    x = pool[uncertainty(pool).argsort(descending=True)[:REMOVED]]
    parts = [candidate_maps(posterior, some) for some in x.split(10)]
    base: dict[str, torch.Tensor] = {}
    for name in parts[0]:
        own = torch.cat([part[name] for part in parts])[:, EPISTEMIC]
        row = {
            f"srg/{way}": relevance_gain(uncertainty, x, own, way, steps=REMOVAL_STEPS) for way in ("mean", "linear")
        }
        print_row(name, row, base)
        base = base or row


if __name__ == "__main__":
    main(*sys.argv[1:])
