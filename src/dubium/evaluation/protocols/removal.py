"""Removal of pixels in fixed ways: symmetric relevance gain, and what becomes of the prediction meanwhile."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dubium.data import Dataset
from dubium.errors import lookup
from dubium.evaluation.metrics.removal import (
    REMOVALS,
    STEPS,
    removal_counts,
    removal_curves,
    removal_order,
    symmetric_gain,
)
from dubium.evaluation.metrics.scoring import predictor
from dubium.evaluation.metrics.truth import truth_columns
from dubium.evaluation.protocols.evaluation import (
    Evaluation,
    MethodShard,
    few_images_notes,
    metric_name,
    run_method_shards,
)
from dubium.evaluation.protocols.images import ChosenImages, choose_images, map_maker
from dubium.evaluation.protocols.options import change_options, list_values
from dubium.evaluation.shards import ShardStore, method_shard
from dubium.evaluation.statistics import Array, band, mean
from dubium.evaluation.summary import EvaluationSummary, Measurement
from dubium.types import Images, Kind

FRACTIONS = (0.02, 0.05, 0.2)  # of the pixels, where accuracy is a metric of its own
TRUTH = ("accuracy", "true-probability")


@dataclass(frozen=True)
class RemovalOptions:
    """How many images, of how many candidates (None: all), the ways of removal, and in how many steps all pixels go."""

    images: int = 40
    candidates: int | None = None
    remove: tuple[str, ...] = REMOVALS
    steps: int = STEPS


def removal_options(scale: str, _data: Dataset, **changes: Any) -> RemovalOptions:
    """Not the paper's: 40 images for a CPU, 200 where time allows, a handful for a test."""
    for removal in list_values(changes.get("remove", ())):
        lookup("way to remove pixels", dict.fromkeys(REMOVALS), removal)
    if scale == "smoke":
        return change_options(RemovalOptions(images=4, candidates=32, steps=20), changes)
    return change_options(RemovalOptions(images=200 if scale == "paper" else 40), changes)


def evaluate_removal(evaluation: Evaluation, options: RemovalOptions) -> dict[str, Any]:
    """Remove pixels, most and least relevant first, and write what becomes of the uncertainty and of the prediction.

    Returns:
        What is in `summary.json`; `curves[method]["left/blur"]` has the mean of U(x_t) / U(x) at each step with its
        band, most relevant pixels first; `accuracy/blur` and `true-probability/blur` are those along the same curve.
    """
    settings = {**evaluation.settings(), **vars(options), "remove": list(options.remove)}
    store = ShardStore.open(evaluation.out, settings)
    measurements: dict[str, dict[str, Measurement]] = {label: {} for label in evaluation.method_labels()}
    curves: dict[str, dict[str, Any]] = {label: {} for label in evaluation.method_labels()}
    notes = [evaluation.note] if evaluation.note else []
    notes += few_images_notes(evaluation, evaluation.data, options.candidates)
    images: dict[str, list[Any]] = {}
    for kind in evaluation.kinds:
        candidates = choose_images(evaluation, store, kind, options.images, options.candidates)
        chosen = candidates.with_uncertainty()
        if len(chosen) < len(candidates):
            notes.append(f"{len(candidates) - len(chosen)} images with no {kind} uncertainty are left out.")
        images |= {**chosen.columns(), metric_name("uncertainty", kind): chosen.scores.tolist()}
        remove = partial(_remove_shard, store, chosen, options)
        found = run_method_shards(evaluation, remove, len(chosen), f"removing pixels ({kind})")
        for label, shards in found.items():
            for removal in options.remove:
                arrays = join_curves([shard[removal] for shard in shards])
                measurements[label] |= removal_measurements(arrays, removal, kind, options.steps)
                curves[label] |= removal_bands(arrays, removal, kind)
        notes += truth_note(found, options.remove[0], kind)
    settings["methods"] = evaluation.method_labels()
    summary = EvaluationSummary("removal", settings, images, measurements, notes=notes, extra={"curves": curves})
    return summary.write(evaluation.out)


def truth_note(shards: Mapping[str, Sequence[Mapping[str, Any]]], removal: str, kind: Kind) -> list[str]:
    """How many of the images are classified rightly before anything is removed, where that is known."""
    arrays = join_curves([shard[removal] for shard in next(iter(shards.values()))])
    if "accuracy" not in arrays:
        return []
    rightly = arrays["accuracy"][:, 0].mean()
    return [
        f"Of the images with {kind} uncertainty, {rightly:.0%} are classified rightly before anything is removed: "
        "accuracy@... begins there."
    ]


def _remove_shard(
    store: ShardStore, chosen: ChosenImages, options: RemovalOptions, evaluation: Evaluation, shard: MethodShard
) -> dict[str, Any]:
    """Curves of one shard, computed or read."""
    name = method_shard(shard.method.label, shard.images.start, chosen.kind)

    def compute() -> dict[str, Any]:
        x, kind = chosen.batch(shard.images), chosen.kind
        maps = store.compute_tensors(name, map_maker(evaluation, shard.method, x, [kind]))[kind]
        labels = None if chosen.data.labels is None else chosen.data.labels[chosen.indices[shard.images]]
        return {
            removal: curve_columns(evaluation, x, maps, labels, kind, removal, options.steps)
            for removal in options.remove
        }

    return store.compute_values(name, compute)


def curve_columns(
    evaluation: Evaluation, x: Images, maps: Tensor, labels: Tensor | None, kind: Kind, removal: str, steps: int
) -> dict[str, Any]:
    """Uncertainty along both orders, and the truth of the prediction along the first; column 0 is the image itself."""
    predict, order = predictor(evaluation.posterior, kind), removal_order(maps, seed=evaluation.seed)
    pixels = order[0].numel()
    counts = [0, *removal_counts(pixels, steps)]

    def measure(images: Images) -> Tensor:
        scores, probs = predict(images)
        return scores[:, None] if labels is None else torch.cat([scores[:, None], truth_columns(probs, labels)], 1)

    most = removal_curves(measure, x, order, removal, counts, seed=evaluation.seed)
    least = removal_curves(measure, x, pixels - 1 - order, removal, counts, seed=evaluation.seed)
    truth = {} if labels is None else {name: most[..., 1 + n].tolist() for n, name in enumerate(TRUTH)}
    return {"most": most[..., 0].tolist(), "least": least[..., 0].tolist(), **truth}


def join_curves(shards: Sequence[Mapping[str, Any]]) -> dict[str, Array]:
    """The curves of all images, (images, steps + 1) each."""
    return {name: np.concatenate([np.array(shard[name]) for shard in shards]) for name in shards[0]}


def removal_measurements(arrays: Mapping[str, Array], removal: str, kind: Kind, steps: int) -> dict[str, Measurement]:
    """The gain of one method and way, and accuracy where some of the pixels have gone."""
    most, least = (torch.from_numpy(arrays[name]) for name in ("most", "least"))
    gain = symmetric_gain(most[:, 1:], least[:, 1:], most[:, 0]).numpy()
    values = {f"srg/{removal}": gain}
    for name in TRUTH:
        if name in arrays:
            on_grid = [fraction for fraction in FRACTIONS if (fraction * steps).is_integer()]
            values |= {f"{name}@{100 * f:g}%/{removal}": arrays[name][:, round(f * steps)] for f in on_grid}
    return {metric_name(name, kind): Measurement(array, mean, array, True) for name, array in values.items()}


def removal_bands(arrays: Mapping[str, Array], removal: str, kind: Kind) -> dict[str, Any]:
    """Means over images at every step with their bands, by the curve's name."""
    drawn = {"left": arrays["most"] / arrays["most"][:, :1], **{name: arrays[name] for name in TRUTH if name in arrays}}
    bands = {}
    for name, array in drawn.items():
        middle, low, high = band(array, mean)
        interval = {"value": middle.tolist(), "low": low.tolist(), "high": high.tolist()}
        bands[metric_name(f"{name}/{removal}", kind)] = interval
    return bands
