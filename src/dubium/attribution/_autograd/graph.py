"""Ways through autograd's graph, from an output back to the image."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any, NamedTuple

from torch import Tensor
from torch.autograd.graph import GradientEdge, get_gradient_edge

from dubium.attribution._autograd.nodes import (
    COPIES,
    BackwardNode,
    Node,
    NodeInput,
    count_elements,
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


class OutputIndex(NamedTuple):
    """An output of a node of a graph."""

    node: int  # the node's index
    output: int  # the number of its output


class Operation(NamedTuple):
    """What the operation behind a node did. Equal operations do equal things to axes and to gradients."""

    name: str  # torch's, without "Backward0"
    output_shapes: tuple[tuple[int, ...], ...]
    inputs: tuple[NodeInput, ...]
    axis_arguments: tuple[Any, ...] | None  # see `read_axis_arguments`
    saved: tuple[Any, ...]  # what gradient rules need; of tensors, their shapes
    is_python: bool  # a `torch.autograd.Function` written in Python


class Graph:
    """The nodes between some outputs and the `wanted` nodes, each after the nodes that made its inputs."""

    def __init__(self, outputs: Iterable[GradientEdge], wanted: Collection[Node]) -> None:
        self.nodes, self.index_of_node = list[BackwardNode](), dict[Node | None, int]()
        for node, next_nodes in inputs_first([edge.node for edge in outputs]):
            inputs = [
                NodeInput(i, self.index_of_node[below], output_nr)
                for i, (below, output_nr) in enumerate(next_nodes)
                if below in self.index_of_node
            ]
            if inputs or node in wanted:
                self.index_of_node[node] = len(self.nodes)
                producers = [self.nodes[each.producer] for each in inputs]
                for producer in producers:
                    producer.use_count += 1
                self.nodes.append(read_node(node, inputs, producers))

    @cached_property
    def operations(self) -> tuple[Operation, ...]:
        """What each node's operation did. Graphs of equal operations can be walked together."""
        return tuple([describe_operation(node) for node in self.nodes])

    def find_output(self, edge: GradientEdge) -> OutputIndex | None:
        """The output at an edge; None if it is not in this graph."""
        index = self.index_of_node.get(edge.node)
        return None if index is None else OutputIndex(index, edge.output_nr)


def describe_operation(node: BackwardNode) -> Operation:
    name = operation_name(node.name)
    return Operation(
        name,
        tuple([info.shape for info in node.outputs]),
        tuple(node.inputs),
        read_axis_arguments(node.autograd_node, name),
        tuple([value.shape if isinstance(value, Tensor) else value for value in node.saved.values()]),
        node.is_python,
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


def count_graph_elements(output: Tensor) -> int:
    """How many elements a graph holds: of the outputs of all its nodes, and of the weights that a rule copies."""
    return sum([count_elements(node) for node in graph_nodes(output.grad_fn)])


def is_copy(edge: GradientEdge, leaf: Tensor) -> bool:
    """Whether the tensor at an edge is the leaf, or was made of it by copying alone."""
    node: Node = edge.node
    end = get_gradient_edge(leaf).node
    while node is not end and node is not None and node.name() in COPIES:
        ((node, _),) = next_edges(node)
    return node is end


def bypasses(output: Tensor, leaf: Tensor, gates: Collection[GradientEdge]) -> bool:
    """Whether a way leads from an output to the leaf that passes none of the gates."""
    passed = graph_nodes(get_gradient_edge(output).node, stop_at=[gate.node for gate in gates])
    return get_gradient_edge(leaf).node in passed
