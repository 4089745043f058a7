"""What one image takes in a network, measured by a pass: for chunks that keep to the memory, and for refusals before it
is exceeded. A pass on torch's meta device has the sizes of a real one, and computes nothing."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from copy import deepcopy
from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from dubium.attribution._bias_free import BIAS_FREE_OPERATIONS
from dubium.attribution._budget import (
    BACKWARD_FEATURES,
    FEATURE_FACTOR,
    FEW_IMAGES,
    FIRST_PASS_FACTOR,
    FORWARD_FEATURES,
    FORWARD_IMAGES,
    IMPLICIT_FEATURES,
    LARGE_IMAGE,
    NEGLIGIBLE,
    ROW_FEATURES,
    UNMEASURED_DIVISOR,
    Cost,
    refuse_memory,
)
from dubium.attribution._target import target_for_images
from dubium.posteriors.stack import Stack
from dubium.types import Images, Target

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


def images_per_pass(network: nn.Module, x: Images, target: Target | None, memory: int) -> int:
    """Images whose pass, with all targets' gradients, keeps to memory and cache.

    A few small images are not measured. By FIRST_PASS_FACTOR they take 1/64 of the memory; a WideResNet, which takes
    ten times as much, still fits.
    """
    networks = len(network.networks) if isinstance(network, Stack) else 1
    is_few = len(x) <= FEW_IMAGES and networks * FIRST_PASS_FACTOR * x.nbytes <= memory // UNMEASURED_DIVISOR
    if x[:1].nbytes <= LARGE_IMAGE and (is_few or len(x) == 1):
        return max(1, len(x))
    return measure_cost(network, x, target).chunk_sizes(len(x), memory)[0]


def forward_batch_size(network: nn.Module, x: Images, memory: int) -> int:
    """Images in a forward pass without a graph; where one may need much, it is checked that it keeps to the memory."""
    if x[:1].nbytes > LARGE_IMAGE:
        check_one_image(network, x, memory, OutputSizes.forward_bytes)
    return min(FORWARD_IMAGES, max(1, memory // (FEATURE_FACTOR * x[0].nbytes)))


def effect_chunk(network: nn.Module, x: Images, effects: int, memory: int) -> tuple[int, int]:
    """Images at a time, where each keeps so many effects of its own size, and the bytes left for their gradients."""
    kept = 2 * effects * x[0].nbytes
    gradients = measure_cost(network, x).smallest_chunk if x[:1].nbytes > LARGE_IMAGE else 0
    if kept + gradients > max(memory, NEGLIGIBLE):
        refuse_memory(kept + gradients, memory, x.shape[1:])
    images = max(1, min(len(x), memory // (2 * kept), (memory - gradients) // kept))
    return images, max(memory // 2, memory - images * kept)


def check_gradients(networks: Iterable[nn.Module], x: Images, memory: int) -> None:
    """Whether gradients at one image keep to the memory, in each of the networks.

    Before anything is computed: a forward pass needs less, and its refusal would name a limit that is not enough.
    """
    for network in networks:
        check_one_image(network, x, memory, OutputSizes.gradient_bytes)


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
        self.widest = 0  # of the operations that may have an implicit bias
        self.check = check

    def __torch_dispatch__(self, func: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if IS_REPEATED.get():
            return out
        given = {value.untyped_storage()._cdata for value in dense_tensors(args)}
        has_bias = getattr(func, "overloadpacket", func).__name__ not in BIAS_FREE_OPERATIONS
        for value in dense_tensors(out):
            if value.untyped_storage()._cdata not in given:
                self.sizes += [value.nbytes] * (2 if has_bias else 1)
                self.widest = max(self.widest, value.nbytes * has_bias)
        self.check(self)
        return out

    def begin(self, *_: Any) -> None:
        """Forget what came before the network itself, unless it runs again for a check."""
        if not IS_REPEATED.get():
            del self.sizes[1:]

    def gradient_bytes(self) -> int:
        """Of the gradients at one image: all outputs stay for them."""
        return sum(self.sizes) + max(BACKWARD_FEATURES * max(self.sizes), IMPLICIT_FEATURES * self.widest)

    def forward_bytes(self) -> int:
        """Of a forward pass of one image without a graph."""
        return FORWARD_FEATURES * max(self.sizes)


def dense_tensors(values: Any) -> list[Tensor]:
    """The dense tensors among an operation's arguments or outputs, which are tensors or lists of tensors."""
    items = values if isinstance(values, list | tuple) else [values]
    nested = [tensor for item in items for tensor in (item if isinstance(item, list | tuple) else [item])]
    return [value for value in nested if isinstance(value, Tensor) and value.layout == torch.strided]


def measure_cost(network: nn.Module, x: Float[Tensor, "B ..."], target: Target | None = None) -> Cost:
    """The cost of a chunk, by a pass of the first image; without a target, of gradients of all of the output.

    All operations' outputs stay for the backward pass.
    """
    outputs, output = output_sizes(network, x)
    scores = output.flatten(1) if target is None else target_for_images(target, slice(1))(output)
    sizes = outputs.sizes
    return Cost(
        scores.shape[1], 2 * sum(sizes), ROW_FEATURES * max(sizes), outputs.gradient_bytes(), tuple(x.shape[1:])
    )


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
    try:
        torch.backends.mha.set_fastpath_enabled(False)
        with outputs:
            return outputs, network(x[:1].clone())
    finally:
        handle.remove()
        torch.backends.mha.set_fastpath_enabled(fast_path)


def dry_output_sizes(network: nn.Module, x: Images) -> OutputSizes | None:
    """The same sizes without computing anything; None of a network that needs values to run."""
    try:
        with torch.device("meta"):
            return output_sizes(copy_without_values(network), x[:1].to("meta"))[0]
    except Exception:  # whatever a network's code raises about tensors without values: a real pass will tell
        return None


def check_one_image(network: nn.Module, x: Images, memory: int, needed: Callable[[OutputSizes], int]) -> None:
    """Raise an error if one image needs more than the memory.

    If the pass that measures it might itself need more, the sizes are those of a pass on the meta device, which
    computes nothing. A network that cannot run there is stopped, in a real pass, at the first operation beyond the
    limit; what it needs in all stays unknown.
    """
    limit = max(memory, NEGLIGIBLE)

    def check(outputs: OutputSizes, *, is_bound: bool = False) -> None:
        if needed(outputs) > limit:
            refuse_memory(needed(outputs), memory, x.shape[1:], is_bound=is_bound)

    is_safe = FIRST_PASS_FACTOR * x[0].nbytes <= limit
    outputs = output_sizes(network, x)[0] if is_safe else dry_output_sizes(network, x)
    if outputs is not None:
        check(outputs)
    else:
        stop = partial(check, is_bound=True)
        stop(OutputSizes(x[:1], stop))
        output_sizes(network, x, stop)
