"""The settings of a training run as plain data, from which the same command continues it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from dubium.data import Dataset, load
from dubium.data.fit import Preprocessing
from dubium.errors import FileFormatError, OptionError
from dubium.files import check_same_settings, write_json
from dubium.image_checks import check_input_shape
from dubium.posterior_kinds import POSTERIOR_KINDS
from dubium.posteriors.files.record import BEGUN
from dubium.reading import read_json
from dubium.seeds import seed_for
from dubium.training.recipe import Recipe


@dataclass(frozen=True)
class Plan:
    """All settings of a training run.

    Args:
        posterior: a kind of `POSTERIOR_KINDS`, or "vae".
        members: the number of networks of the posterior, trained or drawn.
        data: the `dataset_fingerprint` of the training set.
        input_shape: (C, H, W) that images are brought to; None for images as they are.
    """

    dataset: str
    posterior: str
    members: int
    scale: str
    recipe: Recipe
    seed: int
    threads: int
    data: Mapping[str, Any]
    device: str = "cpu"
    input_shape: Sequence[int] | None = None

    def __post_init__(self) -> None:
        if self.members < 1:
            raise OptionError(f"members is {self.members}; a posterior has at least one network.")

    @property
    def runs(self) -> int:
        """The number of networks that are trained."""
        kind = POSTERIOR_KINDS.get(self.posterior)  # None of a VAE
        return self.members if kind is not None and kind.trains_each_member else 1

    def seed_of(self, index: int) -> int:
        """The seed of the network `index`."""
        return seed_for(self.seed, "member", index)

    def to_json(self) -> dict[str, Any]:
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        if self.input_shape is None:
            del values["input_shape"]  # as in runs of earlier versions
        return {**values, "recipe": self.recipe.to_json(), "data": dict(self.data)}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "Plan":
        return cls(**{**values, "recipe": Recipe.from_json(values["recipe"])})


def preprocessing_to(shape: Sequence[int] | None) -> Preprocessing | None:
    """How images are brought to a shape (C, H, W) that the user named; None where none is."""
    return None if shape is None else Preprocessing(check_input_shape(shape))


def load_images(plan: Plan, split: str) -> Dataset:
    """The plan's images of a split, brought to its shape; files of a folder that cannot be read are left out."""
    return load(plan.dataset, split, skip=True, preprocessing=preprocessing_to(plan.input_shape))


def start_or_continue(folder: Path, plan: Plan) -> Plan:
    """Write the settings of a new run, or return those of the run that the folder has, which must be the same.

    The number of threads may differ; the run continues with its own.
    """
    path = folder / BEGUN
    if not path.exists():
        if (folder / "posterior.json").exists():
            raise OptionError(f"{folder} holds a posterior that was not trained there. Use another folder.")
        write_json(path, plan.to_json())
        return plan
    try:
        begun = Plan.from_json(read_json(path))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise FileFormatError(f"{path} is damaged or not of a training run ({error}). Use another folder.") from error
    advice = "Give the same settings to go on, or use another folder."
    check_same_settings(folder, begun.to_json(), {**plan.to_json(), "threads": begun.threads}, advice=advice)
    return begun
