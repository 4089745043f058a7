"""The backward pass for many targets at once, node by node.

Nodes that take the time have rules of ours. All others are autograd's own, with all targets in the batch by
`torch.func.vmap`, or one target at a time where a node cannot be batched: slower, never wrong.
"""

import math
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
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
    is_python_function,
    output_infos,
    silence_fallback_warnings,
    steps_between,
    tensor_argument,
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
        with expect_slow_batching():
            return self.walk(cotangents)

    def walk(self, cotangents: Tensor) -> list[Tensor]:
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


@contextmanager
def expect_slow_batching() -> Iterator[None]:
    """Within, torch does not tell the user that it takes a node's targets one by one: so it shall."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "There is a performance drop", UserWarning)
        yield


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
    one_by_one = steps[0].name in ONE_BY_ONE or is_python_function(steps[0].node)  # vmap knows not what Python does
    return partial(autograd_gradients, [autograd_step(step) for step in steps], one_by_one)


def autograd_step(step: Step) -> Callable[[Gradients], list[Tensor]]:
    """What autograd does at the node, for one target of one network."""
    below = [(edge.input, one.outputs[edge.output]) for edge, one in zip(step.edges, step.below, strict=True)]
    if is_python_function(step.node):
        return partial(python_gradients, step, [(tensor_argument(step.node, number), info) for number, info in below])

    def pull(gradients: Gradients) -> list[Tensor]:
        found = step.node(*(gradients.get(place) for place in range(len(step.outputs))))
        found = found if isinstance(found, tuple) else (found,)
        return [info.zeros() if found[number] is None else found[number] for number, info in below]

    return pull


def python_gradients(step: Step, below: Sequence[tuple[int, OutputInfo]], gradients: Gradients) -> list[Tensor]:
    """What a Function written in Python does: it is given zeros where no gradient comes, as autograd does it."""
    given = (gradients[place] if place in gradients else info.zeros() for place, info in enumerate(step.outputs))
    found = step.node.apply(*given)
    found = found if isinstance(found, tuple) else (found,)
    return [info.zeros() if found[number] is None else found[number] for number, info in below]


def autograd_gradients(
    networks: Sequence[Callable[[Gradients], list[Tensor]]], one_by_one: bool, gradients: Gradients
) -> list[Tensor]:
    """What autograd does at the node, in one network after the other: all targets at once where the node allows it."""
    by_network = []
    for s, pull in enumerate(networks):
        own = {place: gradient[:, s] for place, gradient in gradients.items()}
        try:
            by_network.append(target_by_target(pull, own) if one_by_one else all_targets(pull, own))
        except (RuntimeError, NotImplementedError):  # no batching rule, ...
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
