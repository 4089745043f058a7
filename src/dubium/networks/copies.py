"""Networks that must be copied: yielded from one module with other weights each time, or of a type that needs it."""

from collections.abc import Sequence
from copy import deepcopy

import torch
from torch import Tensor, nn
from torch.utils.weak import WeakIdKeyDictionary

from dubium.attribution._structure import list_modules, network_structure
from dubium.errors import NetworkError


def reuses_module(seen: WeakIdKeyDictionary, network: nn.Module, *, by_value: bool) -> bool:
    """Whether this module came before, or one of its tensors came before with other values; both go to `seen`.

    Such networks must be copied: two that are yielded from one module are the same object, with the last weights.

    Args:
        by_value: compare sums of tensors, which have no new version where `tensor.data` was written to, and what
            modules inside of the network consist of.
    """
    answer = network in seen
    seen[network] = None
    if by_value:
        for module in list_modules(network):
            parts = module_parts(module)
            answer |= (seen.setdefault(module, parts) or parts) != parts
    tensors = [
        tensor
        for tensor in (*network.parameters(), *network.buffers())
        if tensor.layout == torch.strided and not tensor.is_inference()  # others have no version
    ]
    sums = sum_tensors(tensors) if by_value else [0.0] * len(tensors)
    for tensor, total in zip(tensors, sums, strict=True):
        state = (tensor._version, tensor.data_ptr(), total)
        answer |= seen.setdefault(tensor, state) != state
    return answer


def module_parts(module: nn.Module) -> tuple[object, ...]:
    """The layers and plain attributes of a module, in which a posterior may exchange one."""
    return *module._modules.values(), str(vars(module).get("seed")), *network_structure([module])


def sum_tensors(tensors: Sequence[Tensor]) -> list[float]:
    """The sum of each, read from the device at once; NaN counts as 0."""
    sums = [(value.abs() if value.is_complex() else value).sum(dtype=torch.float64) for value in tensors]
    return torch.stack(sums).nan_to_num().tolist() if sums else []


def copy_network(network: nn.Module, index: int) -> nn.Module:
    try:
        return deepcopy(network)
    except torch.OutOfMemoryError:
        raise
    except RuntimeError as error:
        raise NetworkError(
            f"Network {index} cannot be copied, which its type needs (half precision, or made in inference mode): "
            f"{error} Does its forward pass keep a tensor (self.features = ...)? Detach it, or give a network in "
            "float32."
        ) from error
