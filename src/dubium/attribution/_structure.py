"""Of what modules a network is made."""

from collections.abc import Iterable
from types import BuiltinFunctionType, FunctionType, NoneType

from torch import nn

from dubium.attribution._autograd.nodes import disable_torch_function

PLAIN = (bool, int, float, str, NoneType)
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
    found = list[object]()
    with disable_torch_function():
        for module in modules:
            found.append(type(module))
            for name, value in vars(module).items():
                if name in IGNORED:
                    continue
                if isinstance(value, PLAIN):
                    found.append((name, value))
                elif isinstance(value, FunctionType | BuiltinFunctionType):
                    is_closure = getattr(value, "__closure__", None) is not None
                    found.append((name, value if is_closure else getattr(value, "__code__", value)))
                elif isinstance(value, tuple | list) and all(isinstance(item, PLAIN) for item in value):
                    found.append((name, *value))
            tensors = (*module._parameters.values(), *module._buffers.values())
            found += [None if tensor is None else (tensor.shape, tensor.dtype) for tensor in tensors]
    return tuple(found)
