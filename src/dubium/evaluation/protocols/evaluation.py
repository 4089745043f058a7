"""What every protocol works with, and how its parts are handed to an executor."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from dubium.checks import skipped_note
from dubium.data import Dataset, load
from dubium.data.dataset import GIVEN
from dubium.data.fit import Preprocessing
from dubium.errors import DataNotFoundError, OptionError
from dubium.evaluation.methods import LabelledMethod
from dubium.evaluation.statistics import mean
from dubium.evaluation.summary import Measurement
from dubium.executor import Executor, in_turn
from dubium.fingerprint import dataset_fingerprint, method_fingerprint, posterior_digests
from dubium.types import Kind, Posterior

SHARD = 10  # images in a file
HELD_OUT = 5  # one image in so many is a test image where there is but one set
T = TypeVar("T")
R = TypeVar("R")
StepListener = Callable[[str], None]
"""Called with a sentence about what is being done."""


def ignore_step(_text: str) -> None:
    """A listener that shows nothing."""


@dataclass(frozen=True)
class Evaluation:
    """A posterior, the methods that explain it, images to judge them on, and the folder of the results."""

    posterior: Posterior
    data: Dataset
    methods: tuple[LabelledMethod, ...]
    kinds: tuple[Kind, ...]
    out: Path
    posterior_name: str = ""  # what the user called the posterior
    known_digests: Mapping[str, str | None] = field(default_factory=dict)  # of the networks, where they are known
    seed: int = 0
    other_data: Dataset | None = None  # see `other_split`
    preprocessing: Preprocessing | None = None  # of images that are loaded besides these
    on_step: StepListener = ignore_step
    executor: Executor = in_turn  # where parts of the work are done
    map_folder: Path | None = None  # maps that several evaluations of the same posterior share
    protocol: Mapping[str, Any] = field(default_factory=dict)  # its name and version
    note: str = ""  # about the labels, for people
    asked_images: int | None = None  # how many the user asked for; None where the scale decides

    def settings(self) -> dict[str, Any]:
        """What the shards of a folder depend on, besides the protocol's options."""
        return {
            "protocol": dict(self.protocol),
            "run": self.posterior_name,
            **self.posterior_digests(),
            "data": dataset_fingerprint(self.data),
            "methods": self.method_fingerprints(),
            "dataset": self.data.name,
            "split": self.data.split,
            "dataset images": len(self.data),
            "members": len(self.posterior),
            "kinds": list(self.kinds),
            "seed": self.seed,
            "threads": torch.get_num_threads(),
            "shard": SHARD,
        }

    def posterior_digests(self) -> Mapping[str, str | None]:
        """Digests of the networks, which other networks do not have; empty if the protocol trains its networks."""
        return self.known_digests or (posterior_digests(self.posterior) if len(self.posterior) else {"weights": ""})

    def method_fingerprints(self) -> dict[str, dict[str, Any]]:
        """What the maps of each method depend on, by its label."""
        return {method.label: method_fingerprint(method.method, method.options) for method in self.methods}

    def method_labels(self) -> list[str]:
        return [method.label for method in self.methods]


def check_can_disagree(evaluation: Evaluation) -> None:
    """Refuse to judge epistemic maps of one network, before anything is computed."""
    if len(evaluation.posterior) == 1 and "epistemic" in evaluation.kinds:
        raise OptionError(
            "The posterior has one network, which cannot disagree with itself: epistemic uncertainty is 0 for every "
            "image, and there is nothing to judge. --kinds total (kinds='total' in Python) judges maps of the "
            "prediction's doubt."
        )


def other_split(evaluation: Evaluation, name: str | None = None) -> Dataset:
    """Images that were not evaluated: donors of patches, or test images for networks that are trained here.

    Those of the dataset called `name`, else the evaluation's own `other_data`, else the training images of test images
    and the reverse; the same images where there is but one set. Files that cannot be read are left out.
    """
    data, load_others = evaluation.data, partial(load, skip=True, preprocessing=evaluation.preprocessing)
    if name is not None:
        return load_others(name, "train")
    if evaluation.other_data is not None:
        return evaluation.other_data
    if data.split == "all":
        return data
    try:
        return load_others(data.name, "train" if data.split == "test" else "test")
    except DataNotFoundError:
        return data


class LabelledSets(NamedTuple):
    """Images to train networks on, and others to test them on.

    Args:
        places: of the test images in their dataset; None where they are all of it.
        notes: for people, where the two come from one set.
    """

    training: Dataset
    test: Dataset
    places: Tensor | None = None
    notes: tuple[str, ...] = ()


def labelled_sets(evaluation: Evaluation, own: str, so_that: str) -> LabelledSets:
    """The evaluation's own images and those of `other_split`; where one set has all of the other, its parts.

    Args:
        own: "train" or "test", what the evaluation's own images are for.
        so_that: what cannot be done without labels, for the error.
    """
    data, other = evaluation.data, other_split(evaluation)
    if data.labels is None or other.labels is None:
        images = "The images" if data.name == GIVEN else f"The images of {data.name}"
        raise OptionError(
            f"{images} have no labels, so that {so_that}. In Python give (images, labels) with whole numbers from 0 "
            "on; a folder needs a subfolder for each class."
        )
    if share_all_images(data, other):
        return hold_out(max(data, other, key=len), evaluation.seed)
    return LabelledSets(data, other) if own == "train" else LabelledSets(other, data)


def share_all_images(data: Dataset, other: Dataset) -> bool:
    """Whether every image of the smaller set is one of the larger."""
    smaller, larger = sorted((data.images.numpy(), other.images.numpy()), key=len)
    known = {hash(image.tobytes()) for image in larger}
    return all(hash(image.tobytes()) in known for image in smaller)


def hold_out(data: Dataset, seed: int) -> LabelledSets:
    """A fifth of the images, drawn with the seed, to test on, and the others to train on, both in their order."""
    if len(data) < 2:
        raise OptionError("One image cannot be divided into images to train on and images to test on. Give more.")
    count = max(1, len(data) // HELD_OUT)
    order = torch.randperm(len(data), generator=torch.Generator().manual_seed(seed))
    test, training = order[:count].sort().values, order[count:].sort().values
    note = (
        f"There is one set of images: {count:,} of its {len(data):,}, drawn with the seed, are the test images, and "
        "networks are trained on others only. For a choice of your own, give a folder with train/ and test/, or an "
        ".npz with train_images, train_labels, test_images and test_labels."
    )
    return LabelledSets(
        replace(data.subset(training), split=f"{data.split}, but for a fifth"),
        replace(data.subset(test), split=f"a fifth of {data.split}"),
        test,
        (note,),
    )


def few_images_notes(evaluation: Evaluation, data: Dataset, candidates: int | None = None) -> list[str]:
    """What to say where fewer images can be chosen from than the user asked for; nothing where there are enough."""
    there, asked = min(len(data), candidates or len(data)), evaluation.asked_images
    return [] if asked is None or asked <= there else [f"{there:,} images are there; {asked:,} were asked for."]


def skipped_notes(*sets: Dataset) -> list[str]:
    """What to say of files that could not be read, of each set of images once."""
    return list(dict.fromkeys(filter(None, (skipped_note(data.skipped) for data in sets))))


def metric_name(metric: str, kind: Kind) -> str:
    """The name of a metric for one kind: `murr` for epistemic, `murr/total` for another."""
    return metric if kind == "epistemic" else f"{metric}/{kind}"


def mean_measurements(values: Mapping[str, Tensor], kind: Kind) -> dict[str, Measurement]:
    """Metrics that are means over images, higher being better."""
    arrays = {name: value.double().numpy(force=True) for name, value in values.items()}
    return {metric_name(name, kind): Measurement(array, mean, array, True) for name, array in arrays.items()}


class MethodShard(NamedTuple):
    """Consecutive images of those that a protocol chose, to be explained by one method."""

    method: LabelledMethod
    images: slice


def shard_slices(count: int, size: int = SHARD) -> list[slice]:
    """Consecutive slices of `size` images that cover `count`."""
    return [slice(start, min(count, start + size)) for start in range(0, count, size)]


def run_items(
    evaluation: Evaluation, function: Callable[[Evaluation, T], R], items: Sequence[T], activity: str
) -> list[R]:
    """Call `function(evaluation, item)` for every item, on the evaluation's executor.

    Args:
        function: can be imported, or is a `partial` of such a one; what it computes goes to a store.
        activity: what is being done, for people.

    Returns:
        Results in the order of the items.
    """
    done = set[int]()

    def listen(number: int) -> None:
        done.add(number)
        evaluation.on_step(f"{activity}: {len(done)} of {len(items)}")

    evaluation.on_step(f"{activity}: 0 of {len(items)}")
    portable = replace(evaluation, on_step=ignore_step, executor=in_turn)  # a listener cannot leave this process
    numbers, threads = range(len(items)), torch.get_num_threads()
    return list(evaluation.executor(_run_item, (portable, function, items), numbers, listen, threads=threads))


def _run_item(
    shared: tuple[Evaluation, Callable[[Evaluation, Any], Any], Sequence[Any]],
    number: int,
    listen: Callable[[int], None],
) -> Any:
    evaluation, function, items = shared
    result = function(evaluation, items[number])
    listen(number)
    return result


def run_method_shards(
    evaluation: Evaluation,
    function: Callable[[Evaluation, MethodShard], R],
    count: int,
    activity: str,
    size: int = SHARD,
) -> dict[str, list[R]]:
    """Call `function` for every shard of `count` images and every method; results by the method's label."""
    items = [MethodShard(method, part) for method in evaluation.methods for part in shard_slices(count, size)]
    results: dict[str, list[R]] = {label: [] for label in evaluation.method_labels()}
    for item, result in zip(items, run_items(evaluation, function, items, activity), strict=True):
        results[item.method.label].append(result)
    return results
