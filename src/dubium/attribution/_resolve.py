"""From a name, a function or a Captum class, with a user's options, to a method that needs nothing more."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import wraps
from importlib import import_module
from typing import Any

import torch
from torch import nn

from dubium.attribution._captum import captum_attributor, captum_name, is_captum
from dubium.attribution._context import Context
from dubium.attribution._target import target_part
from dubium.errors import OptionError, UnknownNameError, unknown
from dubium.registry import PLAIN_PREPARATION, PREPARATIONS, REGISTERED, SCALED
from dubium.types import Attribution, Attributor, Images, Maps, Target

CONTEXT = "context"
REQUIRED = object()
"""The default of an option that has none."""


@dataclass(frozen=True)
class Method:
    """An attributor with its options: what a user asked for."""

    name: str
    function: Attributor
    options: Mapping[str, Any]
    preparation: Callable[..., Any]  # makes the `PreparedRelevance` that it becomes for UA-Backprop
    is_scaled: bool = False  # whether its maps are to be scaled to the scores

    def __call__(self, network: nn.Module, x: Images, target: Target, context: Context) -> Attribution:
        """The maps of each target, and whatever else the method finds."""
        wants_context = CONTEXT in inspect.signature(self.function).parameters
        found = self.function(network, x, target, **self.options, **({CONTEXT: context} if wants_context else {}))
        return found if isinstance(found, Attribution) else Attribution(found, {})


def resolve_method(what: object, table: Mapping[str, str], noun: str, options: Mapping[str, Any]) -> Method:
    """The method of the table that is called `what`, or `what` itself if it is one, with its options."""
    what = next((name for name, path in table.items() if callable(what) and load_function(path) is what), what)
    given = what
    if isinstance(what, str) and what in REGISTERED:
        what = REGISTERED[what]
    elif isinstance(what, str) and what not in table and ":" in what:
        what = import_method(what)
    if not isinstance(what, str) and is_captum(what):
        name, function = captum_name(what), image_by_image(captum_attributor(what))
    elif callable(what) and not isinstance(what, type):
        name = getattr(getattr(what, "func", what), "__name__", type(what).__name__)
        check_signature(what, name)
        function = image_by_image(what)
    elif isinstance(what, str) and what in table:
        name, function = what, load_function(table[what])
    else:
        raise UnknownNameError(unknown(noun, what, table))
    is_own = isinstance(what, str)
    name = str(given) if isinstance(given, str) and given in REGISTERED else name
    defaults = options_of(function)
    if noun == "method":  # the options of a relevance are UA-Backprop's too
        check_options(name, defaults, options)
    preparation = load_function(PREPARATIONS.get(name, PLAIN_PREPARATION) if is_own else PLAIN_PREPARATION)
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
    options = {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY and p.name != CONTEXT}
    return {name: REQUIRED if default is inspect.Parameter.empty else default for name, default in options.items()}


def check_options(name: str, known: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    """Whether a method has these options, and is given those that have no default."""
    for option in given:
        if option not in known:
            raise UnknownNameError(unknown(f"option of {name!r}", option, known))
    missing = [option for option, default in known.items() if default is REQUIRED and option not in given]
    if missing:
        raise OptionError(f"{name} needs the option {', '.join(missing)}. It takes {', '.join(known)}.")


def check_signature(function: Callable[..., Any], name: str) -> None:
    """Whether a function of a user's can be called as a method is."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return  # a function of C's
    required = [p for p in signature.parameters.values() if p.kind is p.KEYWORD_ONLY and p.default is p.empty]
    try:
        signature.bind(*[None] * 3, **{p.name: None for p in required})
    except TypeError as error:
        raise OptionError(
            f"{name}{signature} cannot be called as a method: {error}. A method is called with (network, x, target), "
            "and its options by name: `network` is a torch.nn.Module, `x` the images (B, C, H, W), `target` a function "
            "from the network's output to T scores an image, (B, T). It returns maps (B, T, H, W)."
        ) from error


def import_method(path: str) -> Any:
    """What a user names as "package.module:name": a function, or a class of Captum's."""
    try:
        return load_function(path)
    except (ImportError, AttributeError, ValueError) as error:
        raise UnknownNameError(
            f"The method {path!r} cannot be imported: {error}. Expected package.module:name."
        ) from error
