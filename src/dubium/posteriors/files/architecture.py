"""What a network is built from: a name of `dubium.models`, an import path, a function, or a network to copy."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

import torch
from torch import nn

from dubium.errors import FileFormatError, OptionError, PosteriorTypeError
from dubium.models import ARCHITECTURES, build
from dubium.posteriors.weights import snapshot

Architecture = str | Mapping[str, Any] | nn.Module | Callable[[], nn.Module]
"""A name ("cnn"), an import path ("package.module:factory"), {"name" or "path": ..., "options": {...}}, a function
without arguments, or a network, which is copied."""


def build_network(architecture: Architecture) -> nn.Module:
    """Build a network to load weights into; the state of torch's random numbers is not changed.

    An import path is imported: pass only what the user typed, never what a file says.
    """
    with torch.random.fork_rng(devices=[]):
        network = _build(architecture)
    if not isinstance(network, nn.Module):
        raise PosteriorTypeError(
            f"The architecture {architecture!r} gave a {type(network).__name__}; a torch.nn.Module is needed."
        )
    return network


def _build(architecture: Architecture) -> Any:
    if isinstance(architecture, nn.Module):
        return snapshot(architecture)
    if isinstance(architecture, str | Mapping):
        described = describe_architecture(architecture)
        options = described["options"]
        if "name" in described:
            return build(described["name"], **options)
        try:
            return import_path(described["path"])(**options)
        except TypeError as error:
            raise OptionError(
                f"The architecture {described['path']!r} cannot be built with {options}: {error}. Give options in "
                "{'path': ..., 'options': {...}}, or a function without arguments."
            ) from error
    return architecture()


def import_path(path: str, noun: str = "architecture") -> Callable[..., Any]:
    """The function or class called `path`, "package.module:name"; `noun` is what errors call it."""
    module, _, name = path.partition(":")
    try:
        found: Any = import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError, ValueError) as error:
        raise OptionError(
            f"The {noun} {path!r} cannot be imported: {error}. Expected 'package.module:factory', importable "
            "from where Python was started."
        ) from error
    if not callable(found):
        raise OptionError(f"The {noun} {path!r} is a {type(found).__name__}, not a function or class.")
    factory: Callable[..., nn.Module] = found
    return factory


def describe_architecture(architecture: Architecture) -> dict[str, Any]:
    """The architecture as JSON: {"name" or "path": ..., "options": {...}}; of a function or network its import path."""
    if isinstance(architecture, str):
        return {"path" if ":" in architecture else "name": architecture, "options": {}}
    if isinstance(architecture, Mapping):
        key = next((key for key in ("name", "path") if isinstance(architecture.get(key), str)), None)
        options = architecture.get("options", {})
        if key is None or not isinstance(options, Mapping) or not all(isinstance(name, str) for name in options):
            raise OptionError(
                f"The architecture is {dict(architecture)!r}; expected {{'name': ..., 'options': {{...}}}} with one of "
                f"{', '.join(ARCHITECTURES)}, or {{'path': 'package.module:factory', 'options': {{...}}}}."
            )
        return {key: architecture[key], "options": dict(options)}
    origin = type(architecture) if isinstance(architecture, nn.Module) else architecture
    name = getattr(origin, "__qualname__", type(origin).__qualname__)
    return {"path": f"{getattr(origin, '__module__', '?')}:{name}", "options": {}}


def stored_architecture(described: object, file: str) -> dict[str, Any]:
    """The architecture that a file names, which must be one of dubium's own: a file never causes an import."""
    if isinstance(described, Mapping) and isinstance(described.get("path"), str):
        path = described["path"]
        raise OptionError(
            f"{file} was saved from an architecture of yours, {path!r}, and code is never imported because a file says "
            f"so. If you trust it, pass architecture={path!r}, or a function that builds the network."
        )
    if described is None:
        raise OptionError(f"{file} does not say what its networks are. Pass architecture='package.module:factory'.")
    if not isinstance(described, Mapping) or described.get("name") not in ARCHITECTURES:
        raise FileFormatError(
            f"{file} names the architecture {described!r}; expected one of {', '.join(ARCHITECTURES)}. "
            "Pass architecture= to say what it is."
        )
    return describe_architecture(described)
