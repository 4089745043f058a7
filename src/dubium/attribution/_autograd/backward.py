"""The backward pass for many targets at once, node by node.

Autograd's own pass within `torch.func.vmap` knows every node, and does those that have no rule of ours. But it is slow
to launch, and copies inputs that it does not need.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge, get_gradient_edge

from dubium.attribution._autograd.graph import CONVOLUTION, Node, Step, leading_to
from dubium.attribution._autograd.rules import RULES, SETTINGS, stacked

Gradients = dict[int, Tensor]  # by a node's outputs
Take = Callable[[Tensor], Tensor]


class Backward:
    """From (targets, networks, *cotangents) of the networks' outputs to gradients, laid out so, where they are wanted.

    The networks are of one architecture: their graphs are walked together. What is wanted comes with a function of the
    gradient, called while that is at hand, so that none has to be kept.
    """

    @torch.no_grad()
    def __init__(
        self, outputs: Sequence[Tensor], wanted: Sequence[Sequence[GradientEdge]], takes: Sequence[Take]
    ) -> None:
        graphs = [
            leading_to({edge.node for edge in edges}, output.grad_fn)
            for output, edges in zip(outputs, wanted, strict=True)
        ]
        if len(outputs) > 1 and len({described(*graph) for graph in zip(graphs, wanted, strict=True)}) > 1:
            raise DifferentError
        self.output, self.wanted, self.takes = get_gradient_edge(outputs[0]), wanted[0], takes
        self.places: dict[Node, list[int]] = defaultdict(list)
        for index, edge in enumerate(self.wanted):
            self.places[edge.node].append(index)
        self.rules = [(steps[0].node, steps[0].edges, rule_of(steps)) for steps in zip(*graphs, strict=True)]
        for step in chain(*graphs):  # rings would keep the graph until they are collected
            step.above.clear()
            step.below.clear()

    @property
    def widest(self) -> int:
        """How many numbers the largest gradient of one target and network has."""
        return max((math.prod(about.shape) for node, *_ in self.rules for about in node._input_metadata), default=1)

    @torch.no_grad()
    def __call__(self, cotangents: Tensor) -> list[Tensor]:
        at: dict[Node, Gradients] = defaultdict(dict)
        at[self.output.node][self.output.output_nr] = cotangents
        taken: dict[int, Tensor] = {}
        for node, edges, rule in self.rules:
            gradients = at.pop(node)
            for index in self.places.get(node, ()):
                place = self.wanted[index].output_nr
                if place in gradients:
                    taken[index] = self.takes[index](gradients[place])
            for (_, below, place), gradient in zip(edges, rule(gradients), strict=True):
                gradient, there = fitted(gradient, below._input_metadata[place]), at[below]
                there[place] = there[place] + gradient if place in there else gradient
        for index, edge in enumerate(self.wanted):
            if index not in taken:
                about = edge.node._input_metadata[edge.output_nr]
                taken[index] = self.takes[index](zeros(about, *cotangents.shape[:2]))
        return [taken[index] for index in range(len(self.wanted))]


class DifferentError(ValueError):
    """The networks are not of one architecture."""


def described(graph: Sequence[Step], wanted: Sequence[GradientEdge]) -> tuple[Any, ...]:
    """What must be alike for graphs to be walked together."""
    order = {step.node: index for index, step in enumerate(graph)}
    steps = tuple(
        (step.name, step.shape, tuple((i, order[node], place) for i, node, place in step.edges), settings(step))
        for step in graph
    )
    return steps, tuple((order.get(edge.node), edge.output_nr) for edge in wanted)


def settings(step: Step) -> tuple[Any, ...]:
    values = tuple(getattr(step.node, f"_saved_{name}") for name in SETTINGS.get(step.name, ()))
    return (*values, *step.node._saved_weight.shape) if step.name == CONVOLUTION else values


def fitted(gradient: Tensor, about: Any) -> Tensor:
    """Summed where the node had broadcast its input, and of that input's type."""
    if gradient.shape[2:] != tuple(about.shape):
        more = gradient.ndim - 2 - len(about.shape)
        gradient = gradient.flatten(2, 1 + more).sum(2) if more else gradient
        gradient = gradient.sum_to_size(*gradient.shape[:2], *about.shape)
    return gradient.to(about.dtype)


def rule_of(steps: Sequence[Step]) -> Callable[[Gradients], Sequence[Tensor]]:
    """From the gradients at the node's outputs to those at the inputs that lead on."""
    name = steps[0].name
    if not steps[0].edges:
        return lambda _given: ()
    rule = RULES[name](steps) if name in RULES else None
    return partial(by_autograd, [autograd(step) for step in steps]) if rule is None else lambda given: rule(given[0])


def by_autograd(networks: Sequence[Callable[[Gradients], list[Tensor]]], given: Gradients) -> list[Tensor]:
    """What autograd does at the node, in one network after the other."""
    pulled = [pull({place: one[:, s] for place, one in given.items()}) for s, pull in enumerate(networks)]
    return [stacked(one, 1) for one in zip(*pulled, strict=True)]


def autograd(step: Step) -> Callable[[Gradients], list[Tensor]]:
    """Autograd at the node, which hears of one target at a time."""
    pull = step.node if callable(step.node) else step.node.apply  # of a Function written in Python
    outputs = range(len(step.node._input_metadata))

    def one(gradients: Gradients) -> list[Tensor]:
        pulled = pull(*(gradients.get(place) for place in outputs))
        pulled = pulled if isinstance(pulled, tuple) else (pulled,)
        return [zeros(node._input_metadata[place]) if pulled[i] is None else pulled[i] for i, node, place in step.edges]

    return torch.func.vmap(one)


def zeros(about: Any, *first: int) -> Tensor:
    return torch.zeros((), dtype=about.dtype, device=about.device).expand(*first, *about.shape)
