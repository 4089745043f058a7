"""From a name, a function or a Captum class, with a user's options, to an attributor that needs nothing more."""

import inspect
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from dubium.attribution._captum import captum_attributor
from dubium.errors import UnknownNameError, lookup, unknown
from dubium.types import Attributor

CONTEXT = ("memory", "seed", "progress", "signed", "extras")
"""Arguments that the caller of a method supplies, not its user; a method names those that it wants."""


def attributor(what: object, table: Mapping[str, Attributor], noun: str) -> tuple[str, Attributor]:
    """The method called `what`, or `what` itself if it is one; with a name to report."""
    if isinstance(what, type) and callable(getattr(what, "attribute", None)):
        return f"captum.{what.__name__}", captum_attributor(what)
    if callable(what) and not isinstance(what, type):
        return getattr(what, "__name__", type(what).__name__), what
    return str(what), lookup(noun, table, what)


def options_of(function: Callable[..., Any]) -> dict[str, Any]:
    """A method's own options and their defaults."""
    parameters = inspect.signature(function).parameters.values()
    return {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY and p.name not in CONTEXT}


def check_options(name: str, known: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    for option in given:
        if option not in known:
            raise UnknownNameError(unknown(f"option of {name!r}", option, known))


def bound(function: Attributor, options: Mapping[str, Any], context: Mapping[str, Any]) -> Attributor:
    """The method with its options, and with as much of the context as it names."""
    wanted = inspect.signature(function).parameters
    return partial(function, **options, **{name: value for name, value in context.items() if name in wanted})
