"""The blurring test of a posterior's most uncertain images."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dubium.data import Dataset
from dubium.evaluation.blurring import (
    FRACTIONS,
    STEP,
    Search,
    areas,
    auc_urr,
    blurring_test,
    murr,
    pixel_counts,
    reduction_rates,
    sigma_grid,
)
from dubium.evaluation.figures.blurring import blurring_figures
from dubium.evaluation.methods import Method
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
from dubium.evaluation.scoring import Uncertainty, scorer
from dubium.evaluation.statistics import Array, band, mean, median
from dubium.evaluation.store import Store
from dubium.evaluation.summary import Measured, Summary
from dubium.types import Images, Kind


@dataclass(frozen=True)
class BlurringOptions:
    """How many images, of how many candidates (None: all), what is blurred, and how sigma is found."""

    images: int = 100
    candidates: int | None = None
    fractions: tuple[float, ...] = FRACTIONS
    step: float = STEP
    search: Search = "ranked"


def options_for(scale: str, data: Dataset) -> BlurringOptions:
    """The paper's: the 100 most uncertain grey images, or 500 in colour; 100 for a CPU; a handful for a test."""
    if scale == "smoke":
        return BlurringOptions(images=4, candidates=32, step=4.0)
    return BlurringOptions(images=500 if scale == "paper" and data.shape[0] > 1 else 100)


def evaluate_blurring(job: Job, options: BlurringOptions) -> dict[str, Any]:
    """Blur the pixels that each method blames, and write what that did to the uncertainty to the job's folder."""
    settings = {**job.settings(), **options.__dict__, "fractions": list(options.fractions)}
    store = Store.open(job.out, settings)
    data = job.data if options.candidates is None else job.data.subset(slice(options.candidates))
    results: dict[str, dict[str, Measured]] = {method.label: {} for method in job.methods}
    curves: dict[str, dict[str, Any]] = {method.label: {} for method in job.methods}
    notes: list[str] = []
    images: dict[str, list[Any]] = {}
    for kind in job.kinds:
        scores = scores_of(job, store, data, kind, f"scores-{kind}")
        where = most_uncertain(scores, options.images)
        kept = (scores[where] > 0).numpy()
        if not kept.all():
            notes.append(f"{int((~kept).sum())} images with no {kind} uncertainty are left out.")
        images |= {metric_name("index", kind): where.tolist(), metric_name("label", kind): labels_at(data, where)}
        images |= {metric_name("uncertainty", kind): scores[where].tolist()}
        part = partial(part_curves, store, data, where, kind, options)
        for label, parts in by_method(job, part, len(where), f"blurring images ({kind})").items():
            for fraction in options.fractions:
                rate = rates_of(parts, fraction)
                results[label] |= measured(rate, kept, f"@{100 * fraction:g}%", kind)
                at = metric_name(f"{100 * fraction:g}%", kind)
                middle, low, high = band(rate[kept], median)
                curves[label][at] = {"value": middle.tolist(), "low": low.tolist(), "high": high.tolist()}
    methods = [method.label for method in job.methods]
    more = {"curves": curves}
    summary = Summary("blurring", {**settings, "methods": methods}, images, results, notes=notes, more=more)
    written = summary.write(job.out)
    blurring_figures(job, store, data, options, written)
    return written


def measured(rates: Array, kept: Any, at: str, kind: Kind) -> dict[str, Measured]:
    """All metrics of one method and fraction; images without uncertainty have no rate and do not count."""
    rates = rates[kept]
    last, area = rates[:, -1], areas(rates)
    found = {
        "murr": Measured(rates, murr, last, True),
        "auc-urr": Measured(rates, auc_urr, area, False),
        "murr-mean": Measured(last, mean, last, True),
        "auc-urr-mean": Measured(area, mean, area, False),
        "auc-urr-median": Measured(area, median, area, False),
    }
    return {metric_name(f"{name}{at}", kind): one for name, one in found.items()}


def rates_of(parts: Sequence[dict[str, Any]], fraction: float) -> Array:
    """URR of every image at every step."""
    return reduction_rates(np.concatenate([np.array(part[f"{fraction:g}"]["curves"]) for part in parts]))


def part_curves(
    store: Store, data: Dataset, where: Tensor, kind: Kind, options: BlurringOptions, job: Job, part: Part
) -> dict[str, Any]:
    """The curves of one shard, computed or remembered."""
    method, shard, rows = part
    x, uncertainty = data.batch(where[rows]), scorer(job.posterior, kind)
    compute = partial(shard_curves, job, store, method, x, shard, kind, uncertainty, options)
    return store.values(method.file_name, f"{shard}-{kind}", compute)


def shard_curves(
    job: Job,
    store: Store,
    method: Method,
    x: Images,
    shard: str,
    kind: Kind,
    uncertainty: Uncertainty,
    options: BlurringOptions,
) -> dict[str, Any]:
    """The curves of one shard, as JSON."""
    maps = shard_maps(job, store, method, x, f"{shard}-{kind}", [kind])[kind]  # each kind has images of its own
    counts = pixel_counts(x.shape[2], x.shape[3], options.fractions)
    with torch.no_grad():
        found = blurring_test(
            uncertainty, x, maps, counts=counts, sigmas=sigma_grid(options.step), search=options.search
        )
    return {
        f"{fraction:g}": {"sigma": one.sigma.tolist(), "curves": one.curves.tolist()}
        for fraction, one in zip(options.fractions, found, strict=True)
    }
