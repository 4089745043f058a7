"""Anomaly detection with planted patches."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from jaxtyping import Int64
from torch import Tensor

from dubium.data import Dataset
from dubium.evaluation.metrics.anomaly import BOX, FOUND, best_boxes, box_iou, plant, recovery
from dubium.evaluation.metrics.scoring import predictor, scorer
from dubium.evaluation.protocols.evaluation import (
    Evaluation,
    few_images_notes,
    mean_measurements,
    other_split,
    share_all_images,
    skipped_notes,
)
from dubium.evaluation.protocols.images import compute_maps, labels_at
from dubium.evaluation.protocols.options import change_options
from dubium.evaluation.shards import PLANTED_SHARD, ShardStore, method_shard
from dubium.evaluation.summary import EvaluationSummary, Measurement
from dubium.fingerprint import dataset_fingerprint
from dubium.ranking import most_uncertain
from dubium.types import Images

DONORS = 2000  # images that patches are drawn from
EXAMPLES = 6  # images that figures show


@dataclass(frozen=True)
class AnomalyOptions:
    """How many images, of how many candidates (None: all), the size of the patch, and the dataset it is cut from."""

    images: int = 200
    candidates: int | None = 2000
    box: int = BOX
    patches: str | None = None


def anomaly_options(scale: str, _data: Dataset, **changes: Any) -> AnomalyOptions:
    """The paper's 200 images out of the whole test set; out of 2,000 for a CPU; a handful for a test."""
    if scale == "smoke":
        return change_options(AnomalyOptions(images=6, candidates=24), changes)
    return change_options(AnomalyOptions(candidates=None if scale == "paper" else 2000), changes)


def evaluate_anomaly(evaluation: Evaluation, options: AnomalyOptions) -> dict[str, Any]:
    """Plant patches, keep the images whose epistemic uncertainty rises most, and look for the patches in their maps.

    Returns:
        What is in `summary.json`.
    """
    source = other_split(evaluation, options.patches)
    settings = {**evaluation.settings(), **vars(options), "patches": f"{source.name}:{source.split}"}
    settings["patch data"] = dataset_fingerprint(source)
    store = ShardStore.open(evaluation.out, settings)
    planted = store.compute_tensors(PLANTED_SHARD, partial(_plant_patches, evaluation, options, source))
    corners, clean = planted["corners"], evaluation.data.batch(planted["index"])
    predict = predicted_classes(evaluation)
    before, fooled = predict(clean), predict(clean) != predict(planted["x"])
    measurements: dict[str, dict[str, Measurement]] = {}
    recovers = partial(recovery, predict, planted["x"][fooled], before[fooled], box=options.box, seed=evaluation.seed)
    for label, maps in compute_maps(evaluation, store, planted["x"]).items():
        measurements[label] = {}
        for kind in evaluation.kinds:
            boxes = best_boxes(maps[kind], options.box)
            iou = box_iou(boxes, corners, options.box)
            values = {"iou": iou, "ada": (iou > FOUND).double()}
            values |= {"recovery": recovers(boxes[fooled])} if fooled.any() else {}
            measurements[label] |= mean_measurements(values, kind)
    about = "`recovery` is about these" if fooled.any() else "without one there is no `recovery`"
    notes = [f"{int(fooled.sum())} of {len(fooled)} patches change the prediction: {about}."]
    if fooled.any():
        notes.append(f"With the planted box removed, `recovery` is {float(recovers(corners[fooled]).mean()):.3g}.")
    if share_all_images(evaluation.data, source):
        notes.append(
            "Patches are cut from images that are evaluated as well. For others: --patches DATASET (patches= in "
            "Python), or a folder with train/ and test/."
        )
    notes += few_images_notes(evaluation, evaluation.data, options.candidates) + skipped_notes(evaluation.data, source)
    images = {
        "index": planted["index"].tolist(),
        "label": labels_at(evaluation.data, planted["index"]),
        "row": corners[:, 0].tolist(),
        "column": corners[:, 1].tolist(),
        "before": planted["before"].tolist(),
        "after": planted["after"].tolist(),
        "index/recovery": planted["index"][fooled].tolist(),
    }
    settings["methods"] = evaluation.method_labels()
    return EvaluationSummary("anomaly", settings, images, measurements, notes=notes).write(evaluation.out)


def _plant_patches(evaluation: Evaluation, options: AnomalyOptions, source: Dataset) -> dict[str, Tensor]:
    """The images whose uncertainty rises most, with their patches."""
    data, seed = evaluation.data, evaluation.seed
    count = len(data) if options.candidates is None else min(options.candidates, len(data))
    rows = torch.randperm(len(data), generator=torch.Generator().manual_seed(seed))[:count].sort().values
    donors = source.sample(DONORS, seed=seed).batch(slice(None))
    x, corners = plant(data.batch(rows), donors, box=options.box, seed=seed)
    uncertainty = scorer(evaluation.posterior)
    before, after = uncertainty(data.batch(rows)), uncertainty(x)
    evaluation.on_step(f"{len(rows)} patches planted")
    kept = most_uncertain(after - before, options.images)
    found = {"x": x, "corners": corners, "index": rows, "before": before, "after": after}
    return {name: value[kept] for name, value in found.items()}


def predicted_classes(evaluation: Evaluation) -> Callable[[Images], Int64[Tensor, " B"]]:
    """A function that gives the likeliest class of each image."""
    predict = predictor(evaluation.posterior)
    return lambda x: predict(x).probs.argmax(1)


@dataclass(frozen=True)
class AnomalyExamples:
    """A few images with their patches, and where each method finds them."""

    x: Images
    corners: Int64[Tensor, "B 2"]
    boxes: dict[str, Int64[Tensor, "B 2"]]
    box: int


def read_anomaly_examples(store: ShardStore, settings: Mapping[str, Any]) -> AnomalyExamples:
    """What figures show, for the first kind."""
    planted, kind, box = store.read_tensors(PLANTED_SHARD), settings["kinds"][0], settings["box"]
    maps = {label: store.read_tensors(method_shard(label, 0))[kind][:EXAMPLES] for label in settings["methods"]}
    boxes = {label: best_boxes(found, box) for label, found in maps.items()}
    return AnomalyExamples(planted["x"][:EXAMPLES], planted["corners"][:EXAMPLES], boxes, box)
