"""Beside the blurring test's curves: is the prediction still right while its uncertainty falls?"""

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from dubium.evaluation.metrics.blurring import pixel_counts, pixel_ranks
from dubium.evaluation.metrics.gaussian_blur import gaussian_blur
from dubium.evaluation.metrics.scoring import predictor
from dubium.evaluation.metrics.truth import truth_columns
from dubium.evaluation.protocols.evaluation import Evaluation, MethodShard, metric_name, run_method_shards
from dubium.evaluation.protocols.images import ChosenImages
from dubium.evaluation.shards import ShardStore, method_shard, truth_shard
from dubium.evaluation.statistics import Array, mean
from dubium.evaluation.summary import Measurement
from dubium.types import Images, Kind

if TYPE_CHECKING:
    from dubium.evaluation.protocols.blurring import BlurringOptions

STAGES = 5  # evenly spaced steps after the first, at which predictions are looked at
TRUTH = ("accuracy", "true-probability")


def fraction_key(fraction: float) -> str:
    """A fraction's name in a shard."""
    return f"{fraction:g}"


def compute_truth(
    evaluation: Evaluation, store: ShardStore, chosen: ChosenImages, options: "BlurringOptions"
) -> dict[str, dict[str, dict[str, Array]]]:
    """By method, fraction and name: accuracy and the true class's probability of each image, (images, STAGES + 1)."""
    look = partial(_truth_shard, store, chosen, options)
    found = run_method_shards(evaluation, look, len(chosen), f"looking at predictions ({chosen.kind})")
    keys = [fraction_key(fraction) for fraction in options.fractions]
    return {
        label: {
            key: {name: np.concatenate([np.array(shard[key][name]) for shard in shards]) for name in TRUTH}
            for key in keys
        }
        for label, shards in found.items()
    }


def _truth_shard(
    store: ShardStore, chosen: ChosenImages, options: "BlurringOptions", evaluation: Evaluation, shard: MethodShard
) -> dict[str, Any]:
    """Predictions along the curves that the blurring test has left in its shard, computed or read."""
    label, start, kind = shard.method.label, shard.images.start, chosen.kind

    def compute() -> dict[str, Any]:
        name, x = method_shard(label, start, kind), chosen.batch(shard.images)
        maps, curves = store.read_tensors(name)[kind], store.read_values(name)
        assert chosen.data.labels is not None
        labels, found = chosen.data.labels[chosen.indices[shard.images]], {}
        counts = pixel_counts(x.shape[2], x.shape[3], options.fractions)
        for fraction, count in zip(options.fractions, counts, strict=True):
            sigma = torch.tensor(curves[fraction_key(fraction)]["sigma"])
            stages = blurred_stages(x, maps, sigma, count)
            truth = truth_columns(predictor(evaluation.posterior, kind)(stages).probs, labels)
            columns = truth.view(STAGES + 1, len(x), len(TRUTH)).unbind(-1)
            found[fraction_key(fraction)] = {n: c.T.tolist() for n, c in zip(TRUTH, columns, strict=True)}
        return found

    return store.compute_values(truth_shard(label, start, kind), compute)


def blurred_stages(x: Images, maps: Tensor, sigma: Tensor, count: int) -> Float[Tensor, "stages C H W"]:
    """The images with up to `count` pixels blurred, in even steps; all images of a stage follow each other."""
    different, which = sigma.unique(return_inverse=True)
    copies = gaussian_blur(x, different.tolist())[which, torch.arange(len(x))]
    steps = torch.tensor([round(count * stage / STAGES) for stage in range(STAGES + 1)])
    taken = pixel_ranks(maps) < steps.view(-1, 1, 1, 1)  # (stages, B, H, W)
    return torch.where(taken[:, :, None], copies, x).flatten(0, 1)


def truth_measurements(columns: Mapping[str, Array], at: str, kind: Kind) -> dict[str, Measurement]:
    """Accuracy and the true class's probability at the end of one fraction's curve."""
    ends = {name: values[:, -1] for name, values in columns.items()}
    return {metric_name(f"{name}@{at}", kind): Measurement(end, mean, end, True) for name, end in ends.items()}
