"""The implicit bias `f(v) - J_f(v) v` of any function or layer, by forward mode."""

import warnings
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, field, fields, is_dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.nn.attention import SDPBackend, sdpa_kernel

if TYPE_CHECKING:
    from dubium.attribution._biases import RecordedBiases

BIAS_ROUNDING = 64  # times the machine's precision: a bias below this is that of a homogeneous function


class NoForwardModeError(NotImplementedError):
    """A function that torch cannot differentiate forwards."""


class Call:
    """A function with its arguments, as a function of those of them that depend on the image."""

    def __init__(
        self, function: Any, args: Any, kwargs: Any, dependent: Sequence[Tensor], *, returns_nothing: bool
    ) -> None:
        self.function, self.args, self.kwargs = function, args, kwargs
        self.places = {id(value): place for place, value in enumerate(dependent)}
        self.returns_nothing = returns_nothing

    def __call__(self, *values: Tensor) -> tuple[Tensor, ...]:
        copies = [value.clone() for value in values]  # the function may work in place
        args, kwargs = self.arguments(copies)
        out = self.function(*args, **kwargs)
        return tuple(flatten_tensors(args[0] if self.returns_nothing else out))

    def arguments(self, values: Sequence[Tensor]) -> Any:
        """All arguments, positional and by name, with other values of those that depend on the image."""
        places = self.places
        return map_tensors((self.args, self.kwargs), lambda own: values[places[id(own)]] if id(own) in places else own)

    def returned(self, values: Sequence[Tensor]) -> Any:
        """What the function returns for other values of these arguments."""
        args, kwargs = self.arguments(values)
        return self.function(*args, **kwargs)


def implicit_biases(function: Callable[..., tuple[Tensor, ...]], values: Sequence[Tensor]) -> list[Tensor | None]:
    """`f(v) - J_f(v) v` of each output, jointly over all inputs; None where it is no more than rounding."""
    values = [value.contiguous() for value in values]  # forward mode fails in other layouts for some functions
    tangents = [replace_infinity(value) for value in values]  # infinity is a mask: constant
    # the kernel of attention that has forward mode; duals have less to do at each call than `torch.func.jvp`
    with torch.no_grad(), warnings.catch_warnings(), sdpa_kernel(SDPBackend.MATH), forward_ad.dual_level():
        warnings.simplefilter("ignore", DeprecationWarning)  # torch's own, about how it loads forward mode
        try:
            out = function(*map(forward_ad.make_dual, values, tangents))
        except torch.OutOfMemoryError:
            raise
        except (RuntimeError, NotImplementedError) as error:
            raise NoForwardModeError(str(error)) from error
        return [significant_bias(*forward_ad.unpack_dual(value)) for value in out]


def replace_infinity(value: Tensor) -> Tensor:
    """0 where a number is not finite. A sum tells in one pass whether there is any."""
    return value if value.sum().isfinite() else value.masked_fill(~value.isfinite(), 0)


def significant_bias(value: Tensor, product: Tensor | None) -> Tensor | None:
    """The difference of a function's value and its derivative along its inputs; None where it is rounding."""
    if not is_continuous(value) or not value.numel():
        return None
    bias = replace_infinity(value - product if product is not None else value)  # from infinity comes no gradient
    scale = replace_infinity(value).abs().amax()
    return bias if bias.abs().amax() > BIAS_ROUNDING * torch.finfo(bias.dtype).eps * scale else None


def is_continuous(value: Tensor) -> bool:
    """Whether a tensor has real or complex numbers, and so may have a gradient."""
    return value.is_floating_point() or value.is_complex()


PLAIN = (str, int, float)
"""Values that hold no tensor: they are many, and looking further takes time."""


def flatten_tensors(value: Any) -> list[Tensor]:
    """The tensors in nested lists, tuples, dicts and dataclasses, in order."""
    if isinstance(value, Tensor):
        return [value]
    if value is None or isinstance(value, PLAIN):
        return []
    if isinstance(value, dict):
        items: Any = value.values()
    elif isinstance(value, list | tuple):
        items = value
    else:
        items = [getattr(value, name) for name in field_names(value)]
    return [tensor for item in items for tensor in flatten_tensors(item)]


def field_names(value: Any) -> list[str]:
    """Of a dataclass's object; of anything else there are none."""
    return [own.name for own in fields(value)] if is_dataclass(value) and not isinstance(value, type) else []


def map_tensors(value: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """The same nesting, with what a function makes of each tensor instead of it."""
    if isinstance(value, Tensor):
        return change(value)
    if value is None or isinstance(value, PLAIN):
        return value
    if isinstance(value, list | tuple):
        items = [map_tensors(item, change) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)  # a named tuple, or a plain one
    if isinstance(value, dict):
        twin = copy(value)  # of its own class: outputs of Hugging Face are dicts that have attributes, too
        for name, item in value.items():
            twin[name] = map_tensors(item, change)
        return twin
    twin = copy(value) if field_names(value) else value
    for name in field_names(value):
        object.__setattr__(twin, name, map_tensors(getattr(value, name), change))
    return twin


def separate_outputs(out: Any) -> Any:
    """Several outputs as views, one as it is.

    One may be computed from another, as an LSTM's state is from its cell. The gradient at a view counts only what comes
    after it.
    """
    if sum(value.requires_grad for value in flatten_tensors(out)) < 2:
        return out
    return map_tensors(out, lambda value: value.view_as(value) if value.requires_grad else value)


BOOKKEEPING = frozenset(vars(nn.Module()))
"""Attributes by which torch keeps a module's parameters, hooks, children and mode; buffers among them."""


def layer_state(layer: nn.Module) -> dict[str, Any]:
    """What a layer may change in a call, by its attributes' names: buffers, numbers, lists, tensors."""
    state = {name: value for name, value in vars(layer).items() if name not in BOOKKEEPING}
    return {"_buffers": layer._buffers, **state} if layer._buffers else state


def call_copy(layer: nn.Module, parameters: dict[str, Any], state: dict[str, Any], args: Any, kwargs: Any) -> Any:
    """What the forward of the same layer, without hooks, returns and keeps, if it has another state.

    Kept tensors that do not depend on the image are returned empty.
    """
    twin = object.__new__(type(layer))
    own = {name: copy(value) if isinstance(value, set) else value for name, value in state.items()}
    twin.__dict__.update({**vars(layer), **map_tensors(own, copy_kept), "_parameters": parameters})
    out = twin.forward(*args, **kwargs)
    kept = flatten_tensors(layer_state(twin))
    return out, [value if forward_ad.unpack_dual(value).tangent is not None else value.new_empty(0) for value in kept]


def copy_kept(value: Tensor) -> Tensor:
    """A copy, or the tensor itself if it is a parameter. Vectors of those, which recurrent layers keep in a list, have
    zeros as their tangents: where a tangent is missing, torch asks Python for the shape of each sum.
    """
    if not isinstance(value, nn.Parameter):
        return value.clone()
    return forward_ad.make_dual(value.detach(), torch.zeros_like(value)) if value.ndim == 1 else value


@dataclass
class ImplicitBiases:
    """Hooks before and after layers of any kind, which record the implicit bias of each execution.

    Tensors that depend on the image and that a layer keeps from an earlier call are inputs, and what it keeps is an
    output.
    """

    recorded: "RecordedBiases"
    pending: dict[nn.Module, list[Tensor | None] | list[Tensor]] = field(default_factory=dict)  # of layers in execution

    def before(self, layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        given = (layer._parameters, layer_state(layer), args, kwargs)
        dependent = [value for value in flatten_tensors(given) if value.requires_grad]
        call = Call(partial(call_copy, layer), given, {}, dependent, returns_nothing=False)
        try:  # now: a layer that works in place overwrites its input
            values = [value.detach() for value in dependent]
            self.pending[layer] = implicit_biases(call, values) if dependent else []
        except NoForwardModeError:
            views = [value.view_as(value) for value in dependent]
            self.pending[layer] = views
            (layer._parameters, state, args, kwargs), _ = call.arguments(views)
            vars(layer).update(state)
            return args, kwargs
        return None

    def after(self, layer: nn.Module, args: tuple[Any, ...], out: Any) -> Any:
        state = layer_state(layer)
        out, kept = separate_outputs((out, state))
        if any(value.requires_grad for value in flatten_tensors(state)):
            vars(layer).update(kept)
        self.recorded.layouts.follow("layer", args, out)
        found, outputs = self.pending.pop(layer), flatten_tensors((out, kept))
        views = [value for value in found if value is not None and value.requires_grad]  # of inputs: no forward mode
        # a plain LayerNorm over one axis works on (B, H, W, C); its subclasses for images move the axes themselves
        norms_last = type(layer) is nn.LayerNorm and len(layer.normalized_shape) == 1
        biases = [value.detach() for value in outputs] if views else found
        terms = [*zip(outputs, biases, strict=False), *((view, -view.detach()) for view in views)]
        for value, bias in terms:
            if bias is not None:
                self.recorded.add(
                    value, bias, channels_last=norms_last or id(value) in self.recorded.layouts.channels_last
                )
        return out
