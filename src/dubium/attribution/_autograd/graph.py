"""The part of autograd's graph that leads from an output to the places where gradients are wanted."""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from torch import Tensor
from torch.autograd.graph import GradientEdge, get_gradient_edge

from dubium.attribution._autograd.nodes import Node, OutputInfo, next_nodes, outputs_of, saved

CONVOLUTION = "ConvolutionBackward0"
COPIES = ("CloneBackward0", "AliasBackward0", "ToCopyBackward0")


class Edge(NamedTuple):
    """An input of a node that leads on: its number, and the output of another node that it is."""

    input: int
    node: Node
    output: int


@dataclass(eq=False)
class Step:
    """A node on the way from an output to the places where gradients are wanted."""

    node: Node
    edges: list[Edge]
    wanted: bool
    above: list["Step"] = field(default_factory=list)
    below: list["Step"] = field(default_factory=list)

    @cached_property
    def name(self) -> str:
        return str(self.node.name())

    @cached_property
    def outputs(self) -> list[OutputInfo]:
        return outputs_of(self.node)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the first output."""
        return self.outputs[0].shape

    @property
    def inputs(self) -> list[int]:
        """Numbers of the inputs that lead on."""
        return [edge.input for edge in self.edges]

    def saved(self, name: str) -> Any:
        return saved(self.node, name)


def steps_between(root: Node, wanted: Collection[Node]) -> list[Step]:
    """The nodes between the root and those wanted, each before the nodes that it leads to."""
    steps: dict[Node, Step | None] = {}
    order: list[Step] = []
    stack = [(root, False)]
    while stack:
        node, is_complete = stack.pop()
        if is_complete:
            edges = [Edge(i, *edge) for i, edge in enumerate(next_nodes(node)) if steps.get(edge[0])]
            if edges or node in wanted:
                steps[node] = step = Step(node, edges, node in wanted)
                order.append(step)
        elif node is not None and node not in steps:
            steps[node] = None
            stack += [(node, True), *((below, False) for below, _ in next_nodes(node))]
    for step in order:
        step.below = [below for edge in step.edges if (below := steps[edge.node])]
        for below in step.below:
            below.above.append(step)
    return order[::-1]


def unlink(steps: Sequence[Step]) -> None:
    """Cut the links between neighbours: rings would keep the graph alive until Python collects them."""
    for step in steps:
        step.above.clear()
        step.below.clear()


def graph_signature(
    steps: Sequence[Step], wanted: Sequence[GradientEdge], settings: dict[str, tuple[str, ...]]
) -> tuple[Any, ...]:
    """What must be equal for two graphs to be walked together; `settings` names what the rules read, by node."""
    order = {step.node: index for index, step in enumerate(steps)}
    nodes = tuple(
        (
            step.name,
            step.shape,
            tuple((edge.input, order[edge.node], edge.output) for edge in step.edges),
            tuple(step.saved(name) for name in settings.get(step.name, ())),
            step.saved("weight").shape if step.name == CONVOLUTION else None,
        )
        for step in steps
    )
    return nodes, tuple((order.get(edge.node), edge.output_nr) for edge in wanted)


def is_copy(tensor: Tensor, leaf: Tensor) -> bool:
    """Whether a tensor is the leaf, or was made of it by copying alone."""
    node, end = get_gradient_edge(tensor).node, get_gradient_edge(leaf).node
    while node is not end and node is not None and node.name() in COPIES:
        ((node, _),) = next_nodes(node)
    return node is end


def leads_around(output: Tensor, leaf: Tensor, gates: Collection[Tensor]) -> bool:
    """Whether a way leads from an output to the leaf that passes none of the gates."""
    end, waiting = get_gradient_edge(leaf).node, [get_gradient_edge(output).node]
    seen = {get_gradient_edge(gate).node for gate in gates}
    while waiting:
        node = waiting.pop()
        if node is end:
            return True
        if node is not None and node not in seen:
            seen.add(node)
            waiting += [below for below, _ in next_nodes(node)]
    return False


def count_graph_numbers(output: Any) -> int:
    """How many numbers a graph holds: the outputs of all its nodes, and the weights of which a rule makes copies."""
    seen: set[Node] = set()
    waiting = [output.grad_fn if isinstance(output, Tensor) else None]
    numbers = 0
    while waiting:
        node = waiting.pop()
        if node is not None and node not in seen:
            seen.add(node)
            waiting += [below for below, _ in next_nodes(node)]
            numbers += sum(math.prod(info.shape) for info in outputs_of(node))
            numbers += saved(node, "weight").numel() if node.name() == CONVOLUTION else 0
    return numbers
