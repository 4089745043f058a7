"""From a name, a function or a Captum class, with a user's options, to a method that needs nothing more."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import wraps
from importlib import import_module
from typing import Any

import torch
from torch import nn

from dubium.attribution._captum import captum_attributor
from dubium.attribution._context import Context
from dubium.attribution._target import target_part
from dubium.errors import UnknownNameError, lookup, unknown
from dubium.registry import PLAIN_PREPARATION, PREPARATIONS, SCALED
from dubium.types import Attribution, Attributor, Images, Maps, Posterior, Target

CONTEXT = "context"


@dataclass(frozen=True)
class Method:
    """An attributor with its options: what a user asked for."""

    name: str
    function: Attributor
    options: Mapping[str, Any]
    preparation: str = PLAIN_PREPARATION  # where the `PreparedRelevance` that it becomes is defined
    is_scaled: bool = False  # whether its maps are to be scaled to the scores

    def __call__(self, network: nn.Module, x: Images, target: Target, context: Context) -> Attribution:
        """The maps of each target, and whatever else the method finds."""
        wants_context = CONTEXT in inspect.signature(self.function).parameters
        found = self.function(network, x, target, **self.options, **({CONTEXT: context} if wants_context else {}))
        return found if isinstance(found, Attribution) else Attribution(found, {})

    def prepare(self, networks: Posterior, x: Images, context: Context) -> Any:
        """This method as the relevance of UA-Backprop: a `dubium.attribution._prepared.PreparedRelevance`."""
        return load_function(self.preparation)(self, networks, x, context)


def resolve_method(what: object, table: Mapping[str, str], noun: str, options: Mapping[str, Any]) -> Method:
    """The method of the table that is called `what`, or `what` itself if it is one, with its options."""
    what = next((name for name, path in table.items() if callable(what) and load_function(path) is what), what)
    preparation = PLAIN_PREPARATION
    if isinstance(what, type) and callable(getattr(what, "attribute", None)):
        name, function = f"captum.{what.__name__}", image_by_image(captum_attributor(what))
    elif callable(what) and not isinstance(what, type):
        name, function = getattr(what, "__name__", type(what).__name__), image_by_image(what)
    else:
        name, function = str(what), load_function(lookup(noun, table, what))
        preparation = PREPARATIONS.get(name, PLAIN_PREPARATION)
    defaults = options_of(function)
    check_options(name, defaults, options)
    return Method(name, function, {**defaults, **options}, preparation, name in SCALED and name in table)


def load_function(path: str) -> Attributor:
    """The function that is defined at "package.module:name"."""
    module, _, name = path.partition(":")
    function: Attributor = getattr(import_module(module), name)
    return function


def image_by_image(function: Attributor) -> Attributor:
    """A user's function, called image by image where the target selects different classes for each image.

    The function then always gets a target that is one function of the logits, as its author expects.
    """

    @wraps(function)
    def attribute(network: nn.Module, x: Images, target: Target, **options: Any) -> Maps:
        if not getattr(target, "differs_by_image", False):
            maps: Maps = function(network, x, target, **options)
            return maps
        parts = [slice(b, b + 1) for b in range(len(x))]
        return torch.cat([function(network, x[one], target_part(target, one), **options) for one in parts])

    return attribute


def options_of(function: Callable[..., Any]) -> dict[str, Any]:
    """A method's own options and their defaults."""
    parameters = inspect.signature(function).parameters.values()
    return {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY and p.name != CONTEXT}


def check_options(name: str, known: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    for option in given:
        if option not in known:
            raise UnknownNameError(unknown(f"option of {name!r}", option, known))
