"""Autograd's graph, as far as it leads from an output to the places where gradients are wanted.

The only module that reads the attributes by which torch shows what is in a node. Where a version of torch does not have
one, `MissingAttributeError` is raised, and callers leave the node, or the whole graph, to autograd itself.
"""

import math
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge, get_gradient_edge

Node = Any  # torch's own type for nodes does not know what they have saved

CONVOLUTION = "ConvolutionBackward0"
COPIES = ("CloneBackward0", "AliasBackward0", "ToCopyBackward0")


class MissingAttributeError(AttributeError):
    """An attribute of autograd's nodes that this version of torch does not have."""


def read_attribute(node: Node, name: str) -> Any:
    try:
        return getattr(node, name)
    except AttributeError as error:
        raise MissingAttributeError(f"{type(node).__name__} has no {name} in torch {torch.__version__}.") from error


@contextmanager
def silence_fallback_warnings() -> Iterator[None]:
    """Within, torch does not tell the user that it takes the targets of a node one by one: so it shall."""
    switch = getattr(torch._C._functorch, "_set_vmap_fallback_warning_enabled", lambda _enabled: None)
    switch(False)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "There is a performance drop", UserWarning)
            yield
    finally:
        switch(True)


class OutputInfo(NamedTuple):
    """Shape, type and device of one output of a node, and so of the gradient that the node receives there."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device

    def zeros(self, *batch: int) -> Tensor:
        """A gradient of zeros, (*batch, *shape), that takes no memory."""
        return torch.zeros((), dtype=self.dtype, device=self.device).expand(*batch, *self.shape)


class Edge(NamedTuple):
    """An input of a node that leads on: its number, the node that made it, and the number of that node's output."""

    input: int
    node: Node
    output: int


@dataclass(eq=False)
class Step:
    """A node on the way from an output to the places where gradients are wanted."""

    node: Node
    name: str
    outputs: list[OutputInfo]
    edges: list[Edge]
    inputs: list[int]  # one for each edge
    arguments: list[int]  # their places in what the node's backward returns
    shape: tuple[int, ...]  # of the first output
    is_wanted: bool
    is_python: bool  # a `torch.autograd.Function` written in Python, which is called by `apply`
    above: list["Step"] = field(default_factory=list)
    below: list["Step"] = field(default_factory=list)  # one for each edge
    is_private: bool = False  # whether its gradient is of use only to the steps below, which may find it half done
    # what a rule that was made earlier, of the step above, tells the rule of this one:
    is_done: bool = False  # it does all that this one would do
    may_overwrite: bool = False  # the gradient that it gives is new, and nobody else's
    folded_norm: "Step | None" = None  # a BatchNorm that leaves its factors to this convolution

    def saved(self, name: str) -> Any:
        """What the forward pass saved under a name of torch's, e.g. "weight" in a convolution."""
        return read_attribute(self.node, f"_saved_{name}")


def steps_between(root: Node, wanted: Collection[Node]) -> list[Step]:
    """The nodes between the root and those wanted, each before the nodes that it leads to."""
    steps: dict[Node, Step | None] = {}
    order: list[Step] = []
    stack = [(root, False)]
    while stack:
        node, is_complete = stack.pop()
        if is_complete:
            edges = [Edge(i, *edge) for i, edge in enumerate(node.next_functions) if steps.get(edge[0])]
            if edges or node in wanted:
                outputs, inputs = output_infos(node), [edge.input for edge in edges]
                is_python, name, shape = not callable(node), str(node.name()), outputs[0].shape
                arguments = [tensor_argument(node, number) for number in inputs] if is_python else inputs
                steps[node] = step = Step(
                    node, name, outputs, edges, inputs, arguments, shape, node in wanted, is_python
                )
                order.append(step)
        elif node is not None and node not in steps:
            steps[node] = None
            stack += [(node, True), *((below, False) for below, _ in read_attribute(node, "next_functions"))]
    for step in order:
        step.below = [below for edge in step.edges if (below := steps[edge.node])]
        for below in step.below:
            below.above.append(step)
    for step in order:
        step.is_private = len(step.above) == 1 and not step.is_wanted
    return order[::-1]


def output_infos(node: Node) -> list[OutputInfo]:
    """What is known about each output of a node."""
    return [OutputInfo(tuple(m.shape), m.dtype, m.device) for m in read_attribute(node, "_input_metadata")]


def tensor_argument(node: Node, number: int) -> int:
    """The place, among all arguments of a Function written in Python, of the input that the node's edge leads to.

    Its backward returns something for every argument, while edges are of tensors alone.
    """
    leading = [index for index, (below, _) in enumerate(read_attribute(node, "next_functions")) if below is not None]
    needing = [index for index, needs in enumerate(read_attribute(node, "needs_input_grad")) if needs]
    return needing[leading.index(number)]


def graph_signature(
    steps: Sequence[Step], wanted: Sequence[GradientEdge], settings: Mapping[str, Sequence[str]]
) -> tuple[Any, ...]:
    """What must be equal for two graphs to be walked together; `settings` names what the rules read, by node."""
    order, nodes = {step.node: index for index, step in enumerate(steps)}, list[Any]()
    for step in steps:
        nodes += [step.name, step.shape, *[(edge.input, order[edge.node], edge.output) for edge in step.edges]]
        for name in settings.get(step.name, ()):
            nodes.append(step.saved(name))
        if step.name == CONVOLUTION:
            nodes.append(step.saved("weight").shape)
    return *nodes, *[(order.get(edge.node), edge.output_nr) for edge in wanted]


def graph_nodes(node: Node, beyond: Collection[Node] = ()) -> set[Node]:
    """A node of the graph and all that it leads to, but for those `beyond` and what only they lead to."""
    waiting, seen, excluded = [node], set[Node](), {None, *beyond}
    while waiting:
        node = waiting.pop()
        if node not in seen and node not in excluded:
            seen.add(node)
            waiting += [below for below, _ in read_attribute(node, "next_functions")]
    return seen


def count_graph_numbers(output: Tensor) -> int:
    """How many numbers a graph holds: the outputs of all its nodes, and the weights of which a rule makes copies."""
    numbers = 0
    for node in graph_nodes(output.grad_fn):
        numbers += sum(math.prod(metadata.shape) for metadata in read_attribute(node, "_input_metadata"))
        numbers += read_attribute(node, "_saved_weight").numel() if node.name() == CONVOLUTION else 0
    return numbers


def is_copy(tensor: Tensor, leaf: Tensor) -> bool:
    """Whether a tensor is the leaf, or was made of it by copying alone."""
    node: Node = get_gradient_edge(tensor).node
    end = get_gradient_edge(leaf).node
    while node is not end and node is not None and node.name() in COPIES:
        ((node, _),) = read_attribute(node, "next_functions")
    return node is end


def leads_around(output: Tensor, leaf: Tensor, gates: Collection[Tensor]) -> bool:
    """Whether a way leads from an output to the leaf that passes none of the gates."""
    passed = graph_nodes(get_gradient_edge(output).node, beyond=[get_gradient_edge(gate).node for gate in gates])
    return get_gradient_edge(leaf).node in passed
