"""The checks of `metrics.sanity` and `metrics.randomisation` on a posterior's most uncertain images."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dubium.data import Dataset
from dubium.errors import OptionError
from dubium.evaluation.methods import explain_maps
from dubium.evaluation.metrics.randomisation import Randomised
from dubium.evaluation.metrics.sanity import (
    HIGHER_IS_BETTER,
    area_left,
    effective_pixels,
    halves,
    rank_agreement,
    redrawn,
    uncertainty_curves,
)
from dubium.evaluation.metrics.scoring import scorer
from dubium.evaluation.protocols.evaluation import Evaluation, MethodShard, metric_name, run_method_shards
from dubium.evaluation.protocols.images import ChosenImages, choose_images, map_maker
from dubium.evaluation.protocols.options import change_options
from dubium.evaluation.shards import ShardStore, method_shard
from dubium.evaluation.statistics import mean
from dubium.evaluation.summary import EvaluationSummary, Measurement
from dubium.types import Images, Kind, Posterior

STAGES = (0.25, 0.5, 0.75, 1.0)
STEPS = 21


@dataclass(frozen=True)
class SanityOptions:
    """How many images, of how many candidates (None: all), and how many draws of the posterior are compared."""

    images: int = 50
    candidates: int | None = 2000
    draws: int = 2


def sanity_options(scale: str, _data: Dataset, **changes: Any) -> SanityOptions:
    """Not the paper's: 50 images for a CPU, 200 where time allows, a handful for a test."""
    if scale == "smoke":
        return change_options(SanityOptions(images=3, candidates=24, draws=1), changes)
    large = scale == "paper"
    return change_options(SanityOptions(images=200 if large else 50, candidates=None if large else 2000), changes)


def evaluate_sanity(evaluation: Evaluation, options: SanityOptions) -> dict[str, Any]:
    """Run every check for every method.

    Returns:
        What is in `summary.json`.
    """
    settings = {**evaluation.settings(), **vars(options)}
    store = ShardStore.open(evaluation.out, settings)
    measurements: dict[str, dict[str, Measurement]] = {label: {} for label in evaluation.method_labels()}
    notes: list[str] = []
    images: dict[str, list[Any]] = {}
    if len(evaluation.posterior) < 4:
        notes.append("A half of fewer than four networks has one, which has no epistemic uncertainty: no `halves`.")
    for kind in evaluation.kinds:
        candidates = choose_images(evaluation, store, kind, options.images, options.candidates)
        chosen = candidates.with_uncertainty()
        if len(chosen) < len(candidates):
            notes.append(f"{len(candidates) - len(chosen)} images with no {kind} uncertainty are left out.")
        if not len(chosen):
            raise OptionError(f"There is no image to average over: none has any {kind} uncertainty.")
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
    name = method_shard(shard.method.label, shard.rows.start, chosen.kind)

    def compute() -> dict[str, Any]:
        x, kind, posterior = chosen.batch(shard.rows), chosen.kind, evaluation.posterior
        maps = store.compute_tensors(name, map_maker(evaluation, shard.method, x, [kind]))[kind]

        def explain_posterior(other: Posterior, seed: int) -> Tensor:
            return explain_maps(other, x, shard.method, [kind], seed=seed)[kind]

        checks = map_checks(posterior, maps, explain_posterior, seed=evaluation.seed, draws=options.draws)
        return {**checks, **curve_checks(posterior, x, maps, kind)}

    return store.compute_values(name, compute)


def sanity_measurements(shards: Sequence[Mapping[str, Any]], kind: Kind) -> dict[str, Measurement]:
    """The values of all shards, joined, by the metric's name."""
    measurements = {}
    for metric in shards[0]:
        values = np.concatenate([np.array(shard[metric]) for shard in shards])
        higher = HIGHER_IS_BETTER[metric.partition("@")[0]]
        measurements[metric_name(metric, kind)] = Measurement(values, mean, values, higher)
    return measurements


def map_checks(
    posterior: Posterior,
    maps: Tensor,
    explain_posterior: Callable[[Posterior, int], Tensor],
    *,
    seed: int,
    draws: int,
) -> dict[str, list[float]]:
    """Checks that compare maps (B, H, W) with those of other posteriors, or look at the maps alone.

    Args:
        explain_posterior: gives maps of the same images for another posterior and a seed.
        seed: of the randomised weights; the maps of other posteriors take the seeds after it.
        draws: of the posterior, that `repeatability` compares.
    """
    values: dict[str, Tensor] = {}
    for fraction in STAGES:
        randomised = explain_posterior(Randomised(posterior, fraction, seed), seed + 1)
        values[f"cascade@{100 * fraction:g}%"] = rank_agreement(maps, randomised)
    if len(posterior) >= 4:
        first, second = halves(posterior)
        values["halves"] = rank_agreement(explain_posterior(first, seed + 1), explain_posterior(second, seed + 2))
    if len(posterior) > 1:
        others = [explain_posterior(redrawn(posterior, draw), seed + 1 + draw) for draw in range(draws)]
        values["repeatability"] = torch.stack([rank_agreement(maps, other) for other in others]).mean(0)
    values["effective-pixels"] = effective_pixels(maps)
    return {name: value.tolist() for name, value in values.items()}


def curve_checks(posterior: Posterior, x: Images, maps: Tensor, kind: Kind) -> dict[str, list[float]]:
    """Areas under the deletion and insertion curves."""
    uncertainty, fractions = scorer(posterior, kind), [step / (STEPS - 1) for step in range(STEPS)]
    before = uncertainty(x).numpy()
    values = {}
    for name in ("deletion", "insertion"):
        curves = uncertainty_curves(uncertainty, x, maps, fractions, insert=name == "insertion")
        values[name] = area_left(curves.numpy(), before).tolist()
    return values
