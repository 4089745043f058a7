"""What torch shows of a node of autograd's graph.

The only module that reads private attributes of these nodes. Where a version of torch does not have what a rule needs,
the node is not readable, and is left to autograd itself. Where it does not show the graph, `MissingAttributeError` is
raised, and callers leave the whole graph to autograd.
"""

import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple, NoReturn

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge

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

AXIS_ARGUMENTS: dict[str, tuple[str, ...]] = {
    "AsStrided": ("size", "stride", "storage_offset"),
    "Permute": ("dims",),
    "Transpose": ("dim0", "dim1"),
    "Flip": ("dims",),
    "Rot90": ("dims", "k"),
    "Roll": ("dims", "shifts"),
    "Slice": ("dim", "start", "step"),
    "Unfold": ("dimension", "size", "step"),
    "ConstantPadNd": ("pad",),
    "Im2Col": ("kernel_size", "dilation", "padding", "stride"),
    **dict.fromkeys(["Convolution", "ConvolutionOverrideable", "MkldnnConvolution"], ("groups",)),
    "Index": ("indices",),
    **dict.fromkeys(["Split", "SplitWithSizes", "Select", "Unbind", "Cat", "Stack"], ("dim",)),
    **dict.fromkeys(["IndexSelect", "Gather", "Sort", "Topk"], ("dim",)),
    **dict.fromkeys(["Mean", "Sum", "Nansum", "Prod", "Logsumexp", "LinalgVectorNorm", "Norm"], ("dim",)),
    **dict.fromkeys(["Amax", "Amin", "Aminmax", "Max", "Min", "Median", "Kthvalue"], ("dim",)),
    **dict.fromkeys(["Var", "VarMean", "Std", "StdMean", "FftR2C", "FftC2C", "FftC2R"], ("dim",)),
    **dict.fromkeys([f"{kind}Pad{n}D" for kind in ("Reflection", "Replication") for n in (1, 2, 3)], ("padding",)),
}
"""What nodes have saved of the axes that they move, cut or join, by the name of their operation."""

AXES_ASKED_OF_BACKWARD = frozenset({"Cat", "torch::autograd::CopySlices"})
"""Operations that have not saved where they put their inputs: their backward is run to find out."""

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


def next_edges(node: Node) -> Sequence[tuple[Node | None, int]]:
    """For each input, the node that made it, if it has a gradient, and the number of that node's output."""
    edges: Sequence[tuple[Node | None, int]] = read_attribute(node, "next_functions")
    return edges


def count_elements(node: Node) -> int:
    """How many elements a node's outputs have, and the weights of which its rule makes a copy."""
    own = sum([math.prod(output_info(each).shape) for each in read_attribute(node, "_input_metadata")])
    return own + (read_attribute(node, "_saved_weight").numel() if node.name() == CONVOLUTION else 0)


@cache
def operation_name(node_name: str) -> str:
    """torch's name of a node without what it adds: "Permute" of "PermuteBackward0"."""
    return node_name.rstrip("0123456789").removesuffix("Backward")


def read_axis_arguments(node: Node, operation: str) -> tuple[Any, ...] | None:
    """What `AXIS_ARGUMENTS` names for this operation; None where this version of torch does not show all of it, or
    where a saved tensor was overwritten since.

    Of tensors of indices, only which axes have one.
    """
    names = AXIS_ARGUMENTS.get(operation, ())
    try:
        values = [read_attribute(node, f"_saved_{name}") for name in names]
    except (MissingAttributeError, RuntimeError):
        return None
    return (tuple([index is not None for index in values[0]]),) if operation == "Index" else tuple(values)


def call_backward(node: Node, numbers: Tensor) -> Sequence[Tensor | None]:
    """What a node with one output returns for a gradient of these numbers, broadcast: something for each input."""
    metadata = read_attribute(node, "_input_metadata")[0]
    with torch.no_grad():
        found = node(numbers.to(metadata.device, metadata.dtype).expand(metadata.shape))
    return found if isinstance(found, tuple) else (found,)


def output_precision(node: Node, output_nr: int = 0) -> float:
    """The machine's precision in the type of an output: 2**-7 of bfloat16, whose whole numbers are exact up to 2**8."""
    return torch.finfo(read_attribute(node, "_input_metadata")[output_nr].dtype).eps


def whole_tensor(part: Tensor) -> Tensor:
    """The tensor that a view is a part of; any other tensor as it is."""
    base: Tensor | None = getattr(part, "_base", None)
    return part if base is None else base


def signed_number(number: int) -> int:
    """A whole number that torch shows without its sign."""
    return number if number < 2**63 else number - 2**64


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


def output_info(metadata: Any) -> OutputInfo:
    """What torch shows of an input of a backward node, which is an output of its operation."""
    shape = () if metadata.is_nested_tensor else tuple(metadata.shape)
    return OutputInfo(shape, metadata.dtype, metadata.device)


class NodeInput(NamedTuple):
    """An input of a node that leads on to a wanted node."""

    input_nr: int  # among all inputs of the node
    producer: int  # the index of the node that made it, in the graph
    output_nr: int  # among the outputs of that node


@dataclass(eq=False, slots=True)
class BackwardNode:
    """A node on the way from an output to the places where gradients are wanted, with all that is read of it."""

    autograd_node: Node
    name: str
    outputs: list[OutputInfo]
    shape: tuple[int, ...]  # of the first output
    inputs: list[NodeInput]
    producers: list["BackwardNode"]  # that made these inputs in the forward pass
    saved: dict[str, Any]  # what `SAVED` names
    is_readable: bool  # whether torch shows all of that
    is_python: bool  # a `torch.autograd.Function` written in Python, which is called by `apply`
    use_count: int = 0  # how often other nodes use its outputs
    # set while `Backward` chooses rules, for the node that uses an output before the node that made it:
    may_be_fused: bool = False  # one node uses its output, and no gradient is wanted there
    is_absorbed: bool = False  # the rule of the node that uses its output does the work of this one, too
    may_overwrite: bool = False  # the gradient that it is given is a new tensor, read nowhere else
    absorbed_batch_norm: dict[str, Any] | None = None  # what a BatchNorm saved whose factors this convolution applies


def read_node(node: Node, inputs: list[NodeInput], producers: list[BackwardNode]) -> BackwardNode:
    """A node, with all that is read of it."""
    name, saved, is_readable = str(node.name()), dict[str, Any](), True
    outputs = [output_info(each) for each in read_attribute(node, "_input_metadata")]
    try:
        for attribute in SAVED.get(name, ()) if inputs else ():
            saved[attribute] = read_attribute(node, f"_saved_{attribute}")
    except (MissingAttributeError, RuntimeError):  # or it was overwritten since, which autograd will say
        is_readable = False
    return BackwardNode(
        node, name, outputs, outputs[0].shape, inputs, producers, saved, is_readable, is_python=not callable(node)
    )


def zeros_at(edge: GradientEdge, *batch: int) -> Tensor:
    """A gradient of zeros at an edge of the graph, (*batch, *shape)."""
    return output_info(edge.node._input_metadata[edge.output_nr]).zeros(*batch)


def tensor_argument(node: Node, number: int) -> int:
    """Of a Function written in Python, the index of a node's input among all arguments.

    Its backward returns something for every argument, while inputs of nodes are tensors alone.
    """
    leading = [index for index, (below, _) in enumerate(next_edges(node)) if below is not None]
    needing = [index for index, needs in enumerate(read_attribute(node, "needs_input_grad")) if needs]
    return needing[leading.index(number)]
