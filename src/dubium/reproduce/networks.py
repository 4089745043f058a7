"""The networks and images of each dataset and scale: trained here, public ones, or small stand-ins."""

from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import nn

from dubium.data import Dataset, load
from dubium.data.catalog import SOURCES
from dubium.data.find import data_folders, find_files
from dubium.errors import DataNotFoundError, FileFormatError
from dubium.executor import Executor, in_turn
from dubium.fingerprint import posterior_digests
from dubium.models import VAE, load_vae
from dubium.posteriors import fit_laplace, load_posterior, posterior_record
from dubium.reproduce.accuracy import ensemble_accuracy
from dubium.seeds import seed_for
from dubium.training import train, train_vae
from dubium.training.loop import fit, network_for
from dubium.training.recipes import VAE_RECIPES, recipe_for
from dubium.types import Posterior

SMOKE_IMAGES = {"train": 160, "test": 48}
SMOKE_MEMBERS = 2
LAPLACE_SAMPLES, LAPLACE_IMAGES, LAPLACE_BATCH = 5, 2000, 250


@dataclass(frozen=True)
class Training:
    """How an ensemble is trained: arguments of `dubium.training.train`."""

    scale: str
    seed: int = 0
    changes: Mapping[str, Any] = field(default_factory=dict)
    reason: str = ""  # why it is not the paper's recipe
    members: int = 5

    def settings(self) -> dict[str, Any]:
        """What decides the networks."""
        found = {"scale": self.scale, "seed": self.seed, "changes": dict(self.changes)}
        return found if self.members == Training.members else {**found, "members": self.members}


CPU_TRAINING = {
    "mnist": Training("cpu", 11, reason="the paper's CNN, 3 epochs instead of 30"),
    "svhn": Training(
        "paper",
        0,
        {"epochs": 3, "batch_size": 32, "optimizer": "adam", "lr": 0.001, "milestones": (), "cycles": 1},
        "the paper's CNN on the training images at hand, 3 networks instead of 5, 3 epochs of Adam instead of 50 of "
        "SGD from .1, at which the loss did not leave that of the class frequencies in four epochs",
        members=3,
    ),
    "cifar-10": Training("cpu", reason="a ResNet-8 instead of the paper's ResNet-18"),
    "cifar-100": Training("cpu", reason="a ResNet-8 instead of the paper's ResNet-18"),
}
CPU_VAES: dict[str, dict[str, Any]] = {
    "mnist": {"epochs": 10},
    "svhn": {"epochs": 3, "images": 2000},
    "cifar-10": {"epochs": 3, "images": 5000},
    "cifar-100": {"epochs": 3, "images": 2000},
}
PUBLIC = {"cifar10-resnet20": "cifar-10", "cifar100-resnets": "cifar-100", "svhn-cnn": "svhn"}
"""Ensembles that others trained, by their name under DUBIUM_MODELS."""

INSTEAD = {"cifar-10": "cifar10-resnet20", "cifar-100": "cifar100-resnets"}
"""Public ensembles that scale `cpu` takes, where they are there, since two cores cannot train a ResNet-18."""


OWN_NAME = "own"  # how names of networks of the user's own begin
OWN: dict[str, Posterior] = {}
"""Networks of the user's own, by the name that `take_networks` gave them; of this process alone."""


def take_networks(posterior: Posterior) -> str:
    """Give networks of the user's own a name, by their weights, which jobs can have as their `networks`."""
    name = "-".join([OWN_NAME, *(digest[:12] for digest in posterior_digests(posterior).values() if digest)])
    OWN[name] = posterior
    return name


def describe_networks(dataset: str, networks: str, scale: str) -> dict[str, Any]:
    """What decides which networks are meant, without training them."""
    if networks in OWN:
        return {"kind": networks, "members": len(OWN[networks])}
    if scale == "smoke":
        return {"kind": networks, "smoke": SMOKE_MEMBERS, "at hand": is_at_hand(dataset)}
    public = public_name(dataset, networks, scale)
    if public is not None:
        record = posterior_record(public)
        return {"kind": networks, "public": public, "architecture": record.architecture, "sha256": record.sha256}
    return {"kind": networks, **training_for(dataset, scale).settings()}


def public_name(dataset: str, networks: str, scale: str) -> str | None:
    """The public ensemble to take, if any."""
    if networks in PUBLIC:
        return networks
    name = INSTEAD.get(dataset) if scale == "cpu" else None
    if name is None:
        return None
    try:
        posterior_record(name)
    except FileFormatError:
        return None
    return name


def training_for(dataset: str, scale: str) -> Training:
    """How the ensemble of a dataset is trained."""
    return CPU_TRAINING[dataset] if scale == "cpu" else Training(scale)


def open_networks(
    dataset: str,
    networks: str,
    scale: str,
    folder: Path,
    spread: Executor = in_turn,
    on_step: Callable[[str], object] = lambda _words: None,
) -> tuple[Posterior, dict[str, Any]]:
    """The posterior, trained first if need be, and what the result's file says of it.

    Args:
        networks: "ensemble", a key of `KINDS` or of `OWN`, or one of `PUBLIC`.
        folder: where trained networks are kept.
        spread: where they are trained.
        on_step: told how far the training is, in words.
    """
    if networks in OWN:
        return OWN[networks], describe_networks(dataset, networks, scale)
    if networks in KINDS:
        ensemble, about = open_networks(dataset, "ensemble", scale, folder, spread, on_step)
        return KINDS[networks](next(iter(ensemble)), dataset, scale), {**about, "kind": networks}
    if scale == "smoke":
        return smoke_ensemble(dataset), {"kind": "ensemble", "members": SMOKE_MEMBERS, "trained": "two epochs, tiny"}
    public = public_name(dataset, networks, scale)
    training = training_for(dataset, scale)
    run: str | Path = public if public is not None else folder / dataset
    if public is None:

        def report(event: Mapping[str, Any]) -> None:
            on_step(step_words(event))

        train(dataset, run, **training.settings(), spread=spread, report=report)
    posterior, record = load_posterior(run), posterior_record(run)
    about = {
        "kind": record.kind,
        "members": len(posterior),
        "architecture": record.architecture,
        "sha256": dict(record.sha256),
        "test": record.training.get("test"),
    }
    if public is None:
        return posterior, {**about, "trained": training.reason or "as in the paper"}
    test = ensemble_accuracy(posterior, open_data(dataset, "test", scale), folder / f"{public}-accuracy.json")
    return posterior, {**about, "public": public, "test": test}


def step_words(event: Mapping[str, Any]) -> str:
    """How far the training of a member is."""
    if "step" not in event:
        return f"training member {event['member']}"
    done = (event["epoch"] - 1) * event["steps"] + event["step"]
    return f"training member {event['member']}: {done} of {event['epochs'] * event['steps']}"


def open_data(dataset: str, split: str, scale: str) -> Dataset:
    """Images and labels; at scale `smoke` a few, which are drawn where the dataset is not at hand."""
    try:
        data = load(dataset, split)
    except DataNotFoundError:
        if scale != "smoke":
            raise
        return draw_images(dataset, split)
    return data.sample(SMOKE_IMAGES[split], seed=0) if scale == "smoke" else data


def is_at_hand(dataset: str) -> bool:
    """Whether the files of both splits of a dataset are there."""
    try:
        for split in ("train", "test"):
            find_files(dataset, split, data_folders())
    except DataNotFoundError:
        return False
    return True


def draw_images(dataset: str, split: str) -> Dataset:
    """Images of a dataset's shape and classes: a random picture for each class, with noise; the same every time."""
    source, count = SOURCES[dataset], SMOKE_IMAGES[split]
    generator = torch.Generator().manual_seed(seed_for(0, dataset, 0))
    pictures = torch.rand(len(source.classes), *source.shape, generator=generator)
    generator.manual_seed(seed_for(1, split, 0))
    labels = torch.randint(len(source.classes), (count,), generator=generator)
    noise = torch.rand(count, *source.shape, generator=generator)
    images = (255 * (0.6 * pictures[labels] + 0.4 * noise)).to(torch.uint8)
    return Dataset(images, labels, source.classes, dataset, split)


@cache
def smoke_ensemble(dataset: str) -> tuple[nn.Module, ...]:
    """Two tiny networks, trained for a moment."""
    data = open_data(dataset, "train", "smoke")
    recipe = recipe_for(data, "smoke", {})
    members = [network_for(recipe, seed) for seed in range(SMOKE_MEMBERS)]
    for seed, network in enumerate(members):
        fit(network, data, recipe, seed=seed)
    return tuple(members)


def open_vae(dataset: str, scale: str, folder: Path) -> VAE:
    """The VAE of the CLUE methods, trained first if need be."""
    if scale == "smoke":
        return smoke_vae(dataset)
    train_vae(dataset, folder / f"vae-{dataset}", changes=CPU_VAES[dataset] if scale == "cpu" else {})
    return load_vae(folder / f"vae-{dataset}")


@cache
def smoke_vae(dataset: str) -> VAE:
    """A VAE with random weights."""
    channels, size, _ = SOURCES[dataset].shape
    recipe = VAE_RECIPES["vae-dense" if channels == 1 else "vae-conv"]
    vae = network_for(recipe.changed(options={**recipe.options, "channels": channels, "size": size}), 0)
    assert isinstance(vae, VAE)
    return vae.eval()


def approximate_laplace(network: nn.Module, dataset: str, scale: str) -> Posterior:
    """A Laplace approximation of the last layer at one network of the ensemble."""
    data = open_data(dataset, "train", scale).sample(LAPLACE_IMAGES)
    assert data.labels is not None
    parts = [slice(start, start + LAPLACE_BATCH) for start in range(0, len(data), LAPLACE_BATCH)]
    batches = [(data.batch(rows), data.labels[rows]) for rows in parts]
    trainable = deepcopy(network).requires_grad_(True)  # networks from a file are frozen
    return fit_laplace(trainable, batches, samples=LAPLACE_SAMPLES)


KINDS: dict[str, Callable[[nn.Module, str, str], Posterior]] = {
    "single": lambda network, _dataset, _scale: (network,),
    "laplace": approximate_laplace,
}
"""Posteriors that are made of the ensemble's first network."""
