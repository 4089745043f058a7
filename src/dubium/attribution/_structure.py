"""Of what modules a network is made."""

from collections.abc import Iterable
from types import NoneType

from torch import nn


def list_modules(network: nn.Module) -> list[nn.Module]:
    """A network and all modules in it, outer ones first; in less time than `network.modules()`, which names them."""
    modules, seen = [network], {network}
    for module in modules:
        for child in module._modules.values():
            if child is not None and child not in seen:
                seen.add(child)
                modules.append(child)
    return modules


def plain_attributes(modules: Iterable[nn.Module]) -> list[tuple[str, object]]:
    """The flags, numbers and words of modules, by which networks of the same classes may differ."""
    plain = (bool, int, float, str, NoneType)
    return [(name, value) for module in modules for name, value in vars(module).items() if isinstance(value, plain)]


def network_structure(network: nn.Module) -> tuple[object, ...]:
    """What networks of one architecture have in common: equal ones compute tensors of the same sizes."""
    modules = list_modules(next(network.modules()))  # a wrapper of ours that computes nothing shows the network itself
    tensors = [tensor for module in modules for tensor in (*module._parameters.values(), *module._buffers.values())]
    sizes_of_torch = [value for module in modules for value in vars(module).values() if is_size(value)]
    return (
        *map(type, modules),
        *plain_attributes(modules),
        *sizes_of_torch,
        *[None if tensor is None else (tensor.shape, tensor.dtype) for tensor in tensors],
    )


def is_size(value: object) -> bool:
    """Whether this is a kernel size, a stride, a shape, ..."""
    return isinstance(value, tuple) and all(isinstance(number, int) for number in value)
