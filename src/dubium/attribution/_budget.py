"""How much is computed at a time: every rule about memory and chunks.

The user's limit is for what is used beside networks, images and results. Forward passes that are kept until their maps
are wanted may take a quarter of it, a chunk of gradients half, a chunk of maps an eighth.
Below the limit, chunks are as large as was fastest of all sizes that were tried (benchmarks/suite).
"""

from collections.abc import Callable, Iterable, Sequence
from functools import cache, partial
from typing import Any, NamedTuple, NoReturn

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from dubium.attribution._dry_pass import IS_REPEATED, copy_without_values
from dubium.attribution._implicit import flatten_tensors
from dubium.attribution._target import target_part
from dubium.errors import OptionError
from dubium.types import Images, Target

CACHE_BYTES, FAST_ROWS = 40 * 2**20, 100  # a chunk of a small network has so many bytes, of a large one so many rows
KEPT_DIVISOR = 4  # a quarter of the memory is for graphs of forward passes that are kept until their maps are wanted
FORWARD_IMAGES = 64  # in a forward pass without a graph
FEATURE_FACTOR = (
    128  # a forward pass of one image holds at most so many times the image's bytes: wide layers hold 40 times
)
FIRST_PASS_FACTOR = 2 * FEATURE_FACTOR  # with a graph, as the checks of a first pass keep it
TOGETHER_ROWS = 200  # (networks x images x classes): more rows do better network by network
NEGLIGIBLE = 16 * 2**20  # bytes that are not counted: below, a limit is a matter of speed alone
BACKWARD_FEATURES = 7  # of the widest layer, alive at once in a backward pass: gradients, copies, a layer's workspace
IMPLICIT_FEATURES = 12  # the same, where the widest operation has an implicit bias
FORWARD_FEATURES = 4  # of the widest layer, alive at once in a forward pass without a graph
WITHOUT_BIAS = frozenset(
    [
        *(
            "convolution",
            "relu",
            "relu_",
            "native_batch_norm",
            "max_pool2d_with_indices",
            "avg_pool2d",
            "_adaptive_avg_pool2d",
        ),
        *(
            "mean",
            "sum",
            "add",
            "add_",
            "addmm",
            "mm",
            "clone",
        ),
        *(
            "copy_",
            "_to_copy",
            "cat",
            "stack",
            "constant_pad_nd",
            "upsample_bilinear2d",
            "empty",
        ),
        *("empty_like",),
    ]
)
"""Operations of torch's that have no implicit bias, or one that is a parameter."""


def map_rows(x: Images, memory: int) -> int:
    """Relevance maps (images x classes) at a time: with their gradients they take an eighth of the memory."""
    return max(1, memory // (8 * (x.shape[1] + 3) * x[0, 0].nbytes)) if len(x) else 1


def effect_images(network: nn.Module, x: Images, effects: int, memory: int) -> tuple[int, int]:
    """Images at a time, where each keeps so many effects of its own size, and the bytes left for their gradients."""
    kept = 2 * effects * x[0].nbytes
    gradients = measure_cost(network, x).least if is_large(x) else 0
    if kept + gradients > max(memory, NEGLIGIBLE):
        refuse_memory(kept + gradients, memory, x.shape[1:])
    images = max(1, min(len(x), memory // (2 * kept), (memory - gradients) // kept))
    return images, max(memory // 2, memory - images * kept)


def is_large(x: Images) -> bool:
    """Whether one image may need so much that the limit must be checked before anything is computed."""
    return len(x) > 0 and FEATURE_FACTOR * x[0].nbytes > NEGLIGIBLE


def refuse_memory(least: int, memory: int, image_shape: Sequence[int], *, is_bound: bool = False) -> NoReturn:
    """The smallest chunk does not fit. It cannot be split, and a limit that does not hold would be worse than none.

    Args:
        is_bound: whether more than `least` may be needed.
    """
    mebibytes = -(-least // 2**20)
    advice = "more memory (how much is not known before)" if is_bound else f"memory='{mebibytes}MiB' or more,"
    raise OptionError(
        f"memory is {memory / 2**20:.4g} MiB; one image of shape {tuple(image_shape)} needs at least {mebibytes} MiB "
        f"with these networks. Give {advice} or smaller images."
    )


class Cost(NamedTuple):
    """Bytes of a chunk: of one image in the forward pass, of one image and target (a row) in the backward pass."""

    targets: int
    per_image: int
    per_row: int
    least: int = 0  # of the smallest chunk
    image_shape: tuple[int, ...] = ()

    def chunks(self, images: int, memory: int) -> tuple[int, int]:
        """Images and targets at a time: the largest chunk that fits, targets before images, since they share a forward
        pass; then made smaller until all chunks have about the same size."""
        if self.least > max(memory, NEGLIGIBLE):
            refuse_memory(self.least, memory, self.image_shape)
        limit = min(memory // 2, max(CACHE_BYTES, FAST_ROWS * self.per_row))
        targets = max(1, min(self.targets, limit // self.per_row))
        at_once = max(1, min(images, limit // (targets * self.per_row), memory // 2 // self.per_image))
        return -(-images // -(-images // at_once)), -(-self.targets // -(-self.targets // targets))


class OutputSizes(TorchDispatchMode):
    """Within, the bytes of each operation's output are noted, of layers and functions alike; a view has none.

    An operation that may have an implicit bias has it in memory, too, and forward mode needs copies for it.
    """

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
        has_bias = getattr(func, "overloadpacket", func).__name__ not in WITHOUT_BIAS
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
    return [value for value in flatten_tensors(values) if value.layout == torch.strided]


def measure_cost(network: nn.Module, x: Float[Tensor, "B ..."], target: Target | None = None) -> Cost:
    """The cost of a chunk, by a pass of the first image; without a target, of gradients of all of the output.

    All operations' outputs stay for the backward pass, whose own gradients live four layers.
    """
    outputs, output = output_sizes(network, x)
    scores = output.flatten(1) if target is None else target_part(target, slice(1))(output)
    sizes = outputs.sizes
    return Cost(scores.shape[1], 2 * sum(sizes), 4 * max(sizes), outputs.gradient_bytes(), tuple(x.shape[1:]))


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
    """Whether one image keeps to the memory; where a pass that measures it may not, before that pass.

    The sizes are then those of a pass that computes nothing. A network that cannot run so is stopped at the operation
    that goes beyond the limit, and what it needs in all stays unknown.
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


def images_per_pass(network: nn.Module, x: Images, target: Target | None, memory: int) -> int:
    """Images whose pass, with all targets' gradients, keeps to memory and cache; one small image always does."""
    return measure_cost(network, x, target).chunks(len(x), memory)[0] if len(x) > 1 or is_large(x) else 1


def check_gradients(networks: Iterable[nn.Module], x: Images, memory: int) -> None:
    """Whether gradients at one image keep to the memory, in each of the networks.

    Before anything is computed: a forward pass needs less, and its refusal would name a limit that is not enough.
    """
    for network in networks:
        check_one_image(network, x, memory, OutputSizes.gradient_bytes)


def forward_batch_size(network: nn.Module, x: Images, memory: int) -> int:
    """Images in a forward pass without a graph; where one may need much, it is checked that it keeps to the memory."""
    if is_large(x):
        check_one_image(network, x, memory, OutputSizes.forward_bytes)
    return min(FORWARD_IMAGES, max(1, memory // (FEATURE_FACTOR * x[0].nbytes)))


def gradient_targets(scores: Tensor, networks: int, widest: int, memory: int) -> int:
    """Targets at a time in a backward pass whose largest gradient has `widest` numbers for a target and network."""
    per_row = 4 * networks * widest * scores.element_size()
    return Cost(scores.shape[1], 1, per_row).chunks(1, memory)[1]


@cache
def keep_freed_memory() -> None:
    """Let freed memory wait for the next chunk, instead of going back to the system and coming again page by page.

    glibc keeps freed blocks up to the size of the largest that was ever freed, at most 32 MiB. Allocating and freeing
    one of that size, without writing to it, raises its threshold, once for the whole process.
    """
    torch.empty(2**25 - 2**16, dtype=torch.uint8)
