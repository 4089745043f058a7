"""What of a network is in none of its parameters, saved buffers or descriptions: attributes, other buffers, code."""

import dis
import inspect
import sys
from collections.abc import Iterator, Mapping
from dataclasses import is_dataclass
from functools import cache, partial
from hashlib import sha256
from types import BuiltinFunctionType, CodeType, FunctionType, SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

OF_EVERY_MODULE = set(vars(nn.Module()))
DEPTH = 6  # of collections in collections
SETTERS = {"setattr", "register_buffer"}  # take the name of what they set as a text


def list_attributes(network: nn.Module) -> Iterator[tuple[str, str, str]]:
    """Module, name and text of each attribute that may change the output and that `repr` and weights do not show.

    Not those that the forward pass sets: counters, caches.
    """
    passing = {kind: names_set_by_forward(kind) for kind in {type(module) for module in network.modules()}}
    for path, module in network.named_modules():
        unsaved = {name: module._buffers.get(name) for name in sorted(module._non_persistent_buffers_set)}
        found: Mapping[str, Any] = unsaved if describes_itself(module) else {**vars(module), **unsaved}
        for name, value in found.items():
            if name not in OF_EVERY_MODULE and name not in passing[type(module)]:
                text = attribute_text(value)
                if text:
                    yield path, name, text


def list_code(network: nn.Module) -> set[str]:
    """The code of the classes of a network's modules that are neither torch's nor dubium's."""
    known = {"torch", "dubium", *sys.stdlib_module_names}
    bases = {base for module in network.modules() for base in type(module).__mro__}
    return {class_code(base) for base in bases if base.__module__.partition(".")[0] not in known - {"__main__"}}


@cache
def class_code(kind: type) -> str:
    """Name, methods' source and plain attributes of a class; of a method that was typed in a console, its bytes."""
    parts = [kind.__qualname__]  # without its module, which is "__main__" in a script
    for name, value in vars(kind).items():
        function = getattr(value, "fget", None) or getattr(value, "__func__", value)
        if isinstance(function, FunctionType):
            parts.append(function_code(function))
        elif not name.startswith("__"):
            parts.append(f"{name} {attribute_text(value)}")
    return "\n".join(parts)


def function_code(function: FunctionType) -> str:
    """A function's source; of one that was typed in a console, its bytes."""
    try:
        return inspect.getsource(function)
    except (OSError, TypeError):
        return function.__code__.co_code.hex()


def describes_itself(module: nn.Module) -> bool:
    """Whether all that a module computes by is in its text, its weights and its seed, as of most layers of torch's."""
    kind = type(module)
    has_text = kind.__module__.startswith("torch.nn.") and kind.extra_repr is not nn.Module.extra_repr
    return has_text or kind.__module__ == "dubium.posteriors.mc_dropout"


def tensor_digest(tensor: Tensor) -> str:
    """SHA-256 of a tensor's type, shape and values."""
    digest = sha256(f"{tensor.dtype}{tuple(tensor.shape)}".encode())
    digest.update(tensor_bytes(tensor))
    return digest.hexdigest()


def tensor_bytes(tensor: Tensor) -> bytes:
    """The values in row-major order."""
    return bytes(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data)


def attribute_text(value: object, depth: int = DEPTH) -> str:
    """Numbers, words, tensors, functions, and collections of these as a text that is the same in the next process.

    Empty for other objects, which may be anything, and for collections that are empty or have such an object, or
    collections in collections in ... more than `depth` times.
    """
    if isinstance(value, Tensor):
        return tensor_digest(value) if value.layout == torch.strided and not value.is_meta else ""
    if isinstance(value, np.generic | np.ndarray):
        return f"{value.dtype}{value.shape}{value.tolist()}" if value.dtype != object else ""
    if isinstance(value, bool | int | float | complex | str | bytes | torch.dtype):
        return repr(value)
    if isinstance(value, FunctionType | BuiltinFunctionType):
        return function_text(value)
    if isinstance(value, partial):
        value = value.func, *value.args, *value.keywords.items()
    elif isinstance(value, SimpleNamespace) or (is_dataclass(value) and not isinstance(value, type)):
        value = getattr(value, "__dict__", None)
    items = list(value.items()) if isinstance(value, dict) else value
    if not isinstance(items, tuple | list) or not depth or any(isinstance(item, Tensor) for item in items):
        return ""  # a list of tensors is a cache, mostly
    is_nothing = [item is None or (isinstance(item, tuple | list | dict) and not item) for item in items]
    texts = [repr(item) if no else attribute_text(item, depth - 1) for item, no in zip(items, is_nothing, strict=True)]
    return f"({', '.join(texts)})" if texts and all(texts) else ""


def function_text(function: Any) -> str:
    """Where a function is defined; with its code and the values that it holds, if it was made inside another."""
    name = f"{function.__module__}.{function.__qualname__}"
    if not isinstance(function, FunctionType) or not {"<lambda>", "<locals>"} & set(function.__qualname__.split(".")):
        return name
    code, cells = function.__code__, function.__closure__ or ()
    constants = [repr(value) for value in code.co_consts if not isinstance(value, CodeType)]
    held = [*(cell.cell_contents for cell in cells), *(function.__defaults__ or ())]
    return f"{name} {code.co_code.hex()} {constants} {code.co_names} {[*map(attribute_text, held)]}"


def names_set_by_forward(kind: type[nn.Module]) -> set[str]:
    """Attributes that `forward` sets, or a method of the class that it calls."""
    methods = [vars(base)["forward"] for base in kind.__mro__ if "forward" in vars(base)]
    codes, called, names = [getattr(method, "__code__", None) for method in methods], set(dir(nn.Module)), set[str]()
    for code in codes:  # it grows
        if code is None:
            continue
        codes += [constant for constant in code.co_consts if isinstance(constant, CodeType)]
        names |= {step.argval for step in dis.get_instructions(code) if step.opname == "STORE_ATTR"}
        if SETTERS & set(code.co_names):
            names |= {constant for constant in code.co_consts if isinstance(constant, str)}
        codes += [getattr(getattr(kind, name, None), "__code__", None) for name in code.co_names if name not in called]
        called |= set(code.co_names)
    return names
