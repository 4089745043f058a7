"""The recipe of a training, as plain data."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from dubium.errors import OptionError, unknown_name_text


@dataclass(frozen=True)
class Recipe:
    """How one network is trained.

    The learning rate falls by `gamma` after each epoch of `milestones`, or, where `cycles` is above 0, along that many
    half cosines from `lr` to 0; in the last `tail` epochs it is `tail_lr`. `crop` is the padding of random crops.
    `images` limits the training set: so many, drawn once. `mean` and `std` standardise the input.
    """

    architecture: str = "cnn"
    options: Mapping[str, Any] = field(default_factory=dict)
    epochs: int = 30
    batch_size: int = 128
    optimizer: str = "sgd"
    lr: float = 0.1
    momentum: float = 0.9
    weight_decay: float = 0.0
    milestones: tuple[int, ...] = ()
    gamma: float = 0.1
    cycles: int = 0
    tail: int = 0
    tail_lr: float = 0.01
    crop: int = 0
    flip: bool = False
    images: int | None = None
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        for name, lowest in (
            ("epochs", 1),
            ("batch_size", 1),
            ("cycles", 0),
            ("tail", 0),
            ("crop", 0),
            ("weight_decay", 0),
        ):
            if not getattr(self, name) >= lowest:
                raise OptionError(f"{name} is {getattr(self, name)}; it must be at least {lowest}.")
        if not (math.isfinite(self.lr) and self.lr > 0):
            raise OptionError(f"lr is {self.lr}; a learning rate is above 0.")
        if self.images is not None and self.images < 1:
            raise OptionError(f"images is {self.images}; leave it out to train on all of them.")
        if self.optimizer not in ("sgd", "adam"):
            raise OptionError(f"optimizer is {self.optimizer!r}; expected 'sgd' or 'adam'.")
        if self.cycles and self.milestones:
            raise OptionError("cycles and milestones are two ways to lower the learning rate; give one of them.")
        if (self.mean is None) != (self.std is None):
            raise OptionError("mean and std belong together; give both or neither.")

    def learning_rate(self, epochs_done: float) -> float:
        """The learning rate after so many epochs, fractions included.

        >>> Recipe(lr=0.1, milestones=(30,), gamma=0.5).learning_rate(30.5)
        0.05
        """
        if self.tail and epochs_done >= self.epochs - self.tail:
            return self.tail_lr
        if self.cycles:
            length = (self.epochs - self.tail) / self.cycles
            return self.lr / 2 * (1 + math.cos(math.pi * (epochs_done % length) / length))
        return self.lr * self.gamma ** sum(epochs_done >= milestone for milestone in self.milestones)

    def changed(self, **values: Any) -> "Recipe":
        """A copy with some values replaced; a value of None changes nothing."""
        known = [f.name for f in fields(self)]
        for name in values:
            if name not in known:
                raise OptionError(unknown_name_text("training option", name, known))
        return replace(self, **{name: value for name, value in values.items() if value is not None})

    def to_json(self) -> dict[str, Any]:
        values = {**asdict(self), "options": dict(self.options)}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "Recipe":
        return cls().changed(**{name: tuple(v) if isinstance(v, list) else v for name, v in values.items()})


def check_recipe(recipe: object, misplaced: Mapping[str, Any]) -> None:
    """Raise an error unless the recipe is one, and no value of one was given beside it."""
    for name in misplaced.keys() - {f.name for f in fields(Recipe)}:
        raise OptionError(f"There is no argument {name!r}, nor has a Recipe a value of this name.")
    if misplaced or not isinstance(recipe, Recipe):
        found = f"{', '.join(misplaced)} stands beside it" if misplaced else f"recipe is a {type(recipe).__name__}"
        values = misplaced or (recipe if isinstance(recipe, Mapping) else {"epochs": 10})
        example = ", ".join(f"{name}={value!r}" for name, value in values.items())
        raise OptionError(f"A Recipe says how to train, but {found}. Give recipe=dubium.training.Recipe({example}).")
