"""What every protocol works with."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor

from dubium.data import Dataset
from dubium.errors import OptionError
from dubium.evaluation.methods import Method, maps_of
from dubium.evaluation.scoring import scorer
from dubium.evaluation.store import Store
from dubium.executor import Executor, in_turn
from dubium.types import Images, Kind, Posterior

SHARD = 10  # images a file
SCALES = ("smoke", "cpu", "paper")
CHUNK = 500  # images of a dataset scored at a time

Report = Callable[[str], None]
T = TypeVar("T")
R = TypeVar("R")


def silent(_text: str) -> None:
    """Report nothing."""


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
    report: Report = silent
    spread: Executor = in_turn  # where parts of the work are done

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


def each(job: Job, do: Callable[[Job, T], R], items: Sequence[T], told: str) -> list[R]:
    """Do every item wherever the job's parts are done; results in the order of the items.

    Args:
        do: a function that can be imported, or a `partial` of one; what it computes goes to a store.
        told: what is being done, for people.
    """
    done = set[int]()

    def report(number: int) -> None:
        done.add(number)
        job.report(f"{told}: {len(done)} of {len(items)}")

    alone = replace(job, report=silent, spread=in_turn)  # what shows progress cannot leave this process
    numbered, threads = range(len(items)), torch.get_num_threads()
    return list(job.spread(_one, (alone, do, items), numbered, report, threads=threads))


def _one(
    shared: tuple[Job, Callable[[Job, Any], Any], Sequence[Any]], number: int, report: Callable[[int], None]
) -> Any:
    job, do, items = shared
    result = do(job, items[number])
    report(number)
    return result


Part = tuple[Method, str, slice]
"""A method, and the name and rows of a shard."""


def by_method(job: Job, do: Callable[[Job, Part], R], count: int, told: str, size: int = SHARD) -> dict[str, list[R]]:
    """Do every shard of `count` images with every method; results by the method's label."""
    items = [(method, shard, rows) for method in job.methods for shard, rows in shards(count, size)]
    found: dict[str, list[R]] = {method.label: [] for method in job.methods}
    for (method, _, _), result in zip(items, each(job, do, items, told), strict=True):
        found[method.label].append(result)
    return found


def all_maps(job: Job, store: Store, x: Images, told: str, size: int = SHARD) -> dict[str, dict[Kind, Tensor]]:
    """The maps of every method, kind and image."""
    parts = by_method(job, partial(_part_maps, store, x), len(x), told, size)
    return {
        label: {kind: torch.cat([part[kind] for part in found]) for kind in job.kinds} for label, found in parts.items()
    }


def _part_maps(store: Store, x: Images, job: Job, part: Part) -> dict[Kind, Tensor]:
    method, shard, rows = part
    return shard_maps(job, store, method, x[rows], shard, job.kinds)


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
    score = partial(_part_scores, store, data, kind, name)
    return torch.cat(each(job, score, list(shards(len(data), CHUNK)), f"scoring images ({kind})"))


def _part_scores(store: Store, data: Dataset, kind: Kind, name: str, job: Job, part: tuple[str, slice]) -> Tensor:
    shard, rows = part
    return store.tensors(name, shard, lambda: {kind: scorer(job.posterior, kind)(data.batch(rows))})[kind]


def most_uncertain(scores: Tensor, count: int) -> Tensor:
    """Where the highest scores are, highest first, the first of equal ones first."""
    if not len(scores):
        raise OptionError("The dataset has no images.")
    return scores.argsort(descending=True, stable=True)[:count]


def labels_at(data: Dataset, where: Tensor) -> list[int | None]:
    """Labels of some images, or None each."""
    return [None] * len(where) if data.labels is None else [int(label) for label in data.labels[where]]
