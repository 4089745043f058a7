"""Gradients of targets at images or inside a network, all targets at once, in chunks that fit a memory limit."""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge

from dubium.attribution._autograd.backward import Backward, Reduction
from dubium.attribution._autograd.nodes import MissingAttributeError
from dubium.attribution._autograd.plain import PlainBackward
from dubium.attribution._budget import gradient_targets, measure_cost
from dubium.attribution._context import DEFAULT_MEMORY
from dubium.attribution._target import target_part
from dubium.types import Images, Scores, Target


def batched_vjp(
    network: nn.Module, x: Images, target: Target, *, memory: int = DEFAULT_MEMORY
) -> Float[Tensor, "B T C H W"]:
    """The gradient of each target at each pixel."""
    images, _ = measure_cost(network, x, target).chunks(len(x), memory)
    gradients: list[Tensor] = []
    for start in range(0, len(x), images):
        part, chunks = slice(start, start + images), list[Tensor]()
        leaf, scores = forward_with_graph(network, x[part], target_part(target, part))
        for chunk in gradients_at(scores, [leaf], memory):
            chunks += chunk
        gradients.append(torch.cat(chunks).movedim(0, 1))
    return torch.cat(gradients)


def split_images(x: Images, target: Target, size: int) -> Iterator[tuple[Images, Target]]:
    """`size` images at a time, with their part of the target."""
    for start in range(0, len(x), size):
        images = slice(start, start + size)
        yield x[images], target_part(target, images)


def forward_with_graph(network: nn.Module, x: Images, target: Target | None = None) -> tuple[Images, Any]:
    """A copy of x, and the network's output there, or a target of it, with a graph from one to the other.

    The parameters are frozen meanwhile, so that nothing is kept or computed for their sake.
    """
    learning = [parameter for parameter in network.parameters() if parameter.requires_grad]
    try:
        for parameter in learning:
            parameter.requires_grad_(False)
        with torch.enable_grad():
            leaf = x.detach().clone().requires_grad_()
            output = network(leaf.clone())  # copied again, since a first layer may work in place
        return leaf, output if target is None else apply_target(target, output, leaf)
    finally:
        for parameter in learning:
            parameter.requires_grad_(True)


def apply_target(target: Target | None, output: Any, leaf: Images) -> Scores:
    """The targets of a network's output, or all of it, with a graph that leads to the leaf even if they ignore it."""
    with torch.enable_grad():
        scores = output if target is None else target(output)
        return scores if scores.requires_grad else scores + 0 * leaf.flatten(1)[:, :1]


def gradients_at(scores: Scores, leaves: Sequence[Tensor], memory: int) -> Iterator[Sequence[Tensor]]:
    """Gradients of the scores at each leaf, (T, *shape) each, for as many targets at a time as the memory allows."""
    edges = [get_gradient_edge(leaf) for leaf in leaves]
    return reduced_gradients([scores], [edges], [lambda gradient: gradient[:, 0]] * len(leaves), memory)


def reduced_gradients(
    scores: Sequence[Scores], wanted: Sequence[Sequence[GradientEdge]], reductions: Sequence[Reduction], memory: int
) -> Iterator[Sequence[Tensor]]:
    """Of the gradients (T, S, ...) of each network's scores at each place, what its reduction takes."""
    backward: Backward | PlainBackward
    try:
        backward = Backward(scores, wanted, reductions)
    except MissingAttributeError:
        backward = PlainBackward(scores, wanted, reductions)
    images, targets = scores[0].shape
    eye = torch.eye(targets, dtype=scores[0].dtype, device=scores[0].device)
    cotangents = eye[:, None, None].expand(-1, len(scores), images, -1)
    for chunk in cotangents.split(gradient_targets(scores[0], len(scores), backward.widest, memory)):
        yield backward(chunk)
