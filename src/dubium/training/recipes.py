"""Recipes by dataset and scale: the paper's (Appendix B.1), and smaller ones for a CPU and for tests.

Where the paper is silent (weight decay, the size of the crop, normalisation of colour images) the choice is ours: none,
4 pixels, and the usual constants.
"""

from collections.abc import Mapping
from inspect import signature
from typing import Any

import numpy as np

from dubium.choices import SCALES as SCALES
from dubium.data import Dataset
from dubium.errors import OptionError, lookup
from dubium.models import ARCHITECTURES
from dubium.training.recipe import Recipe

_SVHN: dict[str, Any] = {"mean": (0.5,) * 3, "std": (0.5,) * 3}
_C10: dict[str, Any] = {"mean": (0.4914, 0.4822, 0.4465), "std": (0.2470, 0.2435, 0.2616)}
_C100: dict[str, Any] = {"mean": (0.5071, 0.4865, 0.4409), "std": (0.2673, 0.2564, 0.2762)}
_SMALL_RESNET: dict[str, Any] = {"architecture": "cifar-resnet", "options": {"depth": 8}}
_SMOKE: dict[str, Any] = {"epochs": 2, "batch_size": 16, "lr": 0.05, "cycles": 1, "images": 512}
_TINY: dict[str, Any] = {"filters": 4, "units": 16, "dropout": 0.1}

RECIPES: dict[str, dict[str, Recipe]] = {
    name: {
        "paper": Recipe(epochs=30, batch_size=128, lr=0.1),
        "cpu": Recipe(epochs=3, batch_size=64, lr=0.05, cycles=1),
        "smoke": Recipe(options=_TINY, **_SMOKE),
    }
    for name in ("mnist", "fashion-mnist")
} | {
    "svhn": {
        "paper": Recipe(**_SVHN, epochs=50, batch_size=64, lr=0.1, milestones=(15, 30), crop=4, flip=True),
        "cpu": Recipe(
            architecture="svhn-cnn",
            mean=_SVHN["mean"],
            std=_SVHN["std"],
            epochs=12,
            batch_size=64,
            lr=0.05,
            cycles=1,
            crop=4,
        ),
        "smoke": Recipe(options=_TINY, **_SVHN, **_SMOKE),
    },
    "cifar-10": {
        "paper": Recipe(
            architecture="resnet18",
            **_C10,
            epochs=100,
            batch_size=128,
            lr=0.1,
            milestones=(30, 60, 90),
            crop=4,
            flip=True,
        ),
        "cpu": Recipe(
            **_SMALL_RESNET, **_C10, epochs=15, batch_size=128, lr=0.2, weight_decay=5e-4, cycles=1, crop=4, flip=True
        ),
        "smoke": Recipe(architecture="cifar-resnet", options={"depth": 8, "width": 4}, **_C10, **_SMOKE),
    },
    "cifar-100": {
        "paper": Recipe(
            architecture="resnet18",
            **_C100,
            epochs=200,
            batch_size=64,
            lr=0.1,
            milestones=(60, 120, 160),
            crop=4,
            flip=True,
        ),
        "cpu": Recipe(
            **_SMALL_RESNET, **_C100, epochs=20, batch_size=128, lr=0.2, weight_decay=5e-4, cycles=1, crop=4, flip=True
        ),
        "smoke": Recipe(architecture="cifar-resnet", options={"depth": 8, "width": 4}, **_C100, **_SMOKE),
    },
}

VAE_RECIPES: dict[str, Recipe] = {
    "vae-dense": Recipe("vae-dense", {"latent": 2}, epochs=50, batch_size=100, optimizer="adam", lr=1e-3),
    "vae-conv": Recipe(
        "vae-conv", {"latent": 128}, epochs=10, batch_size=32, optimizer="adam", lr=5e-3, weight_decay=1e-3
    ),
}


def recipe_for(data: Dataset, scale: str, changes: Mapping[str, Any]) -> Recipe:
    """The recipe for a dataset.

    The user's own images are trained on like MNIST or SVHN, by their number of channels, and never mirrored.

    Args:
        data: the training set; its name selects the recipe, its shape and classes the network's sizes.
        scale: one of `SCALES`.
        changes: values to replace; None changes nothing, those of `options` are added to the recipe's.

    >>> import torch
    >>> data = Dataset(torch.zeros(8, 1, 28, 28), None, ("cat", "dog"), "mine", "train")
    >>> recipe_for(data, "smoke", {"lr": 0.01}).options
    {'filters': 4, 'units': 16, 'dropout': 0.1, 'channels': 1, 'size': 28, 'classes': 2}
    """
    grey = data.shape[0] == 1
    recipe = lookup("scale", RECIPES.get(data.name, RECIPES["mnist" if grey else "svhn"]), scale)
    if data.name not in RECIPES:
        recipe = recipe.changed(architecture="cnn", flip=False)
    changes = {name: value for name, value in changes.items() if value is not None}
    channels = data.shape[0]
    of_all = {name: changes[name] for name in ("mean", "std") if np.size(changes.get(name, ())) == 1}
    changes |= {name: tuple(np.ravel(value).tolist()) * channels for name, value in of_all.items()}
    given = changes.pop("options", {})
    before, recipe = recipe.architecture, recipe.changed(**changes)
    options = dict(recipe.options) if recipe.architecture == before else {}
    return recipe.changed(options={**options, **network_sizes(recipe.architecture, data), **given})


def with_dropout(recipe: Recipe) -> Recipe:
    """The recipe with dropout of 0.2, where the architecture has an option for it that is 0 by default."""
    known = signature(lookup("architecture", ARCHITECTURES, recipe.architecture)).parameters
    if "dropout" in recipe.options or "dropout" not in known or known["dropout"].default > 0:
        return recipe
    return recipe.changed(options={**recipe.options, "dropout": 0.2})


def network_sizes(architecture: str, data: Dataset) -> dict[str, int]:
    """The options of an architecture that follow from the images: channels, size and number of classes."""
    accepted = signature(lookup("architecture", ARCHITECTURES, architecture)).parameters
    channels, height, width = data.shape
    if height != width and "size" in accepted:
        raise OptionError(
            f"The images are {height} x {width}; {architecture} takes square ones. --input-shape "
            f"{channels},{height},{height} brings them to that (input_shape= in Python)."
        )
    known = {"channels": channels, "size": height, "classes": len(data.classes)}
    return {name: value for name, value in known.items() if name in accepted}
