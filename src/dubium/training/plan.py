"""What a run was asked to do, as plain data; the same command finds it again and goes on."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from hashlib import sha256
from math import ceil
from pathlib import Path
from typing import Any

import torch

from dubium.data import Dataset
from dubium.errors import FileFormatError, OptionError
from dubium.files import write_json
from dubium.training.recipe import Recipe
from dubium.training.seeds import seed_for

SETTINGS = "training.json"
KINDS = ("ensemble", "snapshot", "hyper-ensemble", "mc-dropout", "swag", "laplace", "sghmc", "vi")
SEPARATE = ("ensemble", "hyper-ensemble")  # a training run per member; the others train one network


@dataclass(frozen=True)
class Plan:
    """`members`: how many networks the posterior has, trained or drawn; `data`: what tells training sets apart."""

    dataset: str
    posterior: str
    members: int
    scale: str
    recipe: Recipe
    seed: int
    threads: int
    data: Mapping[str, Any]
    device: str = "cpu"

    def __post_init__(self) -> None:
        if self.members < 1:
            raise OptionError(f"members is {self.members}; a posterior has at least one network.")

    @property
    def runs(self) -> int:
        """How many networks are trained."""
        return self.members if self.posterior in SEPARATE else 1

    def recipe_of(self, index: int) -> Recipe:
        """The recipe of one network: a cycle a member for snapshots, a tail to collect from for SWAG, variety."""
        if self.posterior == "snapshot":
            epochs = self.members * ceil(self.recipe.epochs / self.members)
            return self.recipe.changed(epochs=epochs, cycles=self.members, milestones=())
        if self.posterior == "swag" and not self.recipe.tail:
            tail = max(5, self.recipe.epochs // 4)
            return self.recipe.changed(epochs=self.recipe.epochs + tail, tail=tail, tail_lr=self.recipe.lr / 5)
        return varied(self.recipe, self.seed, index) if self.posterior == "hyper-ensemble" else self.recipe

    def seed_of(self, index: int) -> int:
        return seed_for(self.seed, "member", index)

    def to_json(self) -> dict[str, Any]:
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        return {**values, "recipe": self.recipe.to_json(), "data": dict(self.data)}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "Plan":
        return cls(**{**values, "recipe": Recipe.from_json(values["recipe"])})


def varied(recipe: Recipe, seed: int, index: int) -> Recipe:
    """A hyper-ensemble's member (Wenzel et al., 2020, arXiv:2006.13570); the first has the recipe's own values."""
    if index == 0:
        return recipe
    draws = torch.rand(3, generator=torch.Generator().manual_seed(seed_for(seed, "hyper", index))).tolist()
    options = dict(recipe.options)
    if recipe.architecture in ("cnn", "cnn3"):
        options["dropout"] = round(0.1 + 0.5 * draws[2], 3)
    lr = float(f"{recipe.lr * 10 ** (0.75 * draws[0] - 0.5):.3g}")
    return recipe.changed(lr=lr, weight_decay=float(f"{10 ** (2 * draws[1] - 5):.3g}"), options=options)


def start_or_continue(folder: Path, plan: Plan) -> Plan:
    """Write the settings of a new run; of one that was begun, take its number of threads and refuse other settings."""
    path = folder / SETTINGS
    if not path.exists():
        if (folder / "posterior.json").exists():
            raise OptionError(f"{folder} holds a posterior that was not trained there. Use another folder.")
        write_json(path, plan.to_json())
        return plan
    try:
        values = json.loads(path.read_text())
        begun = Plan.from_json(values)
    except (ValueError, KeyError, TypeError) as error:
        raise FileFormatError(f"{path} is damaged or not of a training run ({error}). Use another folder.") from error
    wanted, found = plan.to_json(), begun.to_json()
    other = [
        f"{name} {_short(found[name], wanted[name])}"
        for name in wanted
        if name != "threads" and found[name] != wanted[name]
    ]
    if other:
        raise OptionError(
            f"{folder} was begun with other settings: {'; '.join(other)}. Give the same to go on, or another folder."
        )
    return begun


def _short(found: Any, wanted: Any) -> str:
    if isinstance(found, dict) and isinstance(wanted, dict):
        names = [name for name in {**found, **wanted} if found.get(name) != wanted.get(name)]
        return ", ".join(f"{name} {found.get(name)!r}, not {wanted.get(name)!r}" for name in names)
    return f"{found!r}, not {wanted!r}"


def fingerprint(data: Dataset) -> dict[str, Any]:
    """What tells this training set from another."""
    digest = sha256(data.images.contiguous().numpy().data)
    if data.labels is not None:
        digest.update(data.labels.contiguous().numpy().data)
    return {"images": len(data), "shape": list(data.shape), "sha256": digest.hexdigest()}
