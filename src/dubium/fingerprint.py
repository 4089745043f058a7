"""What a result depends on, as digests and version numbers.

`explain`, `evaluate` and `train` keep them in their folders, and refuse a folder whose fingerprints are others.

Not covered: the code that a user's networks or method call in other modules, and the versions of libraries.
"""

import inspect
import re
import sys
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

import torch
from torch import Tensor, nn

from dubium.data import Dataset
from dubium.option_text import split_method
from dubium.registry import AUTO, METHOD_VERSIONS, RECOMMENDED, REGISTERED, UA_BACKPROP, load_function
from dubium.types import Posterior

ADDRESS = re.compile(r"0x[0-9a-fA-F]+")  # of an object in memory, which differs from run to run


def dataset_fingerprint(data: Dataset) -> dict[str, Any]:
    """Size, shape and SHA-256 of images and labels, which tell a dataset from others."""
    digest = sha256(data.images.contiguous().numpy().data)
    if data.labels is not None:
        digest.update(data.labels.contiguous().numpy().data)
    return {"images": len(data), "shape": list(data.shape), "sha256": digest.hexdigest()}


def tensor_digest(tensor: Tensor) -> str:
    """SHA-256 of a tensor's type, shape and values."""
    digest = sha256(f"{tensor.dtype}{tuple(tensor.shape)}".encode())
    digest.update(tensor_bytes(tensor))
    return digest.hexdigest()


def posterior_digest(posterior: Posterior) -> str:
    """SHA-256 of the `network_digest` of every network."""
    return sha256("".join(network_digest(network) for network in posterior).encode()).hexdigest()


def network_digest(network: nn.Module) -> str:
    """SHA-256 of a network's weights, of its modules as these describe themselves, and of what fixes dropout masks."""
    digest = sha256(ADDRESS.sub("", repr(network)).encode())
    for module in network.modules():
        digest.update(f"{getattr(module, 'seed', None)} {getattr(module, 'p', None)}".encode())
    for name, tensor in network.state_dict().items():
        digest.update(name.encode())
        digest.update(tensor_bytes(tensor) if isinstance(tensor, Tensor) else repr(tensor).encode())
    return digest.hexdigest()


def tensor_bytes(tensor: Tensor) -> bytes:
    """The values in row-major order."""
    return bytes(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data)


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
        return network_digest(value)
    if isinstance(value, Tensor):
        return tensor_digest(value)
    if isinstance(value, list | tuple):
        digests = [value_digest(item) for item in value]
        return digests if any(digest is not None for digest in digests) else None
    return None


def part_fingerprint(part: object) -> dict[str, Any]:
    """Name and version of a method of the registry, or name and source digest of a user's."""
    name = split_method(part)[0] if isinstance(part, str) else part
    name = RECOMMENDED if isinstance(name, str) and name == AUTO else name
    if isinstance(name, str) and name in METHOD_VERSIONS:
        return {name: METHOD_VERSIONS[name]}
    if isinstance(name, str) and name in REGISTERED:
        return {name: source_digest(REGISTERED[name])}
    if isinstance(name, str) and ":" in name:
        return {name: source_digest(load_function(name))}
    code = getattr(name, "func", name)  # of a partial
    return {getattr(code, "__name__", type(code).__name__): source_digest(code)}


def source_digest(code: object) -> str | None:
    """SHA-256 of the module that defines a function or class, or None where it has no file."""
    module = sys.modules.get(getattr(code, "__module__", None) or type(code).__module__)
    try:
        return None if module is None else sha256(inspect.getsource(module).encode()).hexdigest()
    except (OSError, TypeError):
        return None
