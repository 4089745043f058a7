"""Autograd's graph, as far as it leads from an output to the places where gradients are wanted.

The only module that reads the attributes by which torch shows what is in a node. Where a version of torch does not have
what a rule needs, the node is not readable, and is left to autograd itself. Where it does not show the graph,
`MissingAttributeError` is raised, and callers leave the whole graph to autograd.
"""

import math
import warnings
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple, NoReturn

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge, get_gradient_edge

from dubium.errors import NetworkError

Node = Any  # torch's own type for nodes does not know what they have saved
Reduction = Callable[[Tensor], Tensor]
"""What is wanted of a gradient (T, S, *shape)."""

CONVOLUTION, BATCH_NORM = "ConvolutionBackward0", "NativeBatchNormBackward0"
RELU, MAX_POOLING = "ReluBackward0", "MaxPool2DWithIndicesBackward0"
DENSE, PRODUCT, ADDITION = "AddmmBackward0", "MmBackward0", "AddBackward0"
MEAN, SLICE = "MeanBackward1", "SliceBackward0"
RESHAPES = ("ViewBackward0", "UnsafeViewBackward0", "ReshapeAliasBackward0")
COPIES = ("CloneBackward0", "AliasBackward0", "ToCopyBackward0")
FLIP, TURN, PERMUTATION, TRANSPOSITION = "FlipBackward0", "Rot90Backward0", "PermuteBackward0", "TransposeBackward0"

SAVED: dict[str, tuple[str, ...]] = {
    CONVOLUTION: ("weight", "stride", "padding", "dilation", "groups", "transposed"),
    BATCH_NORM: ("training", "running_var", "eps", "weight"),
    RELU: ("result",),
    MAX_POOLING: ("self", "result1", "kernel_size", "stride", "padding", "dilation", "ceil_mode"),
    DENSE: ("alpha", "mat2"),
    PRODUCT: ("mat2",),
    ADDITION: ("alpha",),
    MEAN: ("self_sym_sizes", "dim"),
    **dict.fromkeys((SLICE, *RESHAPES), ("self_sym_sizes",)),
}
"""What the rules need of what the forward pass saved, by node, under torch's own names."""

MOVED_AXES: dict[str, tuple[str, ...]] = {
    FLIP: ("dims",),
    TURN: ("dims", "k"),
    PERMUTATION: ("dims",),
    TRANSPOSITION: ("dim0", "dim1"),
}
"""What nodes that move axes have saved of it."""


disable_torch_function = getattr(torch._C, "DisableTorchFunction", nullcontext)
"""Context manager that disables `__torch_function__`: reading `.shape` or `.grad_fn` inside reaches no
`TorchFunctionMode`."""


class MissingAttributeError(AttributeError):
    """An attribute of autograd's nodes that this version of torch does not have."""


def read_attribute(node: Node, name: str) -> Any:
    try:
        return getattr(node, name)
    except AttributeError as error:
        raise MissingAttributeError(f"{type(node).__name__} has no {name} in torch {torch.__version__}.") from error


def refuse_operation(owner: str, error: Exception) -> NoReturn:
    """Say that autograd cannot differentiate an operation, whatever it raised; `owner` says whose it is."""
    advice = (
        "What it needs was overwritten: write y = y + x for y += x, and nn.ReLU() for nn.ReLU(inplace=True), there."
        if "inplace operation" in str(error)
        else "If its gradient is not wanted, detach its input."
    )
    raise NetworkError(f"Autograd cannot differentiate an operation of {owner}: {error}. {advice}") from error


@contextmanager
def silence_fallback_warnings() -> Iterator[None]:
    """Within, vmap does not warn that it takes the targets of a node one by one: that is intended."""
    switch = getattr(torch._C._functorch, "_set_vmap_fallback_warning_enabled", lambda _enabled: None)
    switch(False)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "There is a performance drop", UserWarning)
            yield
    finally:
        switch(True)


@cache
def find_batching() -> Any:
    """torch's functions that `torch.func.vmap` is made of; None where this version of torch has others."""
    torch.func.vmap(torch.neg)(torch.zeros(1))  # the first call loads rules that are written in Python
    names = ("_vmap_increment_nesting", "_vmap_decrement_nesting", "_add_batch_dim", "_remove_batch_dim")
    functions = torch._C._functorch
    return functions if all(hasattr(functions, name) for name in names) else None


def call_batched(function: Callable[[dict[int, Tensor]], list[Tensor]], tensors: dict[int, Tensor]) -> list[Tensor]:
    """As `torch.func.vmap(function)(tensors)`, in a tenth of the time: most of vmap's is its own."""
    batching, targets = find_batching(), len(next(iter(tensors.values())))
    if batching is None:
        out: list[Tensor] = torch.func.vmap(function)(tensors)
        return out
    level = batching._vmap_increment_nesting(targets, "error")
    try:
        out = function({number: batching._add_batch_dim(value, 0, level) for number, value in tensors.items()})
        return [batching._remove_batch_dim(value, level, targets, 0) for value in out]
    finally:
        batching._vmap_decrement_nesting()


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


@dataclass(eq=False, slots=True)
class BackwardNode:
    """A node on the way from an output to the places where gradients are wanted, with all that is read of it."""

    autograd_node: Node
    name: str
    outputs: list[OutputInfo]
    shape: tuple[int, ...]  # of the first output
    edges: list[Edge]
    input_numbers: list[int]  # of the edges
    returned_indices: list[int]  # of each edge, its index in what the node's backward returns
    saved: dict[str, Any]  # what `SAVED` names
    is_readable: bool  # whether torch shows all of that
    is_python: bool  # a `torch.autograd.Function` written in Python, which is called by `apply`
    output_nodes: list["BackwardNode"] = field(default_factory=list)  # that used its output in the forward pass
    input_nodes: list["BackwardNode"] = field(default_factory=list)  # that made its inputs there, one for each edge
    is_fusable: bool = False  # one output node, and no gradient is wanted here: rules may be fused across it
    # set by the rule factory of its output node, which runs before that of this one:
    is_fused: bool = False  # the output node's rule does the work of this one too
    may_overwrite: bool = False  # the gradient that the output node's rule gives is a new tensor, read nowhere else
    folded_norm: "BackwardNode | None" = None  # a BatchNorm that leaves its factors to this convolution


def nodes_between(root: Node, wanted: Collection[Node]) -> list[BackwardNode]:
    """The nodes between the root and those wanted, each before the nodes that it leads to."""
    read_attribute(root, "_input_metadata")  # what torch shows of one node, it shows of all
    read_attribute(root, "next_functions")
    found: dict[Node, BackwardNode | None] = {}
    order: list[BackwardNode] = []
    stack: list[tuple[Node, Any]] = [(root, None)]
    while stack:
        node, next_functions = stack.pop()
        if next_functions is not None:  # all that it leads to is complete
            edges = [Edge(i, below, output) for i, (below, output) in enumerate(next_functions) if found.get(below)]
            if edges or node in wanted:
                found[node] = backward_node = read_node(node, edges)
                order.append(backward_node)
        elif node not in found:
            found[node], next_functions = None, node.next_functions
            stack.append((node, next_functions))
            stack += [(below, None) for below, _ in next_functions if below is not None]
    for backward_node in order:
        backward_node.input_nodes = [made_by for edge in backward_node.edges if (made_by := found[edge.node])]
        for made_by in backward_node.input_nodes:
            made_by.output_nodes.append(backward_node)
    for backward_node in order:
        backward_node.is_fusable = len(backward_node.output_nodes) == 1 and backward_node.autograd_node not in wanted
    return order[::-1]


def read_node(node: Node, edges: list[Edge]) -> BackwardNode:
    """A node, with all that is read of it."""
    name, is_python = str(node.name()), not callable(node)
    # the inputs of a backward node are the outputs of its operation
    outputs = [OutputInfo(tuple(m.shape), m.dtype, m.device) for m in node._input_metadata]
    returned_indices = [tensor_argument(node, edge.input) if is_python else edge.input for edge in edges]
    saved, is_readable = dict[str, Any](), True
    try:
        for attribute in SAVED.get(name, ()) if edges else ():
            saved[attribute] = read_attribute(node, f"_saved_{attribute}")
    except (MissingAttributeError, RuntimeError):  # or it was overwritten since, which autograd will say
        is_readable = False
    numbers = [edge.input for edge in edges]
    return BackwardNode(
        node, name, outputs, outputs[0].shape, edges, numbers, returned_indices, saved, is_readable, is_python
    )


def zeros_at(edge: GradientEdge, *batch: int) -> Tensor:
    """A gradient of zeros at an edge of the graph, (*batch, *shape)."""
    return read_node(edge.node, []).outputs[edge.output_nr].zeros(*batch)


def tensor_argument(node: Node, number: int) -> int:
    """The place, among all arguments of a Function written in Python, of the input that the node's edge leads to.

    Its backward returns something for every argument, while edges are of tensors alone.
    """
    leading = [index for index, (below, _) in enumerate(read_attribute(node, "next_functions")) if below is not None]
    needing = [index for index, needs in enumerate(read_attribute(node, "needs_input_grad")) if needs]
    return needing[leading.index(number)]


def graph_signature(graph: Sequence[BackwardNode], wanted: Sequence[GradientEdge]) -> tuple[Any, ...]:
    """What must be equal for two graphs to be walked together."""
    order, signature = {node.autograd_node: index for index, node in enumerate(graph)}, list[Any]()
    for node in graph:
        signature += [node.name, node.shape, *[(edge.input, order[edge.node], edge.output) for edge in node.edges]]
        signature += [value.shape if isinstance(value, Tensor) else value for value in node.saved.values()]
    return *signature, *[(order.get(edge.node), edge.output_nr) for edge in wanted]


def graph_nodes(node: Node, stop_at: Collection[Node] = ()) -> set[Node]:
    """A node of the graph and all that it leads to, but for `stop_at` and what only these lead to."""
    read_attribute(node, "next_functions")  # what torch shows of one node, it shows of all
    excluded = {None, *stop_at}
    waiting = [] if node in excluded else [node]
    seen = set[Node](waiting)
    for above in waiting:
        for below, _ in above.next_functions:
            if below not in seen and below not in excluded:
                seen.add(below)
                waiting.append(below)
    return seen


def last_operation(output: Tensor, skip: Collection[str]) -> str:
    """The name of the last node behind the output's last column that is not in `skip`; "" if there is none."""
    node: Node | None = output.grad_fn
    while node is not None and node.name() in skip:
        node = read_attribute(node, "next_functions")[-1][0]
    return "" if node is None else str(node.name())


def count_graph_numbers(output: Tensor) -> int:
    """How many numbers a graph holds: the outputs of all its nodes, and the weights of which a rule makes copies."""
    read_attribute(output.grad_fn, "_input_metadata")
    numbers = 0
    for node in graph_nodes(output.grad_fn):
        for metadata in node._input_metadata:
            numbers += math.prod(metadata.shape)
        if node.name() == CONVOLUTION:
            numbers += read_attribute(node, "_saved_weight").numel()
    return numbers


def is_copy(tensor: Tensor, leaf: Tensor) -> bool:
    """Whether a tensor is the leaf, or was made of it by copying alone."""
    node: Node = get_gradient_edge(tensor).node
    end = get_gradient_edge(leaf).node
    while node is not end and node is not None and node.name() in COPIES:
        ((node, _),) = read_attribute(node, "next_functions")
    return node is end


def is_axis_move(out: Tensor) -> bool:
    """Whether the node that made a tensor moves axes."""
    return out.grad_fn is not None and out.grad_fn.name() in MOVED_AXES


def read_axis_move(given: Tensor, out: Tensor) -> tuple[str, list[Any]]:
    """The name of the node that made `out` of `given`, and what it saved of how it moved axes.

    ("", []) if it moved none, if this version of torch does not show it, or if there are other nodes between the two: a
    layer may permute axes and back.
    """
    node: Node = out.grad_fn
    try:
        if not is_axis_move(out) or read_attribute(node, "next_functions")[0][0] != get_gradient_edge(given).node:
            return "", []
        return node.name(), [read_attribute(node, f"_saved_{attribute}") for attribute in MOVED_AXES[node.name()]]
    except MissingAttributeError:
        return "", []


def signed_number(number: int) -> int:
    """A whole number that torch shows without its sign."""
    return number if number < 2**63 else number - 2**64


def leads_around(output: Tensor, leaf: Tensor, gates: Collection[Tensor]) -> bool:
    """Whether a way leads from an output to the leaf that passes none of the gates."""
    passed = graph_nodes(get_gradient_edge(output).node, stop_at=[get_gradient_edge(gate).node for gate in gates])
    return get_gradient_edge(leaf).node in passed
