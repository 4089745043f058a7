"""The graph that autograd recorded, as far as it leads where gradients are wanted."""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

CONVOLUTION = "ConvolutionBackward0"

Node = Any  # torch's type for nodes does not know what they have saved


@dataclass(eq=False)
class Step:
    """A node on the way from an output to those where gradients are wanted."""

    node: Node
    edges: list[tuple[int, Node, int]]  # which of its inputs lead on, each to which output of which node
    wanted: bool
    above: list["Step"] = field(default_factory=list)
    below: list["Step"] = field(default_factory=list)

    @cached_property
    def name(self) -> str:
        return str(self.node.name())

    @property
    def inputs(self) -> list[int]:
        return [i for i, *_ in self.edges]

    @cached_property
    def shape(self) -> Sequence[int]:
        """That of the first output."""
        return tuple(self.node._input_metadata[0].shape)


def leading_to(wanted: Collection[Node], root: Node) -> list[Step]:
    """The nodes between the root and those wanted, each before those that follow it."""
    found: dict[Node, Step | None] = {}
    order: list[Step] = []
    stack = [(root, False)]
    while stack:
        node, complete = stack.pop()
        if complete:
            edges = [(i, *edge) for i, edge in enumerate(node.next_functions) if found.get(edge[0])]
            if edges or node in wanted:
                found[node] = step = Step(node, edges, node in wanted)
                order.append(step)
        elif node is not None and node not in found:
            found[node] = None
            stack += [(node, True), *((below, False) for below, _ in node.next_functions)]
    for step in order:
        step.below = [below for _, node, _ in step.edges if (below := found[node])]
        for below in step.below:
            below.above.append(step)
    return order[::-1]


def held(output: Any) -> int:
    """How many numbers the outputs of all nodes behind an output have, and the weights of which a rule makes copies."""
    found: set[Node] = set()
    waiting = [getattr(output, "grad_fn", None)]
    numbers = 0
    while waiting:
        node = waiting.pop()
        if node is not None and node not in found:
            found.add(node)
            waiting += [below for below, _ in node.next_functions]
            numbers += sum(math.prod(about.shape) for about in node._input_metadata)
            numbers += node._saved_weight.numel() if node.name() == CONVOLUTION else 0
    return numbers
