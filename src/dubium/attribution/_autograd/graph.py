"""Ways through autograd's graph, from an output back to the image."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from torch import Tensor
from torch.autograd.graph import GradientEdge, get_gradient_edge

from dubium.attribution._autograd.nodes import (
    COPIES,
    TOLD_BY_BACKWARD,
    BackwardNode,
    Edge,
    Node,
    count_numbers,
    next_edges,
    operation_name,
    output_shapes,
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


def nodes_between(root: Node, wanted: Collection[Node]) -> list[BackwardNode]:
    """The nodes between the root and those wanted, each before the nodes that it leads to."""
    output_shapes(root)  # raises an error here if torch does not show its graph
    found: dict[Node | None, BackwardNode] = {}
    for node, next_nodes in inputs_first([root]):
        edges = [Edge(i, below, output) for i, (below, output) in enumerate(next_nodes) if below in found]
        if edges or node in wanted:
            found[node] = read_node(node, edges)
    for backward_node in found.values():
        backward_node.input_nodes = [found[edge.node] for edge in backward_node.edges]
        for producer in backward_node.input_nodes:
            producer.output_nodes.append(backward_node)
    for backward_node in found.values():
        backward_node.has_one_use = len(backward_node.output_nodes) == 1 and backward_node.autograd_node not in wanted
    return [*reversed(found.values())]


class FeatureInput(NamedTuple):
    """An input of a node that depends on the images."""

    input_nr: int  # among all inputs of its node
    producer_nr: int  # of the node that made it, by its place in the graph
    output_nr: int  # among the outputs of that node


class FeatureNode(NamedTuple):
    """What a node on the way from the images to a feature did to axes. In graphs of equal nodes the same is done."""

    name: str  # of its operation
    shapes: tuple[tuple[int, ...], ...]  # of its outputs
    inputs: tuple[FeatureInput, ...]
    saved: tuple[Any, ...] | None  # of the axes, see `read_axis_arguments`
    is_python: bool  # a `torch.autograd.Function` written in Python
    runnable_node: Node | None  # if only running its backward tells all that it did; such graphs are not remembered


def nodes_after(leaf: Tensor, edges: Iterable[GradientEdge]) -> tuple[list[Node], tuple[FeatureNode, ...]]:
    """The nodes between a leaf of the graph, which comes first, and some edges of it, each after those that made its
    inputs: torch's own, and what they did."""
    start = get_gradient_edge(leaf).node
    found, numbers = [FeatureNode("leaf", tuple(output_shapes(start)), (), (), False, None)], {start: 0}
    for node, next_nodes in inputs_first([edge.node for edge in edges], stop_at=[start]):
        name = operation_name(node.name())
        inputs = [FeatureInput(i, numbers[below], nr) for i, (below, nr) in enumerate(next_nodes) if below in numbers]
        runnable_node = node if name in TOLD_BY_BACKWARD else None
        saved, is_python = read_axis_arguments(node, name), not callable(node)
        numbers[node] = len(found)
        found.append(FeatureNode(name, tuple(output_shapes(node)), tuple(inputs), saved, is_python, runnable_node))
    return [*numbers], tuple(found)


def graph_signature(graph: Sequence[BackwardNode], wanted: Sequence[GradientEdge]) -> tuple[Any, ...]:
    """What must be equal for two graphs to be walked together."""
    order, signature = {node.autograd_node: index for index, node in enumerate(graph)}, list[Any]()
    for node in graph:
        signature += [
            node.name,
            node.shape,
            *[(edge.input_nr, order[edge.node], edge.output_nr) for edge in node.edges],
        ]
        signature += [value.shape if isinstance(value, Tensor) else value for value in node.saved.values()]
    return *signature, *[(order.get(edge.node), edge.output_nr) for edge in wanted]


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
