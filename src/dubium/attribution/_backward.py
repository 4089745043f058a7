"""The backward pass for many targets at once, node by node.

Autograd's own pass within `torch.func.vmap` knows every node, and does those that have no rule of ours. But it is slow
to launch, and copies inputs that it does not need.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from dubium.attribution._graph import Node, Step, leading_to
from dubium.attribution._rules import RULES

Gradients = dict[int, Tensor]  # by a node's outputs


class Backward:
    """From (targets, *cotangents of an output) to the gradients at some leaves, targets first."""

    def __init__(self, output: Tensor, leaves: Sequence[Tensor]) -> None:
        steps = leading_to(leaves, output.grad_fn)
        self.output, self.leaves = (output.grad_fn, output.output_nr), leaves
        self.rules = [(step.node, step.edges, rule_of(step)) for step in steps if step.edges]
        self.ends = {id(step.node.variable): step.node for step in steps if not step.edges}

    @property
    def widest(self) -> int:
        """How many numbers the largest gradient of one target has."""
        return max((math.prod(about.shape) for node, *_ in self.rules for about in node._input_metadata), default=1)

    def __call__(self, cotangents: Tensor) -> list[Tensor]:
        at: dict[Node, Gradients] = defaultdict(dict)
        node, place = self.output
        at[node][place] = cotangents
        for node, edges, rule in self.rules:
            for (_, below, place), gradient in zip(edges, rule(at.pop(node)), strict=True):
                gradient, there = fitted(gradient, below._input_metadata[place].shape), at[below]
                there[place] = there[place] + gradient if place in there else gradient
        found = [at[self.ends[id(leaf)]][0] if id(leaf) in self.ends else None for leaf in self.leaves]
        return [
            leaf.new_zeros(()).expand(len(cotangents), *leaf.shape) if gradient is None else gradient
            for gradient, leaf in zip(found, self.leaves, strict=True)
        ]


def fitted(gradient: Tensor, shape: Sequence[int]) -> Tensor:
    """Summed where the node had broadcast its input."""
    if gradient.shape[1:] == tuple(shape):
        return gradient
    more = gradient.ndim - 1 - len(shape)
    return (gradient.flatten(1, more).sum(1) if more else gradient).sum_to_size(len(gradient), *shape)


def rule_of(step: Step) -> Callable[[Gradients], Sequence[Tensor]]:
    """From the gradients at the node's outputs to those at the inputs that lead on."""
    pull = getattr(step.node, "pull", None)  # a Function of ours brings its own, one for each input
    if pull is not None:
        return lambda gradients: [pull[i](gradients[0]) for i in step.inputs]
    rule = RULES[step.name](step) if step.name in RULES else None
    return by_autograd(step) if rule is None else lambda gradients: rule(gradients[0])


def by_autograd(step: Step) -> Callable[[Gradients], Sequence[Tensor]]:
    """What autograd does at the node, which hears of one target at a time."""
    pull = step.node if callable(step.node) else step.node.apply  # of a Function written in Python
    outputs = range(len(step.node._input_metadata))

    def one(gradients: Gradients) -> list[Tensor]:
        pulled = pull(*(gradients.get(place) for place in outputs))
        pulled = pulled if isinstance(pulled, tuple) else (pulled,)
        return [zeros(node._input_metadata[place]) if pulled[i] is None else pulled[i] for i, node, place in step.edges]

    return torch.func.vmap(one)


def zeros(about: Any) -> Tensor:
    return torch.zeros((), dtype=about.dtype, device=about.device).expand(about.shape)
