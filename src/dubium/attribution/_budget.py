"""How much is computed at a time: every rule about memory and chunks.

The user's limit is for what is used beside networks, images and results. Forward passes that are kept until their maps
are wanted may take a quarter of it, a chunk of gradients half, a chunk of maps an eighth.
Below the limit, chunks are as large as was fastest of all sizes that were tried (benchmarks/suite).
"""

import math
from collections.abc import Callable, Iterable, Sequence
from functools import cache, partial
from typing import NamedTuple, NoReturn

import torch
from jaxtyping import Float
from torch import Tensor, nn

from dubium.attribution._measure import OutputSizes, dry_output_sizes, output_sizes
from dubium.attribution._structure import list_modules, network_structure
from dubium.attribution._target import target_for_images
from dubium.errors import OptionError
from dubium.posteriors.stack import Stack
from dubium.types import Images, Target

CACHE_BYTES, FAST_ROWS = 40 * 2**20, 100  # a chunk has at most so many bytes, but always room for so many rows
KEPT_DIVISOR = 4  # a quarter of the memory is for graphs of forward passes that are kept until their maps are wanted
FEW_IMAGES = 8  # with ten classes they make about FAST_ROWS rows
UNMEASURED_DIVISOR = 64  # images are not measured if FIRST_PASS_FACTOR times their bytes is below memory / 64
FORWARD_IMAGES = 64  # in a forward pass without a graph
IMAGE_BYTES_FACTOR = 128  # assumed bound of what a pass of one image holds, over its bytes; the widest measured: 40
FIRST_PASS_FACTOR = 2 * IMAGE_BYTES_FACTOR  # with a graph, as the checks of a first pass keep it
ONE_WALK_ROWS = 200  # (networks x images x classes): more rows do better network by network
NEGLIGIBLE = 16 * 2**20  # bytes; what needs less is never refused: a smaller limit makes chunks smaller
LARGE_IMAGE = NEGLIGIBLE // IMAGE_BYTES_FACTOR  # bytes of an image; of larger ones, the limit is checked first
ROW_PEAK_FACTOR = 4  # backward pass of many targets: peak memory over that of one row's largest gradient
BACKWARD_PEAK_FACTOR = 8  # backward pass of one image: gradients, copies and workspace over its largest output
IMPLICIT_PEAK_FACTOR = 12  # the same over the largest output of an operation that may have an implicit bias
FORWARD_PEAK_FACTOR = 4  # forward pass of one image without a graph: peak over its largest output


class Cost(NamedTuple):
    """Bytes of a chunk: of one image in the forward pass, of one image and target (a row) in the backward pass."""

    target_count: int
    per_image: int
    per_row: int
    smallest_chunk_bytes: int = 0
    image_shape: tuple[int, ...] = ()

    def chunk_sizes(self, image_count: int, memory: int) -> tuple[int, int]:
        """Images and targets at a time: the largest chunk that fits, targets before images, since they share a forward
        pass; then made smaller until all chunks have about the same size."""
        if self.smallest_chunk_bytes > max(memory, NEGLIGIBLE):
            refuse_memory(self.smallest_chunk_bytes, memory, self.image_shape)
        limit = chunk_bytes(self.per_row, memory)
        targets = max(1, min(self.target_count, limit // self.per_row))
        at_once = max(1, min(image_count, limit // (targets * self.per_row), memory // 2 // self.per_image))
        return even_size(image_count, at_once), even_size(self.target_count, targets)


def chunk_bytes(per_row: int, memory: int) -> int:
    """The largest chunk of gradients, given the bytes of a row: half of the memory, and no more than is fast."""
    return min(memory // 2, max(CACHE_BYTES, FAST_ROWS * per_row))


def targets_at_once(targets: int, per_target: int, memory: int) -> int:
    """Targets in a chunk of gradients, given the bytes that each takes."""
    return even_size(targets, max(1, min(targets, chunk_bytes(per_target, memory) // per_target)))


def even_size(count: int, most: int) -> int:
    """The size of as few chunks as possible, of at most `most` each, that are about equally large."""
    return math.ceil(count / math.ceil(count / most)) if count else 0


def maps_at_once(x: Images, memory: int) -> int:
    """Relevance maps (images x classes) at a time: with their gradients they take an eighth of the memory."""
    return max(1, memory // (8 * (x.shape[1] + 3) * x[0, 0].nbytes)) if len(x) else 1


def measure_cost(network: nn.Module, x: Float[Tensor, "B ..."], target: Target | None = None) -> Cost:
    """The cost of a chunk, by a pass of the first image; without a target, of gradients of all of the output.

    All operations' outputs stay for the backward pass.
    """
    outputs, output = output_sizes(network, x)
    scores = output.flatten(1) if target is None else target_for_images(target, slice(1))(output)
    sizes = outputs.sizes
    return Cost(
        scores.shape[1], 2 * sum(sizes), ROW_PEAK_FACTOR * max(sizes), gradient_bytes(outputs), tuple(x.shape[1:])
    )


def needs_no_measuring(network_count: int, x: Images, memory: int) -> bool:
    """Whether `network_count * FIRST_PASS_FACTOR * x.nbytes`, a rough bound, is at most memory / 64.

    Networks that exceed it tenfold, as a WideResNet does, still fit a quarter of the memory.
    """
    return network_count * FIRST_PASS_FACTOR * x.nbytes <= memory // UNMEASURED_DIVISOR


def images_per_pass(
    network: nn.Module,
    x: Images,
    target: Target | None,
    memory: int,
    costs: dict[tuple[object, ...], Cost] | None = None,
) -> int:
    """Images whose pass, with all targets' gradients, keeps to memory and cache; a few small ones are not measured.

    Args:
        costs: what was measured of other networks, by their structure; what is measured now is added.
    """
    network_count = len(network.networks) if isinstance(network, Stack) else 1
    is_few = len(x) == 1 or (len(x) <= FEW_IMAGES and needs_no_measuring(network_count, x, memory))
    if x[:1].nbytes <= LARGE_IMAGE and is_few:
        return max(1, len(x))
    structure = network_structure(list_modules(next(network.modules())))  # without a wrapper that computes nothing
    costs = {} if costs is None else costs
    if structure not in costs:
        costs[structure] = measure_cost(network, x, target)
    return costs[structure].chunk_sizes(len(x), memory)[0]


def forward_batch_size(network: nn.Module, x: Images, memory: int) -> int:
    """Images in a forward pass without a graph; where one may need much, it is checked that it keeps to the memory."""
    if x[:1].nbytes > LARGE_IMAGE:
        check_memory_of_one_image(network, x, memory, forward_bytes)
    return min(FORWARD_IMAGES, max(1, memory // (IMAGE_BYTES_FACTOR * x[0].nbytes)))


def split_memory_for_effects(network: nn.Module, x: Images, effects: int, memory: int) -> tuple[int, int]:
    """Images at a time, where each keeps so many effects of its own size, and the bytes left for their gradients."""
    kept = 2 * effects * x[0].nbytes
    gradients = measure_cost(network, x).smallest_chunk_bytes if x[:1].nbytes > LARGE_IMAGE else 0
    if kept + gradients > max(memory, NEGLIGIBLE):
        refuse_memory(kept + gradients, memory, x.shape[1:])
    image_count = max(1, min(len(x), memory // (2 * kept), (memory - gradients) // kept))
    return image_count, max(memory // 2, memory - image_count * kept)


def check_gradient_memory(networks: Iterable[nn.Module], x: Images, memory: int) -> None:
    """Raise an error if gradients at one image need more than the memory, in any of the networks.

    It runs first, because the check of the forward pass would advise a limit that is too small for the backward pass.
    """
    for network in networks:
        check_memory_of_one_image(network, x, memory, gradient_bytes)


def check_memory_of_one_image(network: nn.Module, x: Images, memory: int, needed: Callable[[OutputSizes], int]) -> None:
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


def gradient_bytes(outputs: OutputSizes) -> int:
    """Of the gradients at one image: all outputs stay for them."""
    widest = max(BACKWARD_PEAK_FACTOR * max(outputs.sizes), IMPLICIT_PEAK_FACTOR * outputs.widest_implicit)
    return sum(outputs.sizes) + widest


def forward_bytes(outputs: OutputSizes) -> int:
    """Of a forward pass of one image without a graph."""
    return FORWARD_PEAK_FACTOR * max(outputs.sizes)


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


@cache
def keep_freed_memory() -> None:
    """Let freed memory wait for the next chunk, instead of going back to the system and coming again page by page.

    glibc keeps freed blocks up to the size of the largest that was ever freed, at most 32 MiB. Allocating and freeing
    one of that size, without writing to it, raises its threshold, once for the whole process.
    """
    torch.empty(2**25 - 2**16, dtype=torch.uint8)
