"""Images that a protocol chooses, their scores and their maps, computed once and kept in shards."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from dubium.data import Dataset
from dubium.errors import OptionError
from dubium.evaluation.methods import LabelledMethod, explain_maps
from dubium.evaluation.metrics.scoring import scorer
from dubium.evaluation.protocols.evaluation import (
    SHARD,
    Evaluation,
    MethodShard,
    metric_name,
    run_items,
    run_method_shards,
    shard_slices,
)
from dubium.evaluation.protocols.shared_maps import shared_maps
from dubium.evaluation.shards import ShardStore, method_shard, score_shard
from dubium.ranking import most_uncertain
from dubium.types import Images, Kind

CHUNK = 500  # images of a dataset scored at a time
ROUNDING = 1e-6  # nats: a difference of two equal entropies in float32 is below


@dataclass(frozen=True)
class ChosenImages:
    """The most uncertain images of a dataset, by one kind of uncertainty, highest score first."""

    kind: Kind
    data: Dataset
    indices: Int64[Tensor, " B"]
    scores: Float[Tensor, " B"]

    def __len__(self) -> int:
        return len(self.indices)

    def batch(self, part: slice) -> Images:
        """Some of the images, (B, C, H, W)."""
        return self.data.batch(self.indices[part])

    def with_uncertainty(self) -> "ChosenImages":
        """Those whose score is not 0."""
        return ChosenImages(self.kind, self.data, self.indices[self.scores > 0], self.scores[self.scores > 0])

    def columns(self) -> dict[str, list[Any]]:
        """Index and label of each image, for the summary."""
        return {
            metric_name("index", self.kind): self.indices.tolist(),
            metric_name("label", self.kind): labels_at(self.data, self.indices),
        }


def choose_images(
    evaluation: Evaluation, store: ShardStore, kind: Kind, count: int, candidates: int | None
) -> ChosenImages:
    """The `count` most uncertain of the first `candidates` images (None: of all); one of them at least is uncertain."""
    data = evaluation.data if candidates is None else evaluation.data.subset(slice(candidates))
    if not len(data):
        raise OptionError("The dataset has no images.")
    score = partial(_score_chunk, store, data, kind)
    scores = torch.cat(run_items(evaluation, score, shard_slices(len(data), CHUNK), f"scoring images ({kind})"))
    if not (scores > (ROUNDING if kind == "epistemic" else 0)).any():
        agree = (
            f" All {len(evaluation.posterior)} networks agree everywhere, as one network does that is in a list "
            "several times: give networks with weights of their own, or judge maps of the prediction's doubt by "
            "--kinds total (kinds='total' in Python)."
        )
        raise OptionError(
            f"There is no image to average over: none has any {kind} uncertainty.{agree * (kind == 'epistemic')}"
        )
    indices = most_uncertain(scores, count)
    return ChosenImages(kind, data, indices, scores[indices])


def _score_chunk(store: ShardStore, data: Dataset, kind: Kind, evaluation: Evaluation, part: slice) -> Tensor:
    def compute() -> dict[str, Tensor]:
        return {kind: scorer(evaluation.posterior, kind)(data.batch(part))}

    return store.compute_tensors(score_shard(kind, part.start), compute)[kind]


def compute_maps(
    evaluation: Evaluation, store: ShardStore, x: Images, size: int = SHARD
) -> dict[str, dict[str, Float[Tensor, "B H W"]]]:
    """The maps of every method and kind, `size` images in a shard."""
    shards = run_method_shards(evaluation, partial(_explain_shard, store, x), len(x), "explaining images", size)
    return {
        label: {kind: torch.cat([maps[kind] for maps in found]) for kind in evaluation.kinds}
        for label, found in shards.items()
    }


def _explain_shard(store: ShardStore, x: Images, evaluation: Evaluation, shard: MethodShard) -> dict[str, Tensor]:
    name = method_shard(shard.method.label, shard.images.start)
    return store.compute_tensors(name, map_maker(evaluation, shard.method, x[shard.images], evaluation.kinds))


def map_maker(
    evaluation: Evaluation, method: LabelledMethod, x: Images, kinds: Sequence[Kind]
) -> Callable[[], dict[str, Tensor]]:
    """A function that explains the images, for a store to call if it has no maps of them."""
    if evaluation.map_folder is not None:
        return partial(shared_maps, evaluation, method, x, kinds)
    return partial(explain_maps, evaluation.posterior, x, method, kinds, seed=evaluation.seed)


def labels_at(data: Dataset, indices: Tensor) -> list[int | None]:
    """Labels of some images, or None each where the dataset has none."""
    return [None] * len(indices) if data.labels is None else [int(label) for label in data.labels[indices]]
