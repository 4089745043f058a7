"""Gradients of all targets at once: the way back through the graph of a forward pass.

The graph is walked node by node. Nodes that take the time have rules of ours. All others are autograd's own, with all
targets in the batch by `torch.func.vmap`, or one target at a time where a node cannot be batched.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge

from dubium.attribution._autograd.autograd_backward import AutogradBackward
from dubium.attribution._autograd.graph import Graph
from dubium.attribution._autograd.nodes import (
    BackwardNode,
    MissingAttributeError,
    OutputInfo,
    Reduction,
    call_batched,
    refuse_operation,
    silence_fallback_warnings,
    tensor_argument,
    zeros_at,
)
from dubium.attribution._autograd.rules import GRADIENT_RULES, GradientRule, stack_or_unsqueeze
from dubium.attribution._budget import ROW_PEAK_FACTOR, images_per_pass, targets_at_once
from dubium.attribution._context import DEFAULT_MEMORY
from dubium.attribution._passes import forward_with_graph
from dubium.attribution._target import split_images
from dubium.types import Images, Scores, Target

Gradients = dict[int, Tensor]
"""Gradients at the outputs of a node, by the output's number."""

ONE_BY_ONE = frozenset({"CdistBackward0", "EuclideanDistBackward0", "ScaledDotProductFlashAttentionForCpuBackward0"})
"""Nodes without a batching rule in torch, or with one that disagrees with autograd."""


def pixel_gradients(
    network: nn.Module,
    x: Images,
    target: Target,
    *,
    memory: int = DEFAULT_MEMORY,
    finish: Callable[[Float[Tensor, "b T C H W"], Images], Tensor] = lambda gradients, _images: gradients,
) -> Float[Tensor, "B T *rest"]:
    """The gradient of each target at each pixel, (B, T, C, H, W), or what `finish` makes of some images' gradients."""
    gradients: list[Tensor] = []
    for images, chunk_target in split_images(x, target, images_per_pass(network, x, target, memory)):
        leaf, scores = forward_with_graph(network, images, chunk_target)
        chunks = [chunk for (chunk,) in gradients_at(scores, [leaf], memory)]
        gradients.append(finish(torch.cat(chunks).movedim(0, 1), images))
    return torch.cat(gradients)


def gradients_at(scores: Scores, leaves: Sequence[Tensor], memory: int) -> Iterator[Sequence[Tensor]]:
    """Gradients of the scores at each leaf, (T, *shape) each, for as many targets at a time as the memory allows."""
    edges = [get_gradient_edge(leaf) for leaf in leaves]
    return reduced_gradients([scores], [edges], [lambda gradient: gradient[:, 0]] * len(leaves), memory)


def reduced_gradients(
    scores: Sequence[Scores],
    wanted: Sequence[Sequence[GradientEdge]],
    reductions: Sequence[Reduction],
    memory: int,
    graphs: Sequence[Graph] = (),
) -> Iterator[Sequence[Tensor]]:
    """`reductions[i]` of the gradients (T, S, ...) at edge i of the networks' graphs, for some targets at a time.

    Args:
        scores: of each network, with its graph.
        wanted: of each network, the edges at which gradients are wanted.
        graphs: from the scores of each network to these edges, if they are listed already.
    """
    backward: Backward | AutogradBackward
    try:
        graphs = graphs or [
            Graph([get_gradient_edge(output)], {edge.node for edge in edges})
            for output, edges in zip(scores, wanted, strict=True)
        ]
        backward = Backward(scores[0], wanted[0], reductions, graphs)
    except MissingAttributeError:
        backward = AutogradBackward(scores, wanted, reductions)
    image_count, targets = scores[0].shape
    eye = torch.eye(targets, dtype=scores[0].dtype, device=scores[0].device)
    cotangents = eye[:, None, None].expand(-1, len(scores), image_count, -1)
    per_target = ROW_PEAK_FACTOR * len(scores) * backward.largest_output * scores[0].element_size()
    for chunk in cotangents.split(targets_at_once(targets, per_target, memory)):
        yield backward(chunk)


class Backward:
    """Gradients of several networks' outputs, (T, S, *shape) each, at the edges `wanted` of their graphs.

    The graphs are of one architecture (their operations are equal) and are walked together. Each gradient is handed to
    its `reductions` function while it is at hand, so that none has to be kept.

    Args:
        output, wanted: of the first network; in the other graphs, nodes have the same indices.
        graphs: of each network, from its output to the wanted edges.
    """

    @torch.no_grad()
    def __init__(
        self,
        output: Tensor,
        wanted: Sequence[GradientEdge],
        reductions: Sequence[Reduction],
        graphs: Sequence[Graph],
    ) -> None:
        first = graphs[0]
        self.output, self.wanted, self.reductions = first.find_output(get_gradient_edge(output)), wanted, reductions
        self.wanted_at: dict[int, list[tuple[int, int]]] = defaultdict(list)  # by node: which edge, at which output
        for number, edge in enumerate(wanted):
            if (found := first.find_output(edge)) is not None:
                self.wanted_at[found.node].append((number, found.output))
        for graph in graphs:
            for index, node in enumerate(graph.nodes):
                node.may_be_fused = node.use_count == 1 and index not in self.wanted_at
                node.is_absorbed, node.may_overwrite, node.absorbed_batch_norm = False, False, None
        self.steps: list[tuple[int, Sequence[BackwardNode], list[OutputInfo], GradientRule | None]] = []
        for index in reversed(range(len(first.nodes))):
            nodes = [graph.nodes[index] for graph in graphs]
            node = nodes[0]
            has_rule = bool(node.inputs) and node.is_readable and node.name in GRADIENT_RULES
            rule = GRADIENT_RULES[node.name](nodes) if has_rule else None
            infos = [by.outputs[each.output_nr] for by, each in zip(node.producers, node.inputs, strict=True)]
            self.steps.append((index, nodes, infos, rule))
        self.all_have_rules = all(rule is not None for _, nodes, _, rule in self.steps if nodes[0].inputs)
        self.largest_output = max((math.prod(info.shape) for node in first.nodes for info in node.outputs), default=1)

    @torch.no_grad()
    def __call__(self, cotangents: Tensor) -> list[Tensor]:
        """The reduced gradients at all wanted edges, from cotangents (T, S, *shape of the output)."""
        gradients_by_node: dict[int, Gradients] = defaultdict(dict)
        reduced: dict[int, Tensor] = {}
        if self.output is not None:
            gradients_by_node[self.output.node][self.output.output] = cotangents
        with nullcontext() if self.all_have_rules else silence_fallback_warnings():
            for index, nodes, input_infos, rule in self.steps:
                gradients, inputs = gradients_by_node.pop(index), nodes[0].inputs
                for number, output_nr in self.wanted_at.get(index, ()):
                    if output_nr in gradients:
                        reduced[number] = self.reductions[number](gradients[output_nr])
                if not inputs:
                    continue
                at_inputs = node_gradients(nodes, input_infos, gradients) if rule is None else rule(gradients[0])
                for (_, producer, output_nr), info, gradient in zip(inputs, input_infos, at_inputs, strict=True):
                    at_outputs = gradients_by_node[producer]
                    if gradient.shape[2:] != info.shape:  # the node had broadcast its input
                        gradient = sum_to_shape(gradient, info.shape)
                    gradient = gradient.real if gradient.is_complex() and not info.dtype.is_complex else gradient
                    gradient = gradient.to(info.dtype)
                    is_first = output_nr not in at_outputs
                    at_outputs[output_nr] = gradient if is_first else at_outputs[output_nr] + gradient
        for number, edge in enumerate(self.wanted):
            if number not in reduced:  # no way leads there
                reduced[number] = self.reductions[number](zeros_at(edge, *cotangents.shape[:2]))
        return [reduced[number] for number in range(len(self.wanted))]


def sum_to_shape(gradient: Tensor, shape: tuple[int, ...]) -> Tensor:
    """The gradient (T, S, ...), summed over the axes along which a tensor of this shape was broadcast."""
    more = gradient.ndim - 2 - len(shape)
    gradient = gradient.flatten(2, 1 + more).sum(2) if more else gradient
    return gradient.sum_to_size(*gradient.shape[:2], *shape)


def node_gradients(
    nodes: Sequence[BackwardNode], input_infos: Sequence[OutputInfo], gradients: Gradients
) -> list[Tensor]:
    """What autograd does at the node, in one network after the other: all targets at once where the node allows it."""
    one_by_one = nodes[0].name in ONE_BY_ONE or nodes[0].is_python  # a Function in Python cannot be vmapped
    by_network = []
    for s, node in enumerate(nodes):
        one_network = {output_nr: gradient[:, s] for output_nr, gradient in gradients.items()}
        backward = partial(call_node, node, input_infos)
        try:
            by_network.append((target_by_target if one_by_one else call_batched)(backward, one_network))
        except (RuntimeError, NotImplementedError):  # no batching rule, ...
            try:
                by_network.append(target_by_target(backward, one_network))
            except torch.OutOfMemoryError:
                raise
            except (RuntimeError, NotImplementedError) as error:
                refuse_operation(f"the networks ({node.name})", error)
    return [stack_or_unsqueeze(gradient, 1) for gradient in zip(*by_network, strict=True)]


def call_node(node: BackwardNode, input_infos: Sequence[OutputInfo], gradients: Gradients) -> list[Tensor]:
    """The gradients at the inputs that lead on, by autograd itself, for one target of one network."""
    if node.is_python:  # it is given zeros where no gradient comes, as autograd does it
        outputs = enumerate(node.outputs)
        returned = node.autograd_node.apply(
            *[gradients[nr] if nr in gradients else info.zeros() for nr, info in outputs]
        )
    else:
        returned = node.autograd_node(*[gradients.get(nr) for nr in range(len(node.outputs))])
    returned = returned if isinstance(returned, tuple) else (returned,)
    input_numbers = [each.input_nr for each in node.inputs]
    if node.is_python:
        input_numbers = [tensor_argument(node.autograd_node, number) for number in input_numbers]
    at_inputs = [returned[number] for number in input_numbers]
    return [
        info.zeros() if gradient is None else gradient for gradient, info in zip(at_inputs, input_infos, strict=True)
    ]


def target_by_target(backward: Callable[[Gradients], list[Tensor]], gradients: Gradients) -> list[Tensor]:
    """As `call_batched`, by one call for each target."""
    targets = len(next(iter(gradients.values())))
    each = [backward({nr: gradient[t] for nr, gradient in gradients.items()}) for t in range(targets)]
    return [torch.stack(gradient) for gradient in zip(*each, strict=True)]
