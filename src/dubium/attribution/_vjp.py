"""Vector-Jacobian products, all targets at once, in chunks that fit the cache and a memory limit."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from dubium.errors import OptionError
from dubium.types import Images, Scores, Target

DEFAULT_MEMORY = 2**30
CACHE = 24 * 2**20  # larger chunks than this were slower on every CPU tried; see docs/performance.md
UNITS = {"KB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "B": 1}


def parse_memory(memory: int | str) -> int:
    """Bytes, from a number or from text such as "512MiB"."""
    try:
        if isinstance(memory, str):
            unit = next(unit for unit in UNITS if memory.strip().endswith(unit))
            limit = int(float(memory.strip().removesuffix(unit)) * UNITS[unit])
        else:
            limit = int(memory)
    except (ValueError, StopIteration, TypeError, OverflowError):
        limit = 0
    if limit <= 0:
        raise OptionError(f"memory={memory!r} is not a size. Give a positive number of bytes, or text like '512MiB'.")
    return limit


class Cost(NamedTuple):
    """What a chunk takes: bytes per image for the forward pass, per image and target for the backward one."""

    targets: int
    per_image: int
    per_row: int

    @classmethod
    def of(cls, sizes: Sequence[int], targets: int, kept: int = 0) -> "Cost":
        """From the bytes of each layer's output: all stay for the backward pass, whose own live three layers long."""
        return cls(targets, 2 * sum(sizes), 3 * max(sizes) + kept)

    def chunks(self, images: int, memory: int) -> tuple[int, int]:
        """Images and targets to take at a time. Targets first: they share one forward pass."""
        limit = min(memory, max(CACHE, self.per_row))
        targets = max(1, min(self.targets, limit // self.per_row))
        return max(1, min(images, limit // (targets * self.per_row), memory // self.per_image)), targets


def cost(network: nn.Module, x: Images, target: Target) -> Cost:
    """Measured on the first image."""
    with sized(network) as sizes:
        scores = target(network(x[:1].clone()))
    return Cost.of([x[:1].nbytes, *sizes], scores.shape[1])


@contextmanager
def sized(network: nn.Module) -> Iterator[list[int]]:
    """Collect the bytes of each innermost layer's output."""
    sizes: list[int] = []

    def note(_layer: nn.Module, _args: Any, out: Any) -> None:
        sizes.append(out.nbytes if isinstance(out, Tensor) else 0)

    handles = [layer.register_forward_hook(note) for layer in network.modules() if not layer._modules]
    try:
        yield sizes
    finally:
        for handle in handles:
            handle.remove()


def one_hot(scores: Scores, size: int) -> Iterator[tuple[slice, Float[Tensor, "t B T"]]]:
    """Cotangents that pick `size` targets at a time, the same one for every image, and where those targets stand."""
    images, targets = scores.shape
    eye = torch.eye(targets, dtype=scores.dtype, device=scores.device)
    for start in range(0, targets, size):
        yield slice(start, start + size), eye[start : start + size, None].expand(-1, images, -1)


def batched_vjp(
    network: nn.Module, x: Images, target: Target, *, memory: int = DEFAULT_MEMORY
) -> Float[Tensor, "B T C H W"]:
    """The slope of each target at each pixel."""
    measured = cost(network, x, target)
    images, targets = measured.chunks(len(x), memory)
    slopes = x.new_empty(len(x), measured.targets, *x.shape[1:])
    for at, part in zip(slopes.split(images), x.split(images), strict=True):
        # a copy, since a first layer that works in place must not overwrite the caller's images
        scores, pull = pullback(lambda x: target(network(x.clone())), part)
        for which, cotangents in one_hot(scores, targets):
            at[:, which] = pull(cotangents)[0].movedim(0, 1)
    return slopes


def pullback(
    function: Callable[..., Scores], *inputs: Tensor
) -> tuple[Scores, Callable[[Float[Tensor, "t B T"]], Sequence[Tensor]]]:
    """The function's value, and its vector-Jacobian products with many cotangents at once.

    `vmap` folds them into the batch of every backward kernel; `is_grads_batched` would silently loop over them.
    """
    value, pull, *_ = torch.func.vjp(function, *inputs)
    return value, torch.func.vmap(pull)
