"""Anomaly detection with planted patches, or against masks that the user gives."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool
from torch import Tensor

from dubium.data import Dataset
from dubium.errors import ImagesError
from dubium.evaluation.anomaly import BOX, FOUND, best_boxes, box_iou, localisation, plant
from dubium.evaluation.figures.anomaly import anomaly_figures
from dubium.evaluation.protocols.job import Job, all_maps, labels_at, metric_name, most_uncertain
from dubium.evaluation.scoring import scorer
from dubium.evaluation.statistics import mean
from dubium.evaluation.store import Store
from dubium.evaluation.summary import Measured, Summary
from dubium.types import Kind

DONORS = 2000  # images that patches are drawn from
Masks = Bool[Tensor, "N H W"]


@dataclass(frozen=True)
class AnomalyOptions:
    """How many images, of how many candidates (None: all), and the size of the planted patch."""

    images: int = 200
    candidates: int | None = 2000
    box: int = BOX


def options_for(scale: str) -> AnomalyOptions:
    """The paper's 200 images out of the whole test set; out of 2,000 for a CPU; a handful for a test."""
    if scale == "smoke":
        return AnomalyOptions(images=6, candidates=24)
    return AnomalyOptions(candidates=None if scale == "paper" else 2000)


def evaluate_anomaly(job: Job, options: AnomalyOptions, source: Dataset) -> dict[str, Any]:
    """Plant patches of `source`, keep the images whose epistemic uncertainty rises most, and look for the patches."""
    settings = {**job.settings(), **options.__dict__, "patches": f"{source.name}:{source.split}"}
    store = Store.open(job.out, settings)
    planted = store.tensors("planted", "all", lambda: _planted(job, options, source))
    x, corners = planted["x"], planted["corners"]
    results: dict[str, dict[str, Measured]] = {}
    boxes: dict[str, Tensor] = {}
    maps_by_method = all_maps(job, store, x, "explaining images")
    for method in job.methods:
        maps = maps_by_method[method.label]
        results[method.label] = {}
        for kind in job.kinds:
            found = best_boxes(maps[kind], options.box)
            iou = box_iou(found, corners, options.box)
            boxes.setdefault(method.label, found)
            values = {"iou": iou, "ada": (iou > FOUND).double()}
            results[method.label] |= _measured(values, kind)
    images = {
        "index": planted["index"].tolist(),
        "label": labels_at(job.data, planted["index"]),
        "row": corners[:, 0].tolist(),
        "column": corners[:, 1].tolist(),
        "before": planted["before"].tolist(),
        "after": planted["after"].tolist(),
    }
    methods = [method.label for method in job.methods]
    written = Summary("anomaly", {**settings, "methods": methods}, images, results).write(job.out)
    anomaly_figures(x, corners, boxes, options.box, job.out)
    return written


def evaluate_masks(job: Job, masks: Masks) -> dict[str, Any]:
    """Compare maps with the user's masks, image by image."""
    if masks.shape != (len(job.data), *job.data.shape[1:]):
        expected = (len(job.data), *job.data.shape[1:])
        raise ImagesError(f"The masks have shape {tuple(masks.shape)}; expected {expected}, one for each image.")
    settings = {**job.settings(), "masks": int(masks.sum())}
    store = Store.open(job.out, settings)
    kept = masks.flatten(1).any(1).numpy()
    notes = [] if kept.all() else [f"{int((~kept).sum())} images with an empty mask are left out."]
    results: dict[str, dict[str, Measured]] = {}
    maps_by_method = all_maps(job, store, job.data.batch(slice(None)), "explaining images")
    for method in job.methods:
        maps = maps_by_method[method.label]
        results[method.label] = {}
        for kind in job.kinds:
            values = {name: value[kept] for name, value in localisation(maps[kind], masks).items()}
            results[method.label] |= _measured(values, kind)
    index = np.flatnonzero(kept).tolist()
    images: dict[str, list[Any]] = {"index": index, "label": labels_at(job.data, torch.tensor(index))}
    methods = [method.label for method in job.methods]
    return Summary("masks", {**settings, "methods": methods}, images, results, notes=notes).write(job.out)


def _planted(job: Job, options: AnomalyOptions, source: Dataset) -> dict[str, Tensor]:
    """The images whose uncertainty rises most, with their patches."""
    data = job.data
    count = len(data) if options.candidates is None else min(options.candidates, len(data))
    rows = torch.randperm(len(data), generator=torch.Generator().manual_seed(job.seed))[:count].sort().values
    x, corners = plant(
        data.batch(rows), source.sample(DONORS, seed=job.seed).batch(slice(None)), box=options.box, seed=job.seed
    )
    uncertainty = scorer(job.posterior)
    before, after = uncertainty(data.batch(rows)), uncertainty(x)
    job.report(f"{len(rows)} patches planted")
    kept = most_uncertain(after - before, options.images)
    found = {"x": x, "corners": corners, "index": rows, "before": before, "after": after}
    return {name: value[kept] for name, value in found.items()}


def _measured(values: Mapping[str, Tensor], kind: Kind) -> dict[str, Measured]:
    arrays = {name: value.numpy(force=True) for name, value in values.items()}
    return {metric_name(name, kind): Measured(array, mean, array, True) for name, array in arrays.items()}
