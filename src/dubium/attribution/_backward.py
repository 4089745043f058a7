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
from torch.autograd.graph import GradientEdge, get_gradient_edge

from dubium.attribution._graph import Node, Step, leading_to
from dubium.attribution._rules import RULES

Gradients = dict[int, Tensor]  # by a node's outputs
Take = Callable[[Tensor], Tensor]


class Backward:
    """From (targets, *cotangents of an output) to gradients, targets first, where they are wanted.

    What is wanted comes with a function of the gradient, called while that is at hand, so that none has to be kept.
    """

    def __init__(self, output: Tensor, wanted: Sequence[tuple[GradientEdge, Take]]) -> None:
        self.output, self.wanted = get_gradient_edge(output), wanted
        self.takes: dict[Node, list[int]] = defaultdict(list)
        for index, (edge, _) in enumerate(wanted):
            self.takes[edge.node].append(index)
        steps = leading_to(self.takes, self.output.node)
        self.rules = [(step.node, step.edges, rule_of(step)) for step in steps]

    @property
    def widest(self) -> int:
        """How many numbers the largest gradient of one target has."""
        return max((math.prod(about.shape) for node, *_ in self.rules for about in node._input_metadata), default=1)

    def __call__(self, cotangents: Tensor) -> list[Tensor]:
        at: dict[Node, Gradients] = defaultdict(dict)
        at[self.output.node][self.output.output_nr] = cotangents
        taken: dict[int, Tensor] = {}
        for node, edges, rule in self.rules:
            gradients = at.pop(node)
            for index in self.takes.get(node, ()):
                edge, take = self.wanted[index]
                if edge.output_nr in gradients:
                    taken[index] = take(gradients[edge.output_nr])
            for (_, below, place), gradient in zip(edges, rule(gradients) if edges else (), strict=True):
                gradient, there = fitted(gradient, below._input_metadata[place]), at[below]
                there[place] = there[place] + gradient if place in there else gradient
        return [
            taken[index] if index in taken else take(zeros(edge.node._input_metadata[edge.output_nr], len(cotangents)))
            for index, (edge, take) in enumerate(self.wanted)
        ]


def fitted(gradient: Tensor, about: Any) -> Tensor:
    """Summed where the node had broadcast its input, and of that input's type."""
    if gradient.shape[1:] != tuple(about.shape):
        more = gradient.ndim - 1 - len(about.shape)
        gradient = gradient.flatten(1, more).sum(1) if more else gradient
        gradient = gradient.sum_to_size(len(gradient), *about.shape)
    return gradient.to(about.dtype)


def rule_of(step: Step) -> Callable[[Gradients], Sequence[Tensor]]:
    """From the gradients at the node's outputs to those at the inputs that lead on."""
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


def zeros(about: Any, *targets: int) -> Tensor:
    return torch.zeros((), dtype=about.dtype, device=about.device).expand(*targets, *about.shape)
