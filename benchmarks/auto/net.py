"""Should `net` of `blur-path` be above 0 by default? Development images; the paths once, then the maps of every `net`.

    python -m benchmarks.auto.net FOLDER RUN DATASET          # RUN may be "demo"
    python -m benchmarks.auto.net FOLDER causes SEED [SEED]   # two causes: networks of each seed, trained in FOLDER

Printed: the mean with its standard error over images; for every `net` but 0 that of the differences from 0, too, and
for the area left that from `ua-backprop` (`-ua`). Epistemic maps. Paths are kept in FOLDER.

The rule, written down before anything was measured with it. A value of `net` is fit to be the default if
1. two causes: own less other is above 0 by 1.96 standard errors for both kinds, strict set, all networks together, and
   above 0 on the loose one; 0 itself is asked the same;
2. area left at 2 % is below `ua-backprop`'s by 1.96 standard errors on MNIST, CIFAR-10 and SVHN;
3. IoU: at least .33 on CIFAR-10 and .45 on SVHN, or not below that of 0 by more than one standard error of the
   difference;
4. rank correlation of the kinds below .5 (mean plus 1.96 standard errors) on all three; top 5 % with random weights at
   most .2 in colour and .3 on MNIST, or not above that of 0 by more than one standard error of the difference.
Of the values that are fit, the smallest is taken; if there is none, 0.

The second rule (docs/decisions/net.md says why there is one): of the values that are fit by 2 to 4, the one whose
smallest margin is the largest. A margin is own less other, less 0 or less what random maps have, in standard errors;
there is one for each kind, each set (strict, loose) and each of the two yardsticks, all networks together.
"""

import sys
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

import dubium
from benchmarks.auto import choose
from benchmarks.auto.choose import DEFAULT, SEED, cause_images, mean_and_error
from benchmarks.auto.split import split_indices
from dubium.attribution._context import DEFAULT_CONTEXT
from dubium.attribution.blur_path import PARTS_OF_TOTAL, BlurCredits, blur_credits, mean_rise
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

NETS = (0, 0.5, 1, 1.5, 2, 3)
BLURRED, PATCHES, REMOVED, REMOVAL_STEPS, CAUSES, DRAWS = 100, 200, 40, 20, 400, 20
EPISTEMIC = PARTS_OF_TOTAL.index("epistemic")
Row = dict[str, Tensor]


def kept_lines(file: Path, posterior: Posterior, x: Images) -> BlurCredits:
    """The paths of both terms, computed or read."""
    if not file.exists():
        network = stack(posterior)
        trace = partial(blur_credits, target=UncertaintyTarget(PARTS_OF_TOTAL), passes=DEFAULT, context=DEFAULT_CONTEXT)
        torch.save(torch.cat([trace(network, some) for some in x.split(10)]), file)
    found: BlurCredits = torch.load(file)
    return found


def judge(folder: Path, run: str, dataset: str) -> None:
    posterior, test, train = dubium.load_posterior(run), load(dataset, "test"), load(dataset, "train")
    uncertainty = scorer(posterior)
    pool = test.batch(split_indices(dataset, len(test), "development"))
    before = uncertainty(pool)
    planted = plant(pool, train.batch(slice(1000)), seed=SEED)
    chosen = (uncertainty(planted.x) - before).argsort(descending=True)[:PATCHES]
    x = pool[before.argsort(descending=True)[:BLURRED]]
    patched = kept_lines(folder / f"{dataset}-patched.pt", posterior, planted.x[chosen])
    paths = kept_lines(folder / f"{dataset}.pt", posterior, x)
    anew = kept_lines(folder / f"{dataset}-random.pt", [randomise(network, 1.0) for network in posterior], x)

    def area(maps: Tensor) -> Tensor:
        counts, sigmas = pixel_counts(x.shape[2], x.shape[3], [0.02]), sigma_grid(1.0)
        (found,) = blurring_test(uncertainty, x, maps, counts=counts, sigmas=sigmas)
        return torch.from_numpy(image_areas(reduction_rates(found.curves.double().numpy())))

    base: Row = {}
    parts = [dubium.explain(posterior, some, kinds=["epistemic"]).maps["epistemic"] for some in x.split(10)]
    of_ua = area(torch.cat(parts))
    print_row("ua-backprop", {"area": of_ua}, {})
    for net in NETS:
        maps, hit, random = (mean_rise(lines, net) for lines in (paths, patched, anew))
        own = maps[:, EPISTEMIC]
        left = area(own)
        few = partial(relevance_gain, uncertainty, x[:REMOVED], own[:REMOVED], steps=REMOVAL_STEPS)
        row = {
            "iou": box_iou(best_boxes(hit[:, EPISTEMIC]), planted.corners[chosen]),
            "area": left,
            "area-ua": left - of_ua,
            "kinds": rank_agreement(*maps.unbind(1)),
            "top5": top_overlap(own, random[:, EPISTEMIC]),
            "srg/mean": few("mean"),
            "srg/linear": few("linear"),
        }
        print_row(f"net={net}", row, base)
        base = base or row


def judge_causes(folder: Path, seeds: list[int]) -> None:
    rows: dict[float, list[Row]] = {net: [] for net in NETS}
    by_chance: list[Row] = []
    choose.CAUSES = CAUSES
    for seed in seeds:
        choose.SEED = seed
        networks, planted = cause_images(folder / f"causes-{seed}")
        lines = kept_lines(folder / f"causes-{seed}.pt", networks, planted["x"])
        for net in NETS:
            rows[net].append(cause_row(mean_rise(lines, net), planted))
            print_row(f"seed {seed}, net={net}", rows[net][-1], rows[0][-1] if net else {})
        by_chance.append(chance_row(lines[:, 0], planted))
    whole, chance = {net: join_rows(some) for net, some in rows.items()}, join_rows(by_chance)
    print_row("all, random", chance, {})
    for net, row in whole.items():
        print_row(f"all, net={net}", row, whole[0] if net else {})
        print("  smallest margin, standard errors: {:.2f} ({})".format(*smallest_margin(row, chance)), flush=True)


def join_rows(rows: list[Row]) -> Row:
    """The images of all networks together."""
    return {metric: torch.cat([row[metric] for row in rows]) for metric in rows[0]}


def chance_row(like: Maps, planted: dict[str, Tensor]) -> Row:
    """As `cause_row`, for random maps: the mean over some draws."""
    generator = torch.Generator().manual_seed(SEED)
    draws = [cause_row(torch.rand(like.shape, generator=generator), planted) for _ in range(DRAWS)]
    return {metric: torch.stack([row[metric] for row in draws]).double().mean(0) for metric in draws[0]}


def smallest_margin(row: Row, chance: Row) -> tuple[float, str]:
    """The second rule's number, and which margin it is."""
    margins = []
    for metric, value in row.items():
        for yardstick, less in (("0", torch.zeros(())), ("random", chance[metric])):
            mean, error = mean_and_error(value - less)
            margins.append((mean / error, f"{metric}, less {yardstick}"))
    return min(margins)


def cause_row(maps: Maps, planted: dict[str, Tensor]) -> Row:
    """Own less other of both kinds, on both sets."""
    row: Row = {}
    for k, kind in enumerate(PAIR):
        found = cause_measurements(maps[:, k], planted, {name: planted[name] for name in SETS}, kind)
        row |= {m: torch.from_numpy(one.values) for m, one in found.items() if m.startswith("own")}
    return row


def print_row(name: str, row: Row, base: Row) -> None:
    cells = ["{} {:.3f} ({:.3f})".format(metric, *mean_and_error(value)) for metric, value in row.items()]
    more = ["{:+.3f} ({:.3f})".format(*mean_and_error(value - base[m])) if base else "" for m, value in row.items()]
    print(f"{name:18}", *(f"{cell} {extra}" for cell, extra in zip(cells, more, strict=True)), sep="  ", flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    where, what, *rest = sys.argv[1:]
    Path(where).mkdir(parents=True, exist_ok=True)
    if what == "causes":
        judge_causes(Path(where), [int(seed) for seed in rest])
    else:
        judge(Path(where), what, rest[0])
