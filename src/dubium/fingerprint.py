"""What a result depends on, as digests and version numbers.

`explain`, `evaluate` and `train` keep them in their folders, and refuse a folder whose fingerprints are others.

Not covered: functions outside of their classes that a user's networks call, the code that a method calls in other
modules, objects of classes of the user's own that a network keeps as attributes, and the versions of libraries.
"""

import inspect
import re
import sys
from collections.abc import Mapping
from functools import partial
from hashlib import sha256
from types import FunctionType
from typing import Any

from torch import Tensor, nn

from dubium.data import Dataset
from dubium.network_attributes import (
    attribute_text,
    function_code,
    list_attributes,
    list_code,
    tensor_bytes,
    tensor_digest,
)
from dubium.option_text import split_method
from dubium.registry import (
    AUTO,
    METHOD_VERSIONS,
    RECOMMENDED,
    RECOMMENDED_OPTIONS,
    REGISTERED,
    UA_BACKPROP,
    load_function,
)
from dubium.types import Posterior

ADDRESS = re.compile(r"0x[0-9a-fA-F]+")  # of an object in memory, which differs from run to run


def dataset_fingerprint(data: Dataset) -> dict[str, Any]:
    """Size, shape and SHA-256 of images and labels, which tell a dataset from others."""
    digest = sha256(data.images.contiguous().numpy().data)
    if data.labels is not None:
        digest.update(data.labels.contiguous().numpy().data)
    return {"images": len(data), "shape": list(data.shape), "sha256": digest.hexdigest()}


def posterior_digests(posterior: Posterior) -> dict[str, str | None]:
    """SHA-256 of all networks' weights and descriptions, of their attributes, and of the code of classes that are the
    user's; None where they have none."""
    weights, attributes, code = "", "", set[str]()
    for index, network in enumerate(posterior):
        weights += weights_digest(network)
        attributes += "".join(f"{index} {attribute}" for attribute in list_attributes(network))
        code |= list_code(network)
    return {
        "weights": sha256(weights.encode()).hexdigest(),
        "network attributes": sha256(attributes.encode()).hexdigest() if attributes else None,
        "network code": sha256("\n".join(sorted(code)).encode()).hexdigest() if code else None,
    }


def weights_digest(network: nn.Module) -> str:
    """SHA-256 of a network's weights, of its modules as these describe themselves, and of what fixes dropout masks."""
    digest = sha256(ADDRESS.sub("", repr(network)).encode())
    for module in network.modules():
        digest.update(f"{getattr(module, 'seed', None)} {getattr(module, 'p', None)}".encode())
    for name, tensor in network.state_dict().items():
        digest.update(name.encode())
        digest.update(tensor_bytes(tensor) if isinstance(tensor, Tensor) else repr(tensor).encode())
    return digest.hexdigest()


def method_fingerprint(method: object, options: Mapping[str, Any]) -> dict[str, Any]:
    """The version of each part of a method that is dubium's, a digest of each that is the user's.

    Args:
        method: a name, `package.module:function`, a function, or a Captum class.
        options: of the method; networks and tensors among them are digested too.

    Returns:
        Such as `{"ua-backprop": 1, "fullgrad": 1}`, or `{"clue": 1, "vae": "9f86..."}`.
    """
    found = part_fingerprint(method)
    if method == UA_BACKPROP:
        found |= part_fingerprint(options.get("relevance", "fullgrad"))
    for name, value in options.items():
        digest = value_digest(value)
        if digest is not None:
            found[name] = digest
    return found


def value_digest(value: object) -> Any:
    """Digests of the networks and tensors in an option's value; None where it has none, and its text says it all."""
    if isinstance(value, nn.Module):
        found = [digest for digest in posterior_digests([value]).values() if digest is not None]
        return found[0] if len(found) == 1 else found
    if isinstance(value, Tensor):
        return tensor_digest(value)
    if isinstance(value, list | tuple):
        digests = [value_digest(item) for item in value]
        return digests if any(digest is not None for digest in digests) else None
    return None


def part_fingerprint(part: object) -> dict[str, Any]:
    """Name and version of a method of the registry, or name and source digest of a user's."""
    name = split_method(part)[0] if isinstance(part, str) else part
    if isinstance(name, str) and name == AUTO:
        return {RECOMMENDED: METHOD_VERSIONS[RECOMMENDED], **RECOMMENDED_OPTIONS}
    if isinstance(name, str) and name in METHOD_VERSIONS:
        return {name: METHOD_VERSIONS[name]}
    if isinstance(name, str) and name in REGISTERED:
        return {name: function_digest(REGISTERED[name])}
    if isinstance(name, str) and ":" in name:
        return {name: source_digest(load_function(name))}
    code = getattr(name, "func", name)  # of a partial
    return {getattr(code, "__name__", type(code).__name__): function_digest(name)}


def function_digest(function: object) -> str | None:
    """SHA-256 of a function's module, its own code and the values that it holds; of another object, of its module."""
    code = getattr(function, "func", function)
    source = source_digest(code)
    if not isinstance(code, FunctionType):
        return source
    held: list[object] = [value for value in code.__code__.co_consts if isinstance(value, bool | int | float | str)]
    held += [cell.cell_contents for cell in code.__closure__ or ()]
    held += [*(code.__defaults__ or ()), *(code.__kwdefaults__ or {}).values()]
    if isinstance(function, partial):
        held += [*function.args, *function.keywords.items()]
    text = f"{source} {code.__qualname__} {function_code(code)} {[*map(attribute_text, held)]}"
    return sha256(text.encode()).hexdigest()


def source_digest(code: object) -> str | None:
    """SHA-256 of the module that defines a function or class, or None where it has no file."""
    module = sys.modules.get(getattr(code, "__module__", None) or type(code).__module__)
    try:
        return None if module is None else sha256(inspect.getsource(module).encode()).hexdigest()
    except (OSError, TypeError):
        return None
