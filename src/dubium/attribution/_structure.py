"""Of what modules a network is made."""

from collections.abc import Iterable, Mapping
from enum import Enum
from types import BuiltinFunctionType, FunctionType, NoneType
from typing import Any

import torch
from torch import Tensor, nn

from dubium.attribution._autograd.nodes import disable_torch_function

PLAIN = (bool, int, float, complex, str, bytes, NoneType, type, torch.dtype, torch.device, Enum)
"""Types of values that are compared as they are."""

BOOKKEEPING = frozenset(vars(nn.Module()))
"""Attributes by which torch keeps a module's parameters, hooks, children and mode; buffers among them."""
IGNORED = BOOKKEEPING | {"seed"}  # of a dropout mask: it changes neither sizes nor wiring


def list_modules(network: nn.Module) -> list[nn.Module]:
    """A network and all modules in it, outer ones first; in less time than `network.modules()`, which names them."""
    modules, seen = [network], {network}
    for module in modules:
        for child in module._modules.values():
            if child is not None and child not in seen:
                seen.add(child)
                modules.append(child)
    return modules


def network_structure(modules: Iterable[nn.Module]) -> tuple[object, ...]:
    """What networks of one architecture have in common, from their modules: classes, options, shapes of tensors.

    Equal ones compute tensors of the same sizes, wired in the same way.
    """
    found, described = list[object](), dict[int, int]()
    with disable_torch_function():
        for module in modules:
            found.append(type(module))
            for name, value in vars(module).items():
                if name not in IGNORED:
                    found.append((name, describe_option(value, described)))
            tensors = (*module._parameters.values(), *module._buffers.values())
            found += [None if tensor is None else (tensor.shape, tensor.dtype) for tensor in tensors]
    return tuple(found)


def describe_option(value: Any, described: dict[int, int], depth: int = 3) -> object:
    """An attribute of a module as a hashable value; of an object its attributes, and those of objects in it.

    Args:
        described: by identity, the number of each collection and object that was described: a configuration that all
            modules have is described once.
        depth: how many levels of objects are looked into.
    """
    if isinstance(value, PLAIN):
        return value
    if isinstance(value, FunctionType | BuiltinFunctionType):
        is_closure = getattr(value, "__closure__", None) is not None
        return value if is_closure else getattr(value, "__code__", value)
    if isinstance(value, Tensor):
        return value.shape, value.dtype
    if depth == 0 or isinstance(value, nn.Module):
        return type(value)
    if id(value) in described:
        return "described", described[id(value)]
    described[id(value)] = len(described)
    if isinstance(value, Mapping):
        items: Iterable[Any] = [part for name, item in value.items() for part in (str(name), item)]
    elif isinstance(value, tuple | list | set | frozenset):
        items = value
    else:
        items = [part for name, item in getattr(value, "__dict__", {}).items() for part in (name, item)]
    return type(value), *[describe_option(item, described, depth - 1) for item in items]
