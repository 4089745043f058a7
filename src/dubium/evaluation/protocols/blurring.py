"""The blurring test of a posterior's most uncertain images."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, get_args

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from dubium.data import Dataset
from dubium.errors import lookup
from dubium.evaluation.metrics.blurring import (
    FRACTIONS,
    STEP,
    SigmaSearch,
    auc_urr,
    blurring_test,
    image_areas,
    murr,
    pixel_counts,
    reduction_rates,
    sigma_grid,
)
from dubium.evaluation.metrics.scoring import scorer
from dubium.evaluation.protocols.blurring_truth import compute_truth, fraction_key, truth_measurements
from dubium.evaluation.protocols.evaluation import (
    Evaluation,
    MethodShard,
    few_images_notes,
    metric_name,
    run_method_shards,
)
from dubium.evaluation.protocols.images import ChosenImages, choose_images, map_maker
from dubium.evaluation.protocols.options import change_options
from dubium.evaluation.shards import ShardStore, example_shard, method_shard
from dubium.evaluation.statistics import Array, band, mean, median
from dubium.evaluation.summary import EvaluationSummary, Measurement
from dubium.types import Images, Kind

EXAMPLES = 4  # images that figures show


@dataclass(frozen=True)
class BlurringOptions:
    """How many images, of how many candidates (None: all), what is blurred, and how sigma is found."""

    images: int = 100
    candidates: int | None = None
    fractions: tuple[float, ...] = FRACTIONS
    step: float = STEP
    search: SigmaSearch = "ranked"


def blurring_options(scale: str, data: Dataset, **changes: Any) -> BlurringOptions:
    """The paper's: the 100 most uncertain grey images, or 500 in colour; 100 for a CPU; a handful for a test."""
    lookup("search", dict.fromkeys(get_args(SigmaSearch)), changes.get("search", "ranked"))
    if scale == "smoke":
        return change_options(BlurringOptions(images=4, candidates=32, step=4.0), changes)
    return change_options(BlurringOptions(images=500 if scale == "paper" and data.shape[0] > 1 else 100), changes)


def evaluate_blurring(evaluation: Evaluation, options: BlurringOptions) -> dict[str, Any]:
    """Blur the pixels that each method ranks highest, and write how much of the uncertainty goes.

    Returns:
        What is in `summary.json`; `curves[method]["2%"]` has the median URR at each step, with its band, and where
        labels are known the accuracy and the true class's mean probability at a few steps of the same curve.
    """
    settings = {**evaluation.settings(), **vars(options), "fractions": list(options.fractions)}
    store = ShardStore.open(evaluation.out, settings)
    measurements: dict[str, dict[str, Measurement]] = {label: {} for label in evaluation.method_labels()}
    curves: dict[str, dict[str, Any]] = {label: {} for label in evaluation.method_labels()}
    notes = [evaluation.note] if evaluation.note else []
    notes += few_images_notes(evaluation, evaluation.data, options.candidates)
    images: dict[str, list[Any]] = {}
    for kind in evaluation.kinds:
        chosen = choose_images(evaluation, store, kind, options.images, options.candidates)
        kept = (chosen.scores > 0).numpy()
        if not kept.all():
            notes.append(f"{int((~kept).sum())} images with no {kind} uncertainty are left out.")
        images |= {**chosen.columns(), metric_name("uncertainty", kind): chosen.scores.tolist()}
        blur = partial(_blur_shard, store, chosen, options)
        blurred = run_method_shards(evaluation, blur, len(chosen), f"blurring images ({kind})")
        truth = compute_truth(evaluation, store, chosen, options) if evaluation.data.labels is not None else {}
        for label, shards in blurred.items():
            for fraction in options.fractions:
                rates, at = shard_rates(shards, fraction)[kept], f"{100 * fraction:g}%"
                measurements[label] |= blurring_measurements(rates, at, kind)
                middle, low, high = band(rates, median)
                interval = {"value": middle.tolist(), "low": low.tolist(), "high": high.tolist()}
                curves[label][metric_name(at, kind)] = interval
                if label in truth:
                    columns = {name: values[kept] for name, values in truth[label][fraction_key(fraction)].items()}
                    measurements[label] |= truth_measurements(columns, at, kind)
                    curves[label][metric_name(at, kind)] |= {name: c.mean(0).tolist() for name, c in columns.items()}
        store.compute_tensors(example_shard(kind), partial(_example_images, chosen))
    settings["methods"] = evaluation.method_labels()
    summary = EvaluationSummary("blurring", settings, images, measurements, notes=notes, extra={"curves": curves})
    return summary.write(evaluation.out)


def blurring_measurements(rates: Array, at: str, kind: Kind) -> dict[str, Measurement]:
    """All metrics of one method and fraction, from the rates of images that have uncertainty."""
    last, areas = rates[:, -1], image_areas(rates)
    metrics = {
        "murr": Measurement(rates, murr, last, True),
        "auc-urr": Measurement(rates, auc_urr, areas, False),
        "murr-mean": Measurement(last, mean, last, True),
        "auc-urr-mean": Measurement(areas, mean, areas, False),
        "auc-urr-median": Measurement(areas, median, areas, False),
    }
    return {metric_name(f"{name}@{at}", kind): measurement for name, measurement in metrics.items()}


def shard_rates(shards: Sequence[Mapping[str, Any]], fraction: float) -> Array:
    """URR of every image at every step."""
    return reduction_rates(np.concatenate([np.array(shard[fraction_key(fraction)]["curves"]) for shard in shards]))


def _blur_shard(
    store: ShardStore, chosen: ChosenImages, options: BlurringOptions, evaluation: Evaluation, shard: MethodShard
) -> dict[str, Any]:
    """Sigmas and curves of one shard, computed or read."""
    name = method_shard(shard.method.label, shard.images.start, chosen.kind)

    def explain_shard() -> Tensor:
        maker = map_maker(evaluation, shard.method, chosen.batch(shard.images), [chosen.kind])
        return store.compute_tensors(name, maker)[chosen.kind]

    def compute() -> dict[str, Any]:
        return curve_values(evaluation, chosen.batch(shard.images), explain_shard(), chosen.kind, options)

    values = store.compute_values(name, compute)
    if not store.has_tensors(name):  # deleted since the curves were computed; figures and true classes need them
        explain_shard()
    return values


def curve_values(
    evaluation: Evaluation, x: Images, maps: Tensor, kind: Kind, options: BlurringOptions
) -> dict[str, Any]:
    """Sigmas and curves for every fraction, as JSON."""
    counts = pixel_counts(x.shape[2], x.shape[3], options.fractions)
    with torch.no_grad():
        found = blurring_test(
            scorer(evaluation.posterior, kind),
            x,
            maps,
            counts=counts,
            sigmas=sigma_grid(options.step),
            search=options.search,
        )
    return {
        fraction_key(fraction): {"sigma": result.sigma.tolist(), "curves": result.curves.tolist()}
        for fraction, result in zip(options.fractions, found, strict=True)
    }


def _example_images(chosen: ChosenImages) -> dict[str, Tensor]:
    return {"x": chosen.batch(slice(EXAMPLES))}


@dataclass(frozen=True)
class BlurringExample:
    """A few images as one method blurs them, up to the largest fraction."""

    x: Images
    maps: Float[Tensor, "B H W"]
    sigma: Float[Tensor, " B"]
    curves: Float[Tensor, "B steps"]


def read_blurring_examples(store: ShardStore, settings: Mapping[str, Any]) -> dict[str, BlurringExample]:
    """What figures show of the first kind, by the method's label."""
    kind, fraction = settings["kinds"][0], max(settings["fractions"])
    x = store.read_tensors(example_shard(kind))["x"]
    examples = {}
    for label in settings["methods"]:
        name = method_shard(label, 0, kind)
        maps = store.read_tensors(name)[kind][: len(x)]
        values = store.read_values(name)[fraction_key(fraction)]
        sigma, curves = (torch.tensor(values[key])[: len(x)] for key in ("sigma", "curves"))
        examples[label] = BlurringExample(x, maps, sigma, curves)
    return examples
