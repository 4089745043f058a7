"""The graph that autograd recorded, as far as it leads to some leaves."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

Node = Any  # torch's type for nodes does not know what they have saved


@dataclass(eq=False)
class Step:
    """A node on the way from an output to the leaves."""

    node: Node
    edges: list[tuple[int, Node, int]]  # which of its inputs lead on, each to which output of which node
    above: list["Step"] = field(default_factory=list)
    below: list["Step"] = field(default_factory=list)

    @property
    def name(self) -> str:
        return str(self.node.name())

    @property
    def inputs(self) -> list[int]:
        return [i for i, *_ in self.edges]

    @property
    def shape(self) -> Sequence[int]:
        """That of the first output."""
        return tuple(self.node._input_metadata[0].shape)


def leading_to(leaves: Sequence[Tensor], root: Node) -> list[Step]:
    """The nodes between the root and the leaves, each before those that follow it."""
    wanted = {id(leaf) for leaf in leaves}
    found: dict[Node, Step | None] = {}
    order: list[Step] = []
    stack = [(root, False)]
    while stack:
        node, complete = stack.pop()
        if complete:
            edges = [(i, *edge) for i, edge in enumerate(node.next_functions) if found.get(edge[0])]
            if edges or id(getattr(node, "variable", None)) in wanted:
                found[node] = step = Step(node, edges)
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
    """How many numbers the outputs of all nodes behind an output have: about what they keep."""
    found: set[Node] = set()
    waiting = [getattr(output, "grad_fn", None)]
    while waiting:
        node = waiting.pop()
        if node is not None and node not in found:
            found.add(node)
            waiting += [below for below, _ in node.next_functions]
    return sum(math.prod(about.shape) for node in found for about in node._input_metadata)
