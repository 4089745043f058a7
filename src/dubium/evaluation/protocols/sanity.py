"""The checks of `metrics.sanity` and `metrics.randomisation` on a posterior's most uncertain images."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from torch import Tensor

from dubium.data import Dataset
from dubium.errors import lookup
from dubium.evaluation.methods import explain_maps
from dubium.evaluation.metrics.sanity import HIGHER_IS_BETTER
from dubium.evaluation.protocols.evaluation import (
    Evaluation,
    MethodShard,
    few_images_notes,
    metric_name,
    run_method_shards,
    skipped_notes,
)
from dubium.evaluation.protocols.images import ChosenImages, choose_images, map_maker
from dubium.evaluation.protocols.options import change_options, list_values
from dubium.evaluation.protocols.sanity_checks import CHECK_FUNCTIONS, CHECKS, PAIR, STAGES, Subject
from dubium.evaluation.shards import ShardStore, method_shard
from dubium.evaluation.statistics import mean
from dubium.evaluation.summary import EvaluationSummary, Measurement
from dubium.types import Kind, Posterior


@dataclass(frozen=True)
class SanityOptions:
    """How many images, of how many candidates (None: all), which checks, and how many draws each.

    `draws` are of the posterior, for `repeatability`; `redraws` of random weights, whose values are averaged.
    """

    images: int = 50
    candidates: int | None = 2000
    draws: int = 2
    checks: tuple[str, ...] = CHECKS
    stages: tuple[float, ...] = STAGES
    redraws: int = 2


def sanity_options(scale: str, _data: Dataset, **changes: Any) -> SanityOptions:
    """Not the paper's: 50 images for a CPU, 200 where time allows, a handful for a test."""
    for check in list_values(changes.get("checks", ())):
        lookup("check", dict.fromkeys(CHECKS), check)
    if scale == "smoke":
        return change_options(SanityOptions(images=3, candidates=24, draws=1, redraws=1), changes)
    large = scale == "paper"
    return change_options(SanityOptions(images=200 if large else 50, candidates=None if large else 2000), changes)


def evaluate_sanity(evaluation: Evaluation, options: SanityOptions) -> dict[str, Any]:
    """Run every check for every method.

    Returns:
        What is in `summary.json`.
    """
    listed = {"checks": list(options.checks), "stages": list(options.stages)}
    settings = {**evaluation.settings(), **vars(options), **listed}
    store = ShardStore.open(evaluation.out, settings)
    measurements: dict[str, dict[str, Measurement]] = {label: {} for label in evaluation.method_labels()}
    notes = few_images_notes(evaluation, evaluation.data, options.candidates) + skipped_notes(evaluation.data)
    images: dict[str, list[Any]] = {}
    if "repeat" in options.checks and len(evaluation.posterior) < 4:
        notes.append("A half of fewer than four networks has one, which has no epistemic uncertainty: no `halves`.")
    for kind in evaluation.kinds:
        candidates = choose_images(evaluation, store, kind, options.images, options.candidates)
        chosen = candidates.with_uncertainty()
        if len(chosen) < len(candidates):
            notes.append(f"{len(candidates) - len(chosen)} images with no {kind} uncertainty are left out.")
        images |= chosen.columns()
        check = partial(_check_shard, store, chosen, options)
        for label, shards in run_method_shards(evaluation, check, len(chosen), f"checking maps ({kind})").items():
            measurements[label] |= sanity_measurements(shards, kind)
    settings["methods"] = evaluation.method_labels()
    return EvaluationSummary("sanity", settings, images, measurements, notes=notes).write(evaluation.out)


def _check_shard(
    store: ShardStore, chosen: ChosenImages, options: SanityOptions, evaluation: Evaluation, shard: MethodShard
) -> dict[str, Any]:
    """The checks of one shard, computed or read."""
    name = method_shard(shard.method.label, shard.images.start, chosen.kind)

    def compute() -> dict[str, Any]:
        x, kind = chosen.batch(shard.images), chosen.kind
        kinds = list(dict.fromkeys([kind, *(PAIR if "kinds" in options.checks else ())]))
        maps = store.compute_tensors(name, map_maker(evaluation, shard.method, x, kinds))

        def explain_posterior(other: Posterior, seed: int) -> Tensor:
            return explain_maps(other, x, shard.method, [kind], seed=seed)[kind]

        subject = Subject(evaluation.posterior, x, maps, kind, evaluation.seed)
        return {
            metric: value.tolist()
            for check in options.checks
            for metric, value in CHECK_FUNCTIONS[check](subject, explain_posterior, options).items()
        }

    return store.compute_values(name, compute)


def sanity_measurements(shards: Sequence[Mapping[str, Any]], kind: Kind) -> dict[str, Measurement]:
    """The values of all shards, joined, by the metric's name."""
    measurements = {}
    for metric in shards[0]:
        values = np.concatenate([np.array(shard[metric]) for shard in shards])
        higher = HIGHER_IS_BETTER[metric.partition("@")[0]]
        measurements[metric_name(metric, kind)] = Measurement(values, mean, values, higher)
    return measurements
