"""A network without values: a pass of it on torch's meta device has the sizes of a real one, and computes nothing."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from copy import deepcopy

import torch
from torch import Tensor, nn

IS_REPEATED: ContextVar[bool] = ContextVar("is_repeated", default=False)
"""Whether a pass runs that repeats another to check it: its operations are not counted."""


@contextmanager
def repeat_pass() -> Iterator[None]:
    """Within, passes of a network repeat one that has been counted."""
    token = IS_REPEATED.set(True)
    try:
        yield
    finally:
        IS_REPEATED.reset(token)


def copy_without_values(network: nn.Module) -> nn.Module:
    """A copy whose tensors are on the meta device: what a pass keeps in it does not reach the network."""
    tensors = [*network.parameters(), *network.buffers()]
    tensors += [value for module in network.modules() for value in vars(module).values() if isinstance(value, Tensor)]
    return deepcopy(network, {id(tensor): torch.empty_like(tensor, device="meta") for tensor in tensors})
