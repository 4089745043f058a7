"""The checks of `evaluation.sanity` and `evaluation.randomisation` on a posterior's most uncertain images."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dubium.data import Dataset
from dubium.evaluation.figures.sanity import sanity_figures
from dubium.evaluation.methods import Method, maps_of
from dubium.evaluation.protocols.job import (
    Job,
    Part,
    by_method,
    labels_at,
    metric_name,
    most_uncertain,
    scores_of,
    shard_maps,
)
from dubium.evaluation.randomisation import Randomised
from dubium.evaluation.sanity import (
    HIGHER_IS_BETTER,
    area_left,
    effective_pixels,
    halves,
    rank_agreement,
    redrawn,
    uncertainty_curves,
)
from dubium.evaluation.scoring import scorer
from dubium.evaluation.statistics import mean
from dubium.evaluation.store import Store
from dubium.evaluation.summary import Measured, Summary
from dubium.types import Images, Kind, Posterior

STAGES = (0.25, 0.5, 0.75, 1.0)
STEPS = 21


@dataclass(frozen=True)
class SanityOptions:
    """How many images, of how many candidates (None: all), and how many draws of the posterior are compared."""

    images: int = 50
    candidates: int | None = 2000
    draws: int = 2


def options_for(scale: str) -> SanityOptions:
    """Not the paper's: 50 images for a CPU, 200 where time allows, a handful for a test."""
    if scale == "smoke":
        return SanityOptions(images=3, candidates=24, draws=1)
    return SanityOptions(images=200 if scale == "paper" else 50, candidates=None if scale == "paper" else 2000)


def evaluate_sanity(job: Job, options: SanityOptions) -> dict[str, Any]:
    """Run every check for every method, and write the job's folder."""
    settings = {**job.settings(), **options.__dict__}
    store = Store.open(job.out, settings)
    data = job.data if options.candidates is None else job.data.subset(slice(options.candidates))
    results: dict[str, dict[str, Measured]] = {method.label: {} for method in job.methods}
    notes: list[str] = []
    images: dict[str, list[Any]] = {}
    if len(job.posterior) < 4:
        notes.append("A half of fewer than four networks has one, which has no epistemic uncertainty: no `halves`.")
    for kind in job.kinds:
        scores = scores_of(job, store, data, kind, f"scores-{kind}")
        where = most_uncertain(scores, options.images)
        where = where[scores[where] > 0]
        if len(where) < min(options.images, len(data)):
            notes.append(
                f"{min(options.images, len(data)) - len(where)} images with no {kind} uncertainty are left out."
            )
        images |= {metric_name("index", kind): where.tolist(), metric_name("label", kind): labels_at(data, where)}
        part = partial(_part, store, data, where, kind, options)
        for label, parts in by_method(job, part, len(where), f"checking maps ({kind})").items():
            results[label] |= _joined(parts, kind)
    methods = [method.label for method in job.methods]
    written = Summary("sanity", {**settings, "methods": methods}, images, results, notes=notes).write(job.out)
    sanity_figures(written["results"], job.kinds[0], job.out)
    return written


def _part(
    store: Store, data: Dataset, where: Tensor, kind: Kind, options: SanityOptions, job: Job, part: Part
) -> dict[str, Any]:
    method, shard, rows = part
    name, x = f"{shard}-{kind}", data.batch(where[rows])
    maps = shard_maps(job, store, method, x, name, [kind])[kind]
    return store.values(method.file_name, name, partial(checks, job, method, x, maps, kind, options))


def _joined(parts: Sequence[dict[str, Any]], kind: Kind) -> dict[str, Measured]:
    found = {}
    for metric in parts[0]:
        values = np.concatenate([np.array(part[metric]) for part in parts])
        found[metric_name(metric, kind)] = Measured(values, mean, values, HIGHER_IS_BETTER[metric.partition("@")[0]])
    return found


def checks(job: Job, method: Method, x: Images, maps: Tensor, kind: Kind, options: SanityOptions) -> dict[str, Any]:
    """Every check's values for some images, as JSON."""

    def explained(posterior: Posterior, seed: int) -> Tensor:
        return maps_of(posterior, x, method, [kind], seed=seed)[kind]

    found: dict[str, Tensor] = {}
    for fraction in STAGES:
        unlearned = explained(Randomised(job.posterior, fraction, job.seed), job.seed + 1)
        found[f"cascade@{100 * fraction:g}%"] = rank_agreement(maps, unlearned)
    if len(job.posterior) >= 4:
        first, second = halves(job.posterior)
        found["halves"] = rank_agreement(explained(first, job.seed + 1), explained(second, job.seed + 2))
    if len(job.posterior) > 1:
        again = [explained(redrawn(job.posterior, draw), job.seed + 1 + draw) for draw in range(options.draws)]
        found["repeatability"] = torch.stack([rank_agreement(maps, other) for other in again]).mean(0)
    found["effective-pixels"] = effective_pixels(maps)
    uncertainty, fractions = scorer(job.posterior, kind), [step / (STEPS - 1) for step in range(STEPS)]
    before = uncertainty(x).numpy()
    values = {name: value.tolist() for name, value in found.items()}
    for name in ("deletion", "insertion"):
        curves = uncertainty_curves(uncertainty, x, maps, fractions, insert=name == "insertion")
        values[name] = area_left(curves.numpy(), before).tolist()
    return values
