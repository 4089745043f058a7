"""How much is computed at a time: every rule about memory and chunks.

The user's limit is for what is used beside networks, images and results. Forward passes that are kept until their maps
are wanted may take a quarter of it, a chunk of gradients half, a chunk of maps an eighth.
Below the limit, chunks are as large as was fastest of all sizes that were tried (benchmarks/suite).
What a network needs is measured in `_measure`.
"""

from collections.abc import Sequence
from functools import cache
from typing import NamedTuple, NoReturn

import torch

from dubium.errors import OptionError
from dubium.types import Images

CACHE_BYTES, FAST_ROWS = 40 * 2**20, 100  # a chunk of a small network has so many bytes, of a large one so many rows
KEPT_DIVISOR = 4  # a quarter of the memory is for graphs of forward passes that are kept until their maps are wanted
FEW_IMAGES = 8  # of ten classes: about FAST_ROWS, which any network takes at once
UNMEASURED_DIVISOR = 64  # a 64th of the memory: what they may take, by FIRST_PASS_FACTOR, if they are not measured
FORWARD_IMAGES = 64  # in a forward pass without a graph
FEATURE_FACTOR = 128  # a pass of one image holds at most so many times the image's bytes: wide layers hold 40 times
FIRST_PASS_FACTOR = 2 * FEATURE_FACTOR  # with a graph, as the checks of a first pass keep it
TOGETHER_ROWS = 200  # (networks x images x classes): more rows do better network by network
NEGLIGIBLE = 16 * 2**20  # bytes that are not counted: below, a limit is a matter of speed alone
LARGE_IMAGE = NEGLIGIBLE // FEATURE_FACTOR  # bytes of an image: above, the limit is checked before anything is computed
ROW_FEATURES = 4  # of the largest gradient of an image and target, alive at once in a backward pass of many
BACKWARD_FEATURES = 8  # of the widest layer, alive at once in a backward pass: gradients, copies, a layer's workspace
IMPLICIT_FEATURES = 12  # the same, where the widest operation has an implicit bias
FORWARD_FEATURES = 4  # of the widest layer, alive at once in a forward pass without a graph


def maps_at_once(x: Images, memory: int) -> int:
    """Relevance maps (images x classes) at a time: with their gradients they take an eighth of the memory."""
    return max(1, memory // (8 * (x.shape[1] + 3) * x[0, 0].nbytes)) if len(x) else 1


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
    smallest_chunk: int = 0
    image_shape: tuple[int, ...] = ()

    def chunk_sizes(self, images: int, memory: int) -> tuple[int, int]:
        """Images and targets at a time: the largest chunk that fits, targets before images, since they share a forward
        pass; then made smaller until all chunks have about the same size."""
        if self.smallest_chunk > max(memory, NEGLIGIBLE):
            refuse_memory(self.smallest_chunk, memory, self.image_shape)
        limit = min(memory // 2, max(CACHE_BYTES, FAST_ROWS * self.per_row))
        targets = max(1, min(self.targets, limit // self.per_row))
        at_once = max(1, min(images, limit // (targets * self.per_row), memory // 2 // self.per_image))
        return -(-images // -(-images // at_once)), -(-self.targets // -(-self.targets // targets))


@cache
def keep_freed_memory() -> None:
    """Let freed memory wait for the next chunk, instead of going back to the system and coming again page by page.

    glibc keeps freed blocks up to the size of the largest that was ever freed, at most 32 MiB. Allocating and freeing
    one of that size, without writing to it, raises its threshold, once for the whole process.
    """
    torch.empty(2**25 - 2**16, dtype=torch.uint8)
