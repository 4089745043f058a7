"""The backward pass for many targets at once, node by node.

Nodes that take the time have rules of ours. All others are autograd's own, with all targets in the batch by
`torch.func.vmap`, or one target at a time where a node cannot be batched: slower, never wrong.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge, get_gradient_edge

from dubium.attribution._autograd.nodes import (
    MissingAttributeError,
    Node,
    OutputInfo,
    Step,
    graph_signature,
    output_infos,
    silence_fallback_warnings,
    steps_between,
)
from dubium.attribution._autograd.rules import RULES, SETTINGS, stack_networks

Gradients = dict[int, Tensor]
"""Gradients at the outputs of a node, by the output's number."""

Reduction = Callable[[Tensor], Tensor]
"""What is wanted of a gradient (T, S, *shape)."""


class DifferentGraphsError(ValueError):
    """Networks that are not of one architecture."""


class Backward:
    """Gradients of several networks' outputs, (T, S, *shape) each, at the places `wanted` in their graphs.

    The networks are of one architecture, and their graphs are walked together. Each gradient is handed to its
    `reductions` function while it is at hand, so that none has to be kept.
    """

    @torch.no_grad()
    def __init__(
        self, outputs: Sequence[Tensor], wanted: Sequence[Sequence[GradientEdge]], reductions: Sequence[Reduction]
    ) -> None:
        graphs = [
            steps_between(output.grad_fn, {edge.node for edge in edges})
            for output, edges in zip(outputs, wanted, strict=True)
        ]
        if len(outputs) > 1 and len({graph_signature(*g, SETTINGS) for g in zip(graphs, wanted, strict=True)}) > 1:
            raise DifferentGraphsError
        self.output, self.wanted, self.reductions = get_gradient_edge(outputs[0]), wanted[0], reductions
        self.places: dict[Node, list[int]] = defaultdict(list)
        for index, edge in enumerate(self.wanted):
            self.places[edge.node].append(index)
        self.rules = [(steps[0].node, steps[0].edges, step_rule(steps)) for steps in zip(*graphs, strict=True)]
        self.infos = {step.node: step.outputs for step in graphs[0]}
        self.widest = max((math.prod(info.shape) for step in graphs[0] for info in step.outputs), default=1)
        for step in chain(*graphs):  # links both ways are rings, and would keep the graph until Python collects them
            step.above.clear()
            step.below.clear()

    @torch.no_grad()
    def __call__(self, cotangents: Tensor) -> list[Tensor]:
        """The reduced gradients at all places, from cotangents (T, S, *shape of the output)."""
        at: dict[Node, Gradients] = defaultdict(dict)
        at[self.output.node][self.output.output_nr] = cotangents
        reduced: dict[int, Tensor] = {}
        for node, edges, rule in self.rules:
            gradients = at.pop(node)
            for index in self.places.get(node, ()):
                place = self.wanted[index].output_nr
                if place in gradients:
                    reduced[index] = self.reductions[index](gradients[place])
            for (_, below, place), gradient in zip(edges, rule(gradients), strict=True):
                gradient, there = fit_gradient(gradient, self.infos[below][place]), at[below]
                there[place] = there[place] + gradient if place in there else gradient
        for index, edge in enumerate(self.wanted):
            if index not in reduced:  # no way leads there
                zeros = output_infos(edge.node)[edge.output_nr].zeros(*cotangents.shape[:2])
                reduced[index] = self.reductions[index](zeros)
        return [reduced[index] for index in range(len(self.wanted))]


def fit_gradient(gradient: Tensor, info: OutputInfo) -> Tensor:
    """The gradient, summed where the node had broadcast its input, and of that input's type."""
    if gradient.shape[2:] != info.shape:
        more = gradient.ndim - 2 - len(info.shape)
        gradient = gradient.flatten(2, 1 + more).sum(2) if more else gradient
        gradient = gradient.sum_to_size(*gradient.shape[:2], *info.shape)
    return gradient.to(info.dtype)


def step_rule(steps: Sequence[Step]) -> Callable[[Gradients], Sequence[Tensor]]:
    """From the gradients at a node's outputs to those at its inputs that lead on, in all networks."""
    if not steps[0].edges:
        return lambda _gradients: ()
    try:
        rule = RULES[steps[0].name](steps) if steps[0].name in RULES else None
    except MissingAttributeError:
        rule = None
    if rule is not None:
        return lambda gradients: rule(gradients[0])
    return partial(autograd_gradients, steps[0].name, [autograd_step(step) for step in steps])


def autograd_step(step: Step) -> Callable[[Gradients], list[Tensor]]:
    """What autograd does at the node, for one target of one network."""
    function = step.node if callable(step.node) else step.node.apply  # `apply`: of a Function written in Python
    outputs, places = range(len(step.outputs)), gradient_places(step.node)
    below = [(places[edge.input], one.outputs[edge.output]) for edge, one in zip(step.edges, step.below, strict=True)]

    def pull(gradients: Gradients) -> list[Tensor]:
        found = function(*(gradients.get(place) for place in outputs))
        found = found if isinstance(found, tuple) else (found,)
        return [info.zeros() if found[number] is None else found[number] for number, info in below]

    return pull


def gradient_places(node: Node) -> dict[int, int]:
    """Where the gradient of each input that leads on stands in what the node's function returns.

    A Function written in Python returns one for each argument, whether it is a tensor or not.
    """
    linked = [number for number, (below, _) in enumerate(node.next_functions) if below is not None]
    if callable(node):
        return {number: number for number in linked}
    return dict(zip(linked, [place for place, needed in enumerate(node.needs_input_grad) if needed], strict=True))


def autograd_gradients(
    name: str, networks: Sequence[Callable[[Gradients], list[Tensor]]], gradients: Gradients
) -> list[Tensor]:
    """What autograd does at the node, in one network after the other: all targets at once where the node allows it."""
    by_network = []
    for s, pull in enumerate(networks):
        own = {place: gradient[:, s] for place, gradient in gradients.items()}
        try:
            by_network.append(target_by_target(pull, own) if name in ONE_BY_ONE else all_targets(pull, own))
        except (RuntimeError, NotImplementedError):  # no batching rule, a Function without `setup_context`, ...
            by_network.append(target_by_target(pull, own))
    return [stack_networks(gradient, 1) for gradient in zip(*by_network, strict=True)]


def all_targets(pull: Callable[[Gradients], list[Tensor]], gradients: Gradients) -> list[Tensor]:
    with silence_fallback_warnings():
        found: list[Tensor] = torch.func.vmap(pull)(gradients)
        return found


def target_by_target(pull: Callable[[Gradients], list[Tensor]], gradients: Gradients) -> list[Tensor]:
    targets = len(next(iter(gradients.values())))
    each = [pull({place: gradient[t] for place, gradient in gradients.items()}) for t in range(targets)]
    return [torch.stack(gradient) for gradient in zip(*each, strict=True)]


ONE_BY_ONE = frozenset({"CdistBackward0", "EuclideanDistBackward0", "ScaledDotProductFlashAttentionForCpuBackward0"})
"""Nodes whose batching rule in torch gives other gradients than autograd does, or that have none."""
