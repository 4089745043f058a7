"""Maps against masks that the user gives."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dubium.checks import list_some
from dubium.data import Dataset
from dubium.errors import ImagesError, OptionError
from dubium.evaluation.metrics.anomaly import localisation
from dubium.evaluation.protocols.evaluation import Evaluation, few_images_notes, mean_measurements, skipped_notes
from dubium.evaluation.protocols.images import compute_maps, labels_at
from dubium.evaluation.protocols.options import change_options
from dubium.evaluation.shards import ShardStore
from dubium.evaluation.summary import EvaluationSummary, Measurement
from dubium.network_attributes import tensor_digest


@dataclass(frozen=True)
class MaskOptions:
    """One mask for each image, (N, H, W), in which a value other than 0 is inside; and how many images (None: all)."""

    masks: Tensor | NDArray[Any] | None = None
    images: int | None = None


def mask_options(_scale: str, _data: Dataset, **changes: Any) -> MaskOptions:
    """The same at every scale."""
    return change_options(MaskOptions(), changes)


def evaluate_masks(evaluation: Evaluation, options: MaskOptions) -> dict[str, Any]:
    """Compare the maps of each method with the masks, image by image.

    Returns:
        What is in `summary.json`.
    """
    if options.masks is None:
        raise OptionError("masks is missing; give one mask (H, W) for each image.")
    evaluation = replace(evaluation, data=evaluation.data.subset(slice(options.images)))
    masks = torch.as_tensor(options.masks)[: options.images] != 0
    expected = (len(evaluation.data), *evaluation.data.shape[1:])
    if masks.shape != expected:
        raise ImagesError(f"The masks have shape {tuple(masks.shape)}; expected {expected}, one for each image.")
    if not masks.any():
        raise ImagesError(f"The {len(masks)} masks are all empty; pixels inside of a mask have a value other than 0.")
    settings = {**evaluation.settings(), "masks": int(masks.sum()), "mask data": tensor_digest(masks)}
    store = ShardStore.open(evaluation.out, settings)
    kept = masks.flatten(1).any(1).numpy()
    empty = np.flatnonzero(~kept).tolist()
    listed = list_some(empty)
    notes = [f"{len(empty)} images with an empty mask are left out: index {listed}"] if empty else []
    notes += few_images_notes(evaluation, evaluation.data) + skipped_notes(evaluation.data)
    measurements: dict[str, dict[str, Measurement]] = {}
    for label, maps in compute_maps(evaluation, store, evaluation.data.batch(slice(None))).items():
        measurements[label] = {}
        for kind in evaluation.kinds:
            values = {name: value[kept] for name, value in localisation(maps[kind], masks).items()}
            measurements[label] |= mean_measurements(values, kind)
    indices = np.flatnonzero(kept).tolist()
    images: dict[str, list[Any]] = {"index": indices, "label": labels_at(evaluation.data, torch.tensor(indices))}
    settings["methods"] = evaluation.method_labels()
    return EvaluationSummary("masks", settings, images, measurements, notes=notes).write(evaluation.out)
