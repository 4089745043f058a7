"""What was tried for `blur-path`, on development images: its last step, and the number of points on its paths.

    python -m benchmarks.auto.choose OUT.json RUN DATASET     # RUN may be "demo"
    python -m benchmarks.auto.choose OUT.json causes FOLDER   # two causes: networks of a seed of their own, in FOLDER

A variant turns the lines E_sigma (see blur_path.py) into maps. Test images are those of `split.py`, part `development`;
the means over images are printed with standard errors. Few images and coarse grids: leads, not results.
"""

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn

import dubium
from benchmarks.auto.split import split_indices
from dubium.attribution._blur import blur_images
from dubium.attribution._context import DEFAULT_CONTEXT
from dubium.attribution.blur_path import BlurCredits, blur_credits, mean_rise
from dubium.data import load
from dubium.evaluation.metrics.anomaly import best_boxes, box_iou, plant
from dubium.evaluation.metrics.blurring import blurring_test, image_areas, pixel_counts, reduction_rates, sigma_grid
from dubium.evaluation.metrics.removal import relevance_gain
from dubium.evaluation.metrics.scoring import scorer
from dubium.evaluation.protocols import Evaluation
from dubium.evaluation.protocols.causes import PAIR, SETS, CausesOptions, cause_measurements, causes_options
from dubium.evaluation.protocols.causes import _plant_causes as plant_causes
from dubium.evaluation.protocols.causes_networks import train_cause_networks
from dubium.evaluation.shards import PLANTED_SHARD, ShardStore
from dubium.files import write_atomically
from dubium.posteriors.stack import stack
from dubium.shares import UncertaintyTarget
from dubium.types import Images, Kind, Maps, Posterior

PASSES = (4, 8, 16, 32)
DEFAULT = 16
BLURRED, PATCHES, CANDIDATES, REMOVED, STEPS = 20, 20, 300, 20, 20
CAUSES, ROUNDS, SEED = 200, 10, 100  # images of each set; 10 rounds of 5,000 images; not the seed of the final table


def smooth(maps: Maps, width: float) -> Maps:
    """Blurred by sigma = `width` of 32 pixels."""
    return blur_images(maps, [width * min(maps.shape[2:]) / 32])[0]


def uncancelled(lines: BlurCredits, width: float) -> Maps:
    """Rises, times the part of the change around each pixel that rises and falls do not cancel."""
    signed = lines.mean(1)
    return mean_rise(lines) * smooth(signed, width).clamp_min(0) / smooth(signed.abs(), width).clamp_min(1e-30)


VARIANTS: dict[str, Callable[[BlurCredits], Maps]] = {
    "mean of positive parts": mean_rise,
    "positive part of the mean": lambda lines: lines.mean(1).clamp_min(0),
    "signed mean": lambda lines: lines.mean(1),
    "smoothed by 1, then the positive part": lambda lines: smooth(lines.mean(1), 1).clamp_min(0),
    "rises, uncancelled within 2": lambda lines: uncancelled(lines, 2),
}


def variant_maps(posterior: Posterior, x: Images, kinds: tuple[Kind, ...], passes: int) -> dict[str, Maps]:
    """The maps of every variant, (B, kinds, H, W)."""
    network = stack(posterior)
    parts = [blur_credits(network, some, UncertaintyTarget(kinds), passes, DEFAULT_CONTEXT) for some in x.split(20)]
    lines = torch.cat(parts)
    return {name: variant(lines) for name, variant in VARIANTS.items()}


def all_maps(posterior: Posterior, x: Images) -> dict[str, Tensor]:
    """Epistemic maps of every variant, and of the default one with other numbers of points."""
    found: dict[str, Tensor] = {}
    for passes in PASSES:
        variants = variant_maps(posterior, x, ("epistemic",), passes)
        found |= {f"passes={passes}": variants["mean of positive parts"][:, 0]}
        found |= {name: maps[:, 0] for name, maps in variants.items() if passes == DEFAULT}
    return found


def judge(posterior: Posterior, dataset: str) -> dict[str, dict[str, tuple[float, float]]]:
    """Mean and standard error of each metric, by variant."""
    test, train = load(dataset, "test"), load(dataset, "train")
    pool = test.batch(split_indices(dataset, len(test), "development"))
    uncertainty = scorer(posterior)
    pool = pool[:CANDIDATES]
    x = pool[uncertainty(pool).argsort(descending=True)[:BLURRED]]
    planted = plant(pool, train.batch(slice(1000)), seed=SEED)
    rise = uncertainty(planted.x) - uncertainty(pool)
    chosen = rise.argsort(descending=True)[:PATCHES]
    images, patched = all_maps(posterior, x), all_maps(posterior, planted.x[chosen])
    counts = pixel_counts(x.shape[2], x.shape[3], [0.02])
    table = {}
    for name, maps in images.items():
        (found,) = blurring_test(uncertainty, x, maps, counts=counts, sigmas=sigma_grid(1.0))
        rates = reduction_rates(found.curves.double().numpy())
        values = {"urr@2%": torch.from_numpy(rates[:, -1]), "area@2%": torch.from_numpy(image_areas(rates))}
        values["iou"] = box_iou(best_boxes(patched[name]), planted.corners[chosen])
        values["srg/mean"] = relevance_gain(uncertainty, x[:REMOVED], maps[:REMOVED], "mean", steps=STEPS)
        table[name] = {metric: mean_and_error(value) for metric, value in values.items()}
        print(name, {metric: f"{m:.3f} ({e:.3f})" for metric, (m, e) in table[name].items()}, flush=True)
    return table


def mean_and_error(values: Tensor) -> tuple[float, float]:
    """Mean and standard error over images."""
    return float(values.mean()), float(values.std() / len(values) ** 0.5)


def cause_images(folder: Path) -> tuple[list[nn.Module], dict[str, Tensor]]:
    """Networks of a seed of their own, trained in the folder, and development images with two causes."""
    test, train = load("mnist", "test"), load("mnist", "train")
    data = test.subset(split_indices("mnist", len(test), "development"))
    options = causes_options("cpu", data, images=CAUSES, rounds=ROUNDS)
    assert isinstance(options, CausesOptions)
    evaluation = Evaluation((), data, (), PAIR, folder, seed=SEED, other_data=train, on_step=print)
    store = ShardStore.open(folder, {"networks": "two causes", "seed": SEED, **options.settings()})
    networks: list[nn.Module] = train_cause_networks(evaluation, store, train, options.recipe, options.members)
    planted = store.compute_tensors(
        PLANTED_SHARD, partial(plant_causes, replace(evaluation, posterior=networks), options)
    )
    return networks, planted


def judge_causes(folder: Path) -> dict[str, dict[str, tuple[float, float]]]:
    """How often each kind's map points at each cause, on development images."""
    networks, planted = cause_images(folder)
    sets = {name: planted[name] for name in SETS}
    table: dict[str, dict[str, tuple[float, float]]] = {}
    for name, maps in variant_maps(networks, planted["x"], PAIR, DEFAULT).items():
        found = [cause_measurements(maps[:, k], planted, sets, kind) for k, kind in enumerate(PAIR)]
        merged = {metric: m for some in found for metric, m in some.items()}
        table[name] = {metric: mean_and_error(torch.from_numpy(m.values)) for metric, m in merged.items()}
        print(name, {metric: f"{m:.3f} ({e:.3f})" for metric, (m, e) in table[name].items()}, flush=True)
    return table


def write(path: Path, table: Mapping[str, Mapping[str, tuple[float, float]]]) -> None:
    write_atomically(path, json.dumps(table, indent=1) + "\n")


if __name__ == "__main__":
    torch.set_num_threads(1)
    out, run, where = sys.argv[1:]
    write(Path(out), judge_causes(Path(where)) if run == "causes" else judge(dubium.load_posterior(run), where))
