"""Vector-Jacobian products, all targets at once, in chunks that fit the cache and a memory limit."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

from dubium.attribution._backward import faster
from dubium.errors import OptionError
from dubium.types import Images, Scores, Target

DEFAULT_MEMORY = 2**30
CACHE, ROWS = 40 * 2**20, 100  # bytes for small networks, rows for large ones: what was fastest of all that was tried
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


@dataclass(frozen=True)
class EachOwn:
    """A target: of each image its own classes. Whoever takes some of the images takes `part_of` it, too."""

    classes: Int64[Tensor, "B T"]

    def __call__(self, logits: Float[Tensor, "B K"]) -> Scores:
        return logits.gather(1, self.classes)


def part_of(target: Target, images: slice) -> Target:
    """The target of some of the images."""
    return EachOwn(target.classes[images]) if isinstance(target, EachOwn) else target


class Cost(NamedTuple):
    """What a chunk takes: bytes per image for the forward pass, per image and target for the backward one."""

    targets: int
    per_image: int
    per_row: int

    @classmethod
    def of(cls, sizes: Sequence[int], targets: int) -> "Cost":
        """From the bytes of each layer's output: all stay for the backward pass, whose own live four layers long."""
        return cls(targets, 2 * sum(sizes), 4 * max(sizes))

    def chunks(self, images: int, memory: int) -> tuple[int, int]:
        """Images and targets to take at a time. Targets first: they share a forward pass. Parts are equal."""
        limit = min(memory, max(CACHE, ROWS * self.per_row))
        targets = max(1, min(self.targets, limit // self.per_row))
        at_once = max(1, min(images, limit // (targets * self.per_row), memory // self.per_image))
        return evenly(images, at_once), evenly(self.targets, targets)


def evenly(total: int, at_once: int) -> int:
    """As few parts as `at_once` allows, and then as small as they can be."""
    return -(-total // -(-total // at_once))


def cost(network: nn.Module, x: Images, target: Target) -> Cost:
    """Measured on the first image."""
    with sized(network) as sizes:
        scores = part_of(target, slice(1))(network(x[:1].clone()))
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


def batched_vjp(
    network: nn.Module, x: Images, target: Target, *, memory: int = DEFAULT_MEMORY
) -> Float[Tensor, "B T C H W"]:
    """The slope of each target at each pixel."""
    images, targets = cost(network, x, target).chunks(len(x), memory)
    slopes: list[Tensor] = []
    for part, own in in_parts(x, target, images):
        with faster(network, part):
            at, scores = scored(network, part, own)
        slopes.append(torch.cat([pulled for (pulled,) in pullbacks(scores, [at], targets)]).movedim(0, 1))
    return torch.cat(slopes)


def in_parts(x: Images, target: Target, size: int) -> Iterator[tuple[Images, Target]]:
    """So many images at a time, and their target."""
    for start in range(0, len(x), size):
        images = slice(start, start + size)
        yield x[images], part_of(target, images)


def scored(network: nn.Module, x: Images, target: Target) -> tuple[Images, Scores]:
    """A copy of x, and the targets there, with a graph from one to the other.

    The parameters are detached, so that nothing is kept or computed for their sake; the network itself is not changed.
    """
    with torch.enable_grad():
        at = x.detach().clone().requires_grad_()
        frozen = {name: p.detach() for name, p in network.named_parameters() if p.requires_grad}
        # copied again, since a first layer may work in place
        output = torch.func.functional_call(network, frozen, (at.clone(),)) if frozen else network(at.clone())
        scores = target(output)
        return at, scores if scores.requires_grad else scores + 0 * at.flatten(1)[:, :1]  # one that ignores x


def pullbacks(scores: Scores, inputs: Sequence[Tensor], size: int) -> Iterator[Sequence[Tensor]]:
    """Gradients of the scores at each input, targets first, `size` targets at a time.

    `torch.func.vmap` folds the targets into the batch of each backward kernel; `is_grads_batched` would loop over them.
    """

    def pull(cotangent: Scores) -> tuple[Tensor, ...]:
        return torch.autograd.grad(
            scores, inputs, cotangent, retain_graph=True, allow_unused=True, materialize_grads=True
        )

    images, targets = scores.shape
    eye = torch.eye(targets, dtype=scores.dtype, device=scores.device)[:, None].expand(-1, images, -1)
    for cotangents in eye.split(size):
        yield torch.func.vmap(pull)(cotangents)
