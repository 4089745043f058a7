"""Ways through autograd's graph, from an output back to the image."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any, NamedTuple

from torch import Tensor
from torch.autograd.graph import GradientEdge, get_gradient_edge

from dubium.attribution._autograd.nodes import (
    COPIES,
    TOLD_BY_BACKWARD,
    BackwardNode,
    Node,
    NodeInput,
    count_numbers,
    next_edges,
    operation_name,
    read_axis_arguments,
    read_node,
)


def inputs_first(
    roots: Iterable[Node], stop_at: Collection[Node] = ()
) -> Iterator[tuple[Node, Sequence[tuple[Node | None, int]]]]:
    """The roots and all nodes that they lead to, each with its edges, after the nodes that made its inputs.

    Nodes in `stop_at`, and those that only they lead to, are left out.
    """
    seen = set(stop_at)
    stack: list[tuple[Node, Sequence[tuple[Node | None, int]] | None]] = [(root, None) for root in roots]
    while stack:
        node, edges = stack.pop()
        if edges is not None:  # all that it leads to was given
            yield node, edges
        elif node not in seen:
            seen.add(node)
            edges = next_edges(node)
            stack.append((node, edges))
            stack += [(below, None) for below, _ in edges if below is not None and below not in seen]


class Operation(NamedTuple):
    """What the operation behind a node did: the same in the graphs of networks of one architecture."""

    name: str  # torch's, without "Backward0"
    output_shapes: tuple[tuple[int, ...], ...]
    inputs: tuple[NodeInput, ...]
    axis_arguments: tuple[Any, ...] | None  # see `read_axis_arguments`
    saved: tuple[Any, ...]  # what gradient rules need; of tensors, their shapes
    is_python: bool  # a `torch.autograd.Function` written in Python
    runnable_node: Node | None  # if only running its backward tells all that it did to axes


class Graph:
    """The nodes between some outputs and the `ends`, each after the nodes that made its inputs.

    A node's number is its index in `nodes`.
    """

    def __init__(self, outputs: Iterable[GradientEdge], ends: Collection[Node]) -> None:
        self.nodes, self.numbers = list[BackwardNode](), dict[Node | None, int]()
        for node, next_nodes in inputs_first([edge.node for edge in outputs]):
            inputs = [
                NodeInput(i, self.numbers[below], output_nr)
                for i, (below, output_nr) in enumerate(next_nodes)
                if below in self.numbers
            ]
            if inputs or node in ends:
                self.numbers[node] = len(self.nodes)
                producers = [self.nodes[each.producer_nr] for each in inputs]
                for producer in producers:
                    producer.use_count += 1
                self.nodes.append(read_node(node, inputs, producers))

    @cached_property
    def operations(self) -> tuple[Operation, ...]:
        """What each node's operation did. Graphs of equal operations can be walked together."""
        return tuple([describe_operation(node) for node in self.nodes])

    def find_output(self, edge: GradientEdge) -> tuple[int, int] | None:
        """The number of the node at an edge, and of its output; None if the edge is not in this graph."""
        number = self.numbers.get(edge.node)
        return None if number is None else (number, edge.output_nr)


def describe_operation(node: BackwardNode) -> Operation:
    name = operation_name(node.name)
    return Operation(
        name,
        tuple([info.shape for info in node.outputs]),
        tuple(node.inputs),
        read_axis_arguments(node.autograd_node, name),
        tuple([value.shape if isinstance(value, Tensor) else value for value in node.saved.values()]),
        node.is_python,
        node.autograd_node if name in TOLD_BY_BACKWARD else None,
    )


def graph_nodes(node: Node, stop_at: Collection[Node] = ()) -> set[Node]:
    """A node of the graph and all that it leads to, but for `stop_at` and what only these lead to."""
    return {each for each, _ in inputs_first([node], stop_at)}


def last_operation(output: Tensor, skip: Collection[str]) -> str:
    """The operation that made the output's last column, those in `skip` passed over; "" if there is none."""
    node: Node | None = output.grad_fn
    while node is not None and node.name() in skip:
        node = next_edges(node)[-1][0]
    return "" if node is None else str(node.name())


def count_graph_numbers(output: Tensor) -> int:
    """How many numbers a graph holds: the outputs of all its nodes, and the weights of which a rule makes copies."""
    return sum([count_numbers(node) for node in graph_nodes(output.grad_fn)])


def is_copy(edge: GradientEdge, leaf: Tensor) -> bool:
    """Whether the tensor at an edge is the leaf, or was made of it by copying alone."""
    node: Node = edge.node
    end = get_gradient_edge(leaf).node
    while node is not end and node is not None and node.name() in COPIES:
        ((node, _),) = next_edges(node)
    return node is end


def leads_around(output: Tensor, leaf: Tensor, gates: Collection[GradientEdge]) -> bool:
    """Whether a way leads from an output to the leaf that passes none of the gates."""
    passed = graph_nodes(get_gradient_edge(output).node, stop_at=[gate.node for gate in gates])
    return get_gradient_edge(leaf).node in passed
