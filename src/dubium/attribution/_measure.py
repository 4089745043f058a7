"""The bytes of all that a network computes for one image, measured by a pass.

A pass on torch's meta device has the sizes of a real one, and computes nothing. What follows from them is in `_budget`.
"""

from collections.abc import Callable
from contextvars import ContextVar
from copy import deepcopy
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from dubium.attribution._bias_free import NO_IMPLICIT_BIAS
from dubium.posteriors.functional_dropout import IS_FINDING_SITES
from dubium.types import Images

IS_MEASURING: ContextVar[bool] = ContextVar("is_measuring", default=False)
"""Whether a pass runs that measures memory: the checks of a network's first pass are left to a later one."""


def copy_without_values(network: nn.Module) -> nn.Module:
    """A copy whose tensors are on the meta device: what a pass keeps in it does not reach the network."""
    tensors = [*network.parameters(), *network.buffers()]
    tensors += [value for module in network.modules() for value in vars(module).values() if isinstance(value, Tensor)]
    return deepcopy(network, {id(tensor): torch.empty_like(tensor, device="meta") for tensor in tensors})


class OutputSizes(TorchDispatchMode):
    """Within, the bytes of each operation's output are noted, of layers and functions alike; a view has none.

    An operation that may have an implicit bias has it in memory, too, and forward mode needs copies for it.
    """

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Torch would import its compiler, 90 MiB, to keep it out of here; networks run uncompiled anyway."""
        return False

    def __init__(self, image: Float[Tensor, "B ..."], check: "Callable[[OutputSizes], None]") -> None:
        super().__init__()
        self.sizes = [image.nbytes]
        self.widest_implicit = 0  # largest output of an operation that may have an implicit bias
        self.check = check

    def __torch_dispatch__(self, func: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if IS_FINDING_SITES.get():
            return out
        given = {value.untyped_storage()._cdata for value in dense_tensors(args)}
        may_be_implicit = getattr(func, "overloadpacket", func).__name__ not in NO_IMPLICIT_BIAS
        for value in dense_tensors(out):
            if value.untyped_storage()._cdata not in given:
                self.sizes += [value.nbytes] * (2 if may_be_implicit else 1)
                self.widest_implicit = max(self.widest_implicit, value.nbytes * may_be_implicit)
        self.check(self)
        return out

    def begin(self, *_: Any) -> None:
        """Drop the sizes that were recorded before the first layer: of the copy of x, and of a wrapper."""
        del self.sizes[1:]


def dense_tensors(values: Any) -> list[Tensor]:
    """The dense tensors among an operation's arguments or outputs, which are tensors or lists of tensors."""
    items = values if isinstance(values, list | tuple) else [values]
    nested = [tensor for item in items for tensor in (item if isinstance(item, list | tuple) else [item])]
    return [value for value in nested if isinstance(value, Tensor) and value.layout == torch.strided]


def output_sizes(
    network: nn.Module, x: Float[Tensor, "B ..."], check: Callable[[OutputSizes], None] = lambda _: None
) -> tuple[OutputSizes, Tensor]:
    """The sizes in a pass of the first image, and its output.

    Args:
        check: called after each operation; what it raises ends the pass.
    """
    outputs = OutputSizes(x[:1], check)
    handle = next(network.modules()).register_forward_pre_hook(outputs.begin)
    fast_path = torch.backends.mha.get_fastpath_enabled()  # of a transformer's layers, where there are no gradients
    token = IS_MEASURING.set(True)
    try:
        torch.backends.mha.set_fastpath_enabled(False)
        with outputs:
            return outputs, network(x[:1].clone())
    finally:
        IS_MEASURING.reset(token)
        handle.remove()
        torch.backends.mha.set_fastpath_enabled(fast_path)


def dry_output_sizes(network: nn.Module, x: Images) -> OutputSizes | None:
    """The same sizes without computing anything; None of a network that needs values to run."""
    try:
        with torch.device("meta"):
            return output_sizes(copy_without_values(network), x[:1].to("meta"))[0]
    except Exception:  # whatever a network's code raises about tensors without values: a real pass will tell
        return None
