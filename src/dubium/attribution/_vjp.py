"""Vector-Jacobian products, all targets at once, in chunks that fit the cache and a memory limit."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge

from dubium.attribution._autograd.backward import Backward, Take
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
    images, _ = cost(network, x, target).chunks(len(x), memory)
    found: list[Tensor] = []
    for part, own in in_parts(x, target, images):
        at, scores = scored(network, part, own)
        found.append(torch.cat([slope for (slope,) in slopes(scores, [at], memory)]).movedim(0, 1))
    return torch.cat(found)


def in_parts(x: Images, target: Target, size: int) -> Iterator[tuple[Images, Target]]:
    """So many images at a time, and their target."""
    for start in range(0, len(x), size):
        images = slice(start, start + size)
        yield x[images], part_of(target, images)


def differentiable(network: nn.Module, x: Images) -> tuple[Images, Any]:
    """A copy of x, and the network's output there, with a graph from one to the other.

    Its parameters are frozen meanwhile, so that nothing is kept or computed for their sake.
    """
    learning = [parameter for parameter in network.parameters() if parameter.requires_grad]
    try:
        for parameter in learning:
            parameter.requires_grad_(False)
        with torch.enable_grad():
            at = x.detach().clone().requires_grad_()
            return at, network(at.clone())  # copied again, since a first layer may work in place
    finally:
        for parameter in learning:
            parameter.requires_grad_(True)


def scored(network: nn.Module, x: Images, target: Target) -> tuple[Images, Scores]:
    """A copy of x, and the targets there, with a graph from one to the other."""
    at, output = differentiable(network, x)
    return at, aimed(at, output, target)


def aimed(at: Images, output: Any, target: Target) -> Scores:
    """The targets, of an output at some images."""
    with torch.enable_grad():
        scores = target(output)
        return scores if scores.requires_grad else scores + 0 * at.flatten(1)[:, :1]  # one that ignores x


def slopes(scores: Scores, leaves: Sequence[Tensor], memory: int) -> Iterator[Sequence[Tensor]]:
    """Gradients of the scores at each leaf, targets first, as many targets at a time as the memory allows."""
    edges = [get_gradient_edge(leaf) for leaf in leaves]
    return pullbacks([scores], [edges], [lambda gradient: gradient[:, 0]] * len(leaves), memory)


def pullbacks(
    scores: Sequence[Scores], wanted: Sequence[Sequence[GradientEdge]], takes: Sequence[Take], memory: int
) -> Iterator[Sequence[Tensor]]:
    """What is wanted of the gradients of each network's scores, targets first."""
    pull = Backward(scores, wanted, takes)
    networks, (images, targets) = len(scores), scores[0].shape
    per_row = 4 * networks * pull.widest * scores[0].element_size()
    _, at_once = Cost(targets, 1, per_row).chunks(1, memory)
    eye = torch.eye(targets, dtype=scores[0].dtype, device=scores[0].device)
    for cotangents in eye[:, None, None].expand(-1, networks, images, -1).split(at_once):
        yield pull(cotangents)
