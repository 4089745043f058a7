"""What a network is built from: a name of `dubium.models`, an import path, a function, or a network to copy."""

from collections.abc import Callable, Mapping, Sized
from contextlib import nullcontext
from difflib import get_close_matches
from importlib import import_module
from inspect import signature
from pathlib import Path
from typing import Any

import torch
from torch import nn

from dubium.errors import DubiumError, FileFormatError, OptionError, PosteriorTypeError
from dubium.models.architectures import ARCHITECTURES, build, stored_outline
from dubium.posteriors.weights import snapshot

Architecture = str | Mapping[str, Any] | nn.Module | Callable[[], nn.Module]
"""A name ("cnn"), an import path ("package.module:factory"), {"name" or "path": ..., "options": {...}}, a function
without arguments, or a network, which is copied."""


def build_network(architecture: Architecture, *, outline: bool = False) -> nn.Module:
    """Build a network to load weights into; the state of torch's random numbers is not changed.

    An import path is imported: pass only what the user typed, never what a file says.

    Args:
        outline: with the shapes of its tensors alone; only one of dubium's own can be had without memory for them.
    """
    described = describe_architecture(architecture) if isinstance(architecture, str | Mapping) else {}
    device = torch.device("meta") if outline and "name" in described else nullcontext()
    with torch.random.fork_rng(devices=[]), device:
        network: Any
        if "name" in described:
            network = build(described["name"], **described["options"])
        elif isinstance(architecture, str | Mapping):
            network = build_imported(**described)
        elif isinstance(architecture, nn.Module):
            network = snapshot(architecture)
        else:
            network = build_by_function(architecture)
    if not isinstance(network, nn.Module):
        name = describe_architecture(architecture)["path"]
        hint = " It gives networks that need no weight files: leave these out." if isinstance(network, Sized) else ""
        raise PosteriorTypeError(
            f"The architecture {name!r} gave a {type(network).__name__}; a torch.nn.Module is needed.{hint}"
        )
    return network


def build_by_function(factory: Callable[[], nn.Module]) -> Any:
    """What a function without arguments returns; what it raises is said to be its."""
    try:
        return factory()
    except (DubiumError, MemoryError):
        raise
    except Exception as error:
        name = describe_architecture(factory)["path"]
        raise OptionError(
            f"The architecture {name!r} raised {type(error).__name__}: {error}.{arguments_hint(factory)}"
        ) from error


def arguments_hint(factory: Callable[..., Any]) -> str:
    """How a function that needs arguments becomes one that needs none; "" where it needs none."""
    try:
        signature(factory).bind()
    except TypeError:
        return (
            " A function without arguments is needed. In Python: lambda: timm.create_model('resnet18', num_classes=10),"
            " for example; on the command line, write such a function in a file mine.py, and name it mine:function."
        )
    except ValueError:  # a function that is not written in Python
        pass
    return ""


def build_imported(path: str, options: Mapping[str, Any]) -> Any:
    """What the function or class at `path` returns; of a network a copy."""
    found = import_path(path)
    try:
        return snapshot(found) if isinstance(found, nn.Module) else found(**options)
    except TypeError as error:
        raise OptionError(
            f"The architecture {path!r} cannot be built with {options}: {error}. Give options in "
            "{'path': ..., 'options': {...}}, or a function without arguments."
        ) from error
    except (DubiumError, MemoryError):
        raise
    except Exception as error:
        raise OptionError(f"The architecture {path!r} raised {type(error).__name__}: {error}.") from error


def import_path(path: str, noun: str = "architecture") -> Callable[..., Any]:
    """The function or class called `path`, "package.module:name"; `noun` is what errors call it."""
    module, _, name = path.partition(":")
    found: Any = None
    part = ""
    try:
        found = import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError, ValueError) as error:
        near = get_close_matches(part, dir(found), n=1) if part else []
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise OptionError(
            f"The {noun} {path!r} cannot be imported: {error}.{hint} Expected 'package.module:factory', importable "
            "from where Python was started."
        ) from error
    except Exception as error:  # of the user's own code, or its syntax
        raise OptionError(
            f"The {noun} {path!r} cannot be imported: {module} raised {type(error).__name__}: {error}."
        ) from error
    if not callable(found):
        raise OptionError(
            f"The {noun} {path!r} is a {type(found).__name__}, not a function or class. Name a function that returns "
            "it."
        )
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
        path = "mine:network" if path.startswith("torch.") else path  # which a network of layers alone has
        raise OptionError(
            f"{file} was saved from an architecture of yours, {described['path']!r}, and code is never "
            f"imported because a file says so. If you trust it, name it, or a function that builds the network: "
            f"--posterior {path} on the command line, or {path}@{Path(file).parent} in place of the folder; in Python, "
            f"dubium.load_posterior(folder, architecture={path!r}), and the same of explain_dataset and evaluate."
        )
    if described is None:
        raise OptionError(
            f"{file} does not say what its networks are. Name the function that builds one: --posterior module:factory "
            "on the command line, dubium.load_posterior(folder, architecture='module:factory') in Python."
        )
    name = described.get("name") if isinstance(described, Mapping) else None
    if not isinstance(described, Mapping) or not isinstance(name, str) or name not in ARCHITECTURES:
        raise FileFormatError(
            f"{file} names the architecture {described!r:.200}; expected one of {', '.join(ARCHITECTURES)}. "
            "Pass architecture= to say what it is."
        )
    stored_outline(ARCHITECTURES[name], described.get("options", {}), file)
    return describe_architecture(described)
