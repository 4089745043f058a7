"""Find where a forward pass cuts the gradient: `detach`, `.data`, `.numpy()` or `torch.no_grad` on what depends on the
image."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import get_gradient_edge
from torch.overrides import TorchFunctionMode

from dubium.attribution._autograd.graph import graph_nodes
from dubium.attribution._autograd.nodes import disable_torch_function
from dubium.attribution._implicit import flatten_tensors
from dubium.checks import warn_user

ADDITIONS = frozenset(
    f"{before}{name}{after}"
    for name in ("add", "sub", "radd", "rsub", "iadd", "isub")
    for before, after in (("", ""), ("__", "__"), ("", "_"))
)
VALUELESS = ("_like", "new_")  # zeros_like(x), x.new_ones(...): they take the shape of x, not its values
ESCAPES = frozenset(["numpy", "__array__"])  # to arrays, which have no gradient; a single number may be a condition
FIRST_ONLY = ("to", "type_as", "view_as", "expand_as", "reshape_as")  # take values of their first argument


OVERWRITING = frozenset({"__setitem__", "__iadd__", "__isub__", "__imul__", "__itruediv__"})
"""Operators that overwrite their first operand, beside the functions that end in an underscore."""


class CutWatch(TorchFunctionMode):
    """Follows tensors that were cut from the graph until one is combined with a tensor that still has a gradient.

    A cut tensor that is added to what it was made of is a straight-through estimate, `x + (x.round() - x).detach()`: it
    hides nothing.
    """

    def __init__(self, x: Tensor, current_layer: Callable[[], str] = lambda: "") -> None:
        super().__init__()
        self.current_layer = current_layer  # names the layer whose operation runs
        # by identity of a cut tensor: the tensor, and the graph nodes that it was made of, with the layer of the cut
        self.sources: dict[int, tuple[Tensor, dict[Any, str]]] = {}
        self.cut_layers: list[str] = []  # layers with a cut that hides a part of the gradient
        self.seen_nodes = {x.grad_fn}  # graph nodes of the images, and of the outputs of functions that are seen
        self.overwritten: list[tuple[Tensor, Any, str]] = []  # without gradient, with the node that had made it
        self.unseen_layers: list[str] = []  # whose input comes from a call that bypasses this mode (torch.jit, ...)

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name, given = getattr(func, "__name__", ""), [*args, *(kwargs or {}).values()]
        with disable_torch_function():
            if not self.unseen_layers and name != "__get__" and not self.has_seen(given):
                self.unseen_layers.append(self.current_layer())
        out = func(*args, **(kwargs or {}))
        if name != "__get__" or isinstance(out, Tensor):  # not a shape, a type
            with disable_torch_function():
                self.note(name, given, out)
        return out

    def __exit__(self, *given: Any) -> None:
        super().__exit__(*given)
        # one that a Function overwrites, which says so, has another node by now
        self.cut_layers += [layer for tensor, node, layer in self.overwritten if tensor.grad_fn is node]
        self.overwritten.clear()

    def has_seen(self, values: Sequence[Any]) -> bool:
        """Whether all tensors are leaves, or of functions that were seen."""
        return all(value.grad_fn is None or value.grad_fn in self.seen_nodes for value in floating_tensors(values))

    def note(self, name: str, given: Sequence[Any], out: Any) -> None:
        """Note a function that was called."""
        outputs = floating_tensors([out])
        self.seen_nodes.update([value.grad_fn for value in outputs])
        is_whole = isinstance(out, Tensor) and out.requires_grad and not self.sources  # nothing is cut, so far and here
        overwrites = (
            name.endswith("_") and not name.endswith("__") and name != "requires_grad_"
        ) or name in OVERWRITING
        if overwrites and not torch.is_grad_enabled() and given and getattr(given[0], "requires_grad", False):
            self.overwritten.append((given[0], given[0].grad_fn, self.current_layer()))
        if name in ESCAPES and any(
            value.requires_grad or id(value) in self.sources for value in floating_tensors(given)
        ):
            self.cut_layers.append(self.current_layer())
        if not is_whole and not any(part in name for part in VALUELESS):
            self.follow(name, floating_tensors(given[:1] if name in FIRST_ONLY else given), outputs)

    def follow(self, name: str, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> None:
        """Note what an operation cut, or that what was cut has met a tensor with a gradient."""
        with_gradient = [tensor for tensor in inputs if tensor.requires_grad]
        sources = {
            node: layer
            for tensor in inputs
            if not tensor.requires_grad and id(tensor) in self.sources
            for node, layer in self.sources[id(tensor)][1].items()
        }
        for out in outputs:
            if out.requires_grad and sources:
                origins = [get_gradient_edge(tensor).node for tensor in with_gradient]
                is_sum = name in ADDITIONS and all(is_made_of(node, origins) for node in sources)
                self.cut_layers += [] if is_sum else list(sources.values())
            elif not out.requires_grad and (with_gradient or sources):
                here = {get_gradient_edge(tensor).node: self.current_layer() for tensor in with_gradient}
                self.sources[id(out)] = out, {**sources, **here}  # kept alive, so that identity means identity


def floating_tensors(values: Sequence[Any]) -> list[Tensor]:
    return [value for value in flatten_tensors(values) if value.is_floating_point()]


def is_made_of(node: Any, origins: Sequence[Any]) -> bool:
    """Whether a way leads from a node of the graph to one of the origins."""
    reached = graph_nodes(node)
    return any(origin in reached for origin in origins)


def warn_of_cut(network: nn.Module, x: Tensor, index: int) -> None:
    warn_user(
        f"A part of the gradient is cut in network {index}, layer {find_cut(network, x.clone())}: what "
        "torch.no_grad, detach or .numpy() hides there is missing in the maps. If that is meant, as in a "
        "straight-through estimate, ignore this."
    )


def find_cut(network: nn.Module, x: Tensor) -> str:
    """The layer in which a forward pass of x, which has a gradient, cuts a part of it; "" if there is none."""
    with torch.enable_grad(), name_current_layer(network) as current_layer, CutWatch(x, current_layer) as watch:
        network(x)
    return watch.cut_layers[0] if watch.cut_layers else ""


def find_unseen(network: nn.Module, x: Tensor) -> str:
    """The first layer that takes the output of a hidden function, in a forward pass of x; "" if there is none."""
    x = x.detach().clone().requires_grad_()
    with torch.enable_grad(), name_current_layer(network) as current_layer, CutWatch(x, current_layer) as watch:
        network(x)
    return watch.unseen_layers[0] if watch.unseen_layers else ""


@contextmanager
def name_current_layer(network: nn.Module) -> Iterator[Callable[[], str]]:
    """Within, a function that names the innermost layer that is being executed."""
    inside: list[str] = []
    names = {layer: f"{name!r} ({type(layer).__name__})" for name, layer in network.named_modules()}
    names[network] = f"the network itself ({type(network).__name__})"
    handles = []
    for layer in names:
        handles.append(layer.register_forward_pre_hook(lambda layer, _args: inside.append(names[layer])))
        handles.append(layer.register_forward_hook(lambda _layer, _args, _out: inside.pop() and None))
    try:
        yield lambda: inside[-1] if inside else ""
    finally:
        for handle in handles:
            handle.remove()
