"""What every protocol works with."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from dubium.data import Dataset
from dubium.errors import OptionError
from dubium.evaluation.methods import Method, maps_of
from dubium.evaluation.scoring import scorer
from dubium.evaluation.store import Store
from dubium.types import Images, Kind, Posterior

SHARD = 10  # images a file
SCALES = ("smoke", "cpu", "paper")
CHUNK = 500  # images of a dataset scored at a time

Report = Callable[[str], None]


@dataclass(frozen=True)
class Job:
    """A posterior, images to judge it on, and the methods that explain it."""

    posterior: Posterior
    data: Dataset
    methods: tuple[Method, ...]
    kinds: tuple[Kind, ...]
    out: Path
    run: str = ""  # what the user called the posterior
    weights: str = ""  # a digest, so that results of other networks are not taken for these
    seed: int = 0
    report: Report = lambda _text: None

    def settings(self) -> dict[str, object]:
        """What all shards of a folder have in common; the methods are not, since more may be added."""
        return {
            "run": self.run,
            "weights": self.weights,
            "dataset": self.data.name,
            "split": self.data.split,
            "dataset images": len(self.data),
            "members": len(self.posterior),
            "kinds": list(self.kinds),
            "seed": self.seed,
            "threads": torch.get_num_threads(),
            "shard": SHARD,
        }


def metric_name(metric: str, kind: Kind) -> str:
    """The plain name is the epistemic kind."""
    return metric if kind == "epistemic" else f"{metric}/{kind}"


def shards(count: int, size: int = SHARD) -> Iterator[tuple[str, slice]]:
    """Names and rows of consecutive shards."""
    for start in range(0, count, size):
        yield f"{start:05d}", slice(start, min(count, start + size))


def shard_maps(
    job: Job, store: Store, method: Method, x: Images, shard: str, kinds: Sequence[Kind]
) -> dict[Kind, Tensor]:
    """The maps of one shard, computed or remembered."""

    def compute() -> dict[str, Tensor]:
        return {str(kind): m for kind, m in maps_of(job.posterior, x, method, kinds, seed=job.seed).items()}

    found = store.tensors(method.file_name, shard, compute)
    return {kind: found[kind] for kind in kinds}


def scores_of(job: Job, store: Store, data: Dataset, kind: Kind, name: str) -> Tensor:
    """The uncertainty of every image of a dataset, chunk by chunk."""
    uncertainty = scorer(job.posterior, kind)
    parts = []
    for shard, rows in shards(len(data), CHUNK):

        def compute(rows: slice = rows) -> dict[str, Tensor]:
            return {kind: uncertainty(data.batch(rows))}

        parts.append(store.tensors(name, shard, compute)[kind])
        job.report(f"{rows.stop} of {len(data)} images scored")
    return torch.cat(parts)


def most_uncertain(scores: Tensor, count: int) -> Tensor:
    """Where the highest scores are, highest first, the first of equal ones first."""
    if not len(scores):
        raise OptionError("The dataset has no images.")
    return scores.argsort(descending=True, stable=True)[:count]


def labels_at(data: Dataset, where: Tensor) -> list[int | None]:
    """Labels of some images, or None each."""
    return [None] * len(where) if data.labels is None else [int(label) for label in data.labels[where]]
