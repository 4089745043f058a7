"""Last steps of `blur-path` that keep signs longer, against today's: paired differences on development images.

    python -m benchmarks.auto.signs RUN DATASET     # RUN may be "demo"; blurring, removal, patches, random weights
    python -m benchmarks.auto.signs causes FOLDER   # two causes; networks of `benchmarks.auto.choose`, in FOLDER

Each variant turns credits (points on the lines, already weighted) into maps. Printed: today's mean with its standard
error, and for each other variant the mean of the differences from it, image by image. Leads, not results.
"""

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

import dubium
from benchmarks.auto.choose import DEFAULT, SEED, cause_images, mean_and_error, smooth
from benchmarks.auto.split import split_indices
from dubium.attribution._blur import WIDTHS, blurred_copies
from dubium.attribution._context import DEFAULT_CONTEXT
from dubium.attribution._paths import sum_along_path
from dubium.attribution.blur_path import PARTS_OF_TOTAL, path_points
from dubium.attribution.blur_path import mean_rise as rises_of_lines
from dubium.data import load
from dubium.evaluation.metrics.anomaly import best_boxes, box_iou, plant
from dubium.evaluation.metrics.blurring import blurring_test, image_areas, pixel_counts, reduction_rates, sigma_grid
from dubium.evaluation.metrics.randomisation import randomise
from dubium.evaluation.metrics.removal import relevance_gain
from dubium.evaluation.metrics.sanity import rank_agreement, top_overlap
from dubium.evaluation.metrics.scoring import scorer
from dubium.evaluation.protocols.causes import PAIR, SETS, cause_measurements
from dubium.posteriors.stack import stack
from dubium.shares import UncertaintyTarget
from dubium.types import Images, Maps, Posterior

BLURRED, PATCHES, CANDIDATES, REMOVAL_STEPS = 30, 80, 400, 15
SIGMA_STEP = {"mnist": 1.5}  # of the blurring test; 2 elsewhere
Credits = Float[Tensor, "B points T H W"]
EPISTEMIC = PARTS_OF_TOTAL.index("epistemic")


def lines(credits: Credits) -> Float[Tensor, "B lines T H W"]:
    """E_sigma of every blur: point n lies on line n modulo their number."""
    return credits.unflatten(1, (-1, len(WIDTHS))).sum(1)


def rises(credits: Credits, net: float = 0) -> Maps:
    return rises_of_lines(lines(credits), net)


def falls(credits: Credits) -> Maps:
    return rises(-credits)


def signed(credits: Credits) -> Maps:
    return lines(credits).mean(1)


def uncancelled(credits: Credits, width: float, power: float = 1) -> Maps:
    """Rises, times the part of the change around each pixel that rises and falls do not cancel."""
    part = smooth(signed(credits), width).clamp_min(0) / smooth(signed(credits).abs(), width).clamp_min(1e-30)
    return rises(credits) * part**power


def net_rises(credits: Credits, width: float, times: float = 1) -> Maps:
    """Rises less what falls around each pixel."""
    return (rises(credits) - times * smooth(falls(credits), width)).clamp_min(0)


def net_rises_by_line(credits: Credits, width: float) -> Maps:
    own = lines(credits)
    falling = smooth((-own).clamp_min(0).flatten(0, 1), width).view_as(own)
    return (own.clamp_min(0) - falling).clamp_min(0).mean(1)


def weighted(credits: Credits, *weights: float) -> Maps:
    """The positive parts of the lines, some more than others."""
    shares = torch.tensor(weights).view(1, -1, 1, 1, 1) / sum(weights)
    return (lines(credits).clamp_min(0) * shares).sum(1)


VARIANTS: dict[str, Callable[[Credits], Maps]] = {
    "today: mean of the lines' positive parts": rises,
    "positive part of the mean": lambda c: signed(c).clamp_min(0),
    "signed mean": signed,
    "positive part at each point": lambda c: c.clamp_min(0).sum(1) / len(WIDTHS),
    "mean smoothed by .5, positive part": lambda c: smooth(signed(c), 0.5).clamp_min(0),
    "mean smoothed by 1, positive part": lambda c: smooth(signed(c), 1).clamp_min(0),
    "mean smoothed by 2, positive part": lambda c: smooth(signed(c), 2).clamp_min(0),
    "rises, uncancelled within 2": lambda c: uncancelled(c, 2),
    "rises, root of uncancelled within 2": lambda c: uncancelled(c, 2, 0.5),
    "rises less falls within 1": lambda c: net_rises(c, 1),
    "rises less falls within 2": lambda c: net_rises(c, 2),
    "rises less twice falls within 2": lambda c: net_rises(c, 2, 2),
    "rises less falls within 2, line by line": lambda c: net_rises_by_line(c, 2),
    **{f"net={n}: each line less {n} times its falls": partial(rises, net=n) for n in (1, 2, 3)},
    "half positive mean, half smoothed by 2": lambda c: (
        (signed(c).clamp_min(0) + smooth(signed(c), 2).clamp_min(0)) / 2
    ),
    "blur 8 alone": lambda c: weighted(c, 0, 0, 0, 1),
    "blurs 4 and 8": lambda c: weighted(c, 0, 0, 1, 1),
    "blurs 1 and 2": lambda c: weighted(c, 1, 1, 0, 0),
    "blurs weighted 1, 2, 3, 4": lambda c: weighted(c, 1, 2, 3, 4),
}


def path_credits(posterior: Posterior, x: Images) -> Credits:
    """What `blur_credits` sums, point by point."""
    network: nn.Module = stack(posterior)
    return torch.cat([_credits(network, some) for some in x.split(20)])


def _credits(network: nn.Module, x: Images) -> Credits:
    line, place, weight = path_points(DEFAULT, x)

    def detail(images: slice, some: Int[Tensor, " n"]) -> Float[Tensor, "n b C H W"]:
        return (x[images] - blurred_copies(x[images]))[line[some]]

    def points(images: slice, some: Int[Tensor, " n"]) -> Float[Tensor, "n b C H W"]:
        return x[images] - (1 - place[some]).view(-1, 1, 1, 1, 1) * detail(images, some)

    def credit(gradients: Float[Tensor, "n b T C H W"], images: slice, some: Int[Tensor, " n"]) -> Credits:
        found = torch.einsum("n,nbtchw,nbchw->bnthw", weight[some], gradients, detail(images, some))
        every = found.new_zeros(len(found), DEFAULT, *found.shape[2:])
        every[:, some] = found
        return every

    return sum_along_path(network, x, UncertaintyTarget(PARTS_OF_TOTAL), points, DEFAULT, credit, DEFAULT_CONTEXT)


def judge(run: str, dataset: str) -> None:
    """Blurring, removal, planted patches, random weights, epistemic maps; and how alike the two kinds are."""
    posterior, test, train = dubium.load_posterior(run), load(dataset, "test"), load(dataset, "train")
    uncertainty = scorer(posterior)
    pool = test.batch(split_indices(dataset, len(test), "development"))[:CANDIDATES]
    before = uncertainty(pool)
    planted = plant(pool, train.batch(slice(1000)), seed=SEED)
    rise = uncertainty(planted.x) - before
    x, chosen = pool[before.argsort(descending=True)[:BLURRED]], rise.argsort(descending=True)[:PATCHES]
    credits, patched = path_credits(posterior, x), path_credits(posterior, planted.x[chosen])
    of_random_weights = path_credits([randomise(network, 1.0) for network in posterior], x)
    counts, sigmas = pixel_counts(x.shape[2], x.shape[3], [0.02]), sigma_grid(SIGMA_STEP.get(dataset, 2.0))
    base: dict[str, Tensor] = {}
    for name, variant in VARIANTS.items():
        maps = variant(credits)[:, EPISTEMIC]
        (found,) = blurring_test(uncertainty, x, maps, counts=counts, sigmas=sigmas)
        rates = reduction_rates(found.curves.double().numpy())
        values = {
            "iou": box_iou(best_boxes(variant(patched)[:, EPISTEMIC]), planted.corners[chosen]),
            "top5@100%": top_overlap(maps, variant(of_random_weights)[:, EPISTEMIC]),
            "kinds": rank_agreement(*variant(credits).unbind(1)),
            "area@2%": torch.from_numpy(image_areas(rates)),
            "urr@2%": torch.from_numpy(rates[:, -1]),
            "srg/mean": relevance_gain(uncertainty, x, maps, "mean", steps=REMOVAL_STEPS),
            "srg/linear": relevance_gain(uncertainty, x, maps, "linear", steps=REMOVAL_STEPS),
        }
        print_row(name, {metric: value - base[metric] for metric, value in values.items()} if base else values)
        base = base or values


def judge_causes(folder: Path) -> None:
    """How much more often each kind's map points at its own cause than at the other."""
    networks, planted = cause_images(folder)
    credits = path_credits(networks, planted["x"])
    for name, variant in VARIANTS.items():
        maps, row = variant(credits), dict[str, Tensor]()
        for k, kind in enumerate(PAIR):
            found = cause_measurements(maps[:, k], planted, {n: planted[n] for n in SETS}, kind)
            row |= {m: torch.from_numpy(one.values) for m, one in found.items() if m.startswith("own")}
        print_row(name, row)


def print_row(name: str, values: dict[str, Tensor]) -> None:
    cells = {metric: "{:+.3f} ({:.3f})".format(*mean_and_error(value)) for metric, value in values.items()}
    print(f"{name:42}", *(f"{metric} {cell}" for metric, cell in cells.items()), sep="  ", flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    what, where = sys.argv[1:]
    if what == "causes":
        judge_causes(Path(where))
    else:
        judge(what, where)
