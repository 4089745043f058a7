"""What a result depends on besides its job's settings: images, labels, recipe, versions of methods and measure."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from dubium.choices import SPLITS
from dubium.data.find import data_folders
from dubium.errors import DataNotFoundError
from dubium.evaluation.protocols import PROTOCOLS
from dubium.fingerprint import dataset_fingerprint, part_fingerprint
from dubium.option_text import parse_options, split_method
from dubium.registry import METHOD_VERSIONS, UA_BACKPROP
from dubium.reproduce.job import Job, text_digest
from dubium.reproduce.networks import open_data, public_name, training_for
from dubium.reproduce.study import BLUR_PATH
from dubium.training.recipes import RECIPES

MEASURE_VERSIONS = {"properties": 1, "runtime": 1, "strategies": 2, "figure": 1}
"""Of measures that are no protocol: raised by hand when their numbers change."""


def job_dependencies(job: Job, scale: str) -> dict[str, Any]:
    """As plain data, so that a difference can be named."""
    version = PROTOCOLS[job.measure].version if job.measure in PROTOCOLS else MEASURE_VERSIONS[job.measure]
    used = (BLUR_PATH,) if job.measure == "strategies" else ()  # its methods are ways to train, some of which use maps
    texts = dict.fromkeys((*job.methods, *(arm.method for arm in job.arms), *used))
    found: dict[str, Any] = {
        "measure": {"name": job.measure, "version": version},
        "methods": {text: versions for text in texts if (versions := method_versions(text))},
    }
    if job.dataset:
        folders = tuple(data_folders())
        found["data"] = {split: data_digest(job.dataset, split, scale, folders) for split in SPLITS}
        if public_name(job.dataset, job.networks, scale) is None:
            found["recipe"] = recipe_digest(job.dataset, scale)
    return found


def method_versions(text: str) -> dict[str, Any]:
    """Such as `{"ua-backprop": 1, "fullgrad": 1}`; empty for what is not a method, such as a way to train.

    >>> method_versions("ua-backprop:relevance=ig:steps=30"), method_versions("plain")
    ({'ua-backprop': 1, 'ig': 1}, {})
    """
    name, pairs = split_method(text)
    if name not in METHOD_VERSIONS:
        return {}
    relevance = parse_options(pairs).get("relevance", "fullgrad")
    return part_fingerprint(name) | (part_fingerprint(relevance) if name == UA_BACKPROP else {})


@cache
def data_digest(dataset: str, split: str, scale: str, _folders: tuple[Path, ...]) -> str | None:
    """SHA-256 of the images and labels that are read, None where they are not at hand; once in a process."""
    try:
        return str(dataset_fingerprint(open_data(dataset, split, scale))["sha256"])
    except DataNotFoundError:
        return None


def recipe_digest(dataset: str, scale: str) -> str:
    """A digest of how the networks of a dataset are trained."""
    training = training_for(dataset, scale)
    return text_digest([RECIPES[dataset][training.scale].to_json(), dict(training.changes)])


def are_dependencies_same(result: Mapping[str, Any], job: Job, scale: str) -> bool:
    """Whether a result was made of what there is now.

    Where the images are not at hand, they are not compared. Results of earlier versions did not record any of it, and
    are kept.
    """
    there, here = result.get("dependencies"), job_dependencies(job, scale)
    if isinstance(there, dict) and None in here.get("data", {}).values():
        there = {**there, "data": here["data"]}
    return there is None or there == here
