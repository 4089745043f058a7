"""The implicit bias `f(v) - J_f(v) v` of any function or layer, by forward mode."""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.nn.attention import SDPBackend, sdpa_kernel

if TYPE_CHECKING:
    from dubium.attribution._biases import RecordedBiases

ROUNDING = 64  # times the machine's precision: a bias below this is that of a homogeneous function


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
        args, kwargs = replace_tensors((self.args, self.kwargs), self.places, copies)
        out = self.function(*args, **kwargs)
        return tuple(flatten_tensors(args[0] if self.returns_nothing else out))

    def returned(self, values: Sequence[Tensor]) -> Any:
        """What the function returns for other values of these arguments."""
        args, kwargs = replace_tensors((self.args, self.kwargs), self.places, values)
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
        except (RuntimeError, NotImplementedError) as error:
            raise NoForwardModeError(str(error)) from error
        return [significant_bias(*forward_ad.unpack_dual(value)) for value in out]


def replace_infinity(value: Tensor) -> Tensor:
    """0 where a number is not finite. A sum tells in one pass whether there is any."""
    return value if value.sum().isfinite() else value.masked_fill(~value.isfinite(), 0)


def significant_bias(value: Tensor, product: Tensor | None) -> Tensor | None:
    """The difference of a function's value and its derivative along its inputs; None where it is rounding."""
    if not value.is_floating_point() or not value.numel():
        return None
    bias = replace_infinity(value - product if product is not None else value)  # from infinity comes no gradient
    scale = replace_infinity(value).abs().amax()
    return bias if bias.abs().amax() > ROUNDING * torch.finfo(bias.dtype).eps * scale else None


def flatten_tensors(value: Any) -> list[Tensor]:
    """The tensors in nested lists, tuples and dicts, in order."""
    if isinstance(value, Tensor):
        return [value]
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    return [tensor for item in items for tensor in flatten_tensors(item)]


def replace_tensors(value: Any, places: dict[int, int], copies: Sequence[Tensor]) -> Any:
    """The same nesting, with copies instead of the tensors that have a place."""
    if isinstance(value, Tensor):
        return copies[places[id(value)]] if id(value) in places else value
    if isinstance(value, dict):
        return {name: replace_tensors(item, places, copies) for name, item in value.items()}
    if isinstance(value, list | tuple):
        items = [replace_tensors(item, places, copies) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)  # a named tuple, or a plain one
    return value


@dataclass
class ImplicitBiases:
    """Hooks before and after layers of any kind, which record the implicit bias of each execution."""

    recorded: "RecordedBiases"
    pending: dict[nn.Module, list[Tensor | None] | list[Tensor]] = field(default_factory=dict)  # of layers in execution

    def before(self, layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        dependent = [value for value in flatten_tensors((args, kwargs)) if value.requires_grad]
        call = Call(layer.forward, args, kwargs, dependent, returns_nothing=False)  # not layer(): it has hooks
        try:  # now: a layer that works in place overwrites its input
            values = [value.detach() for value in dependent]
            self.pending[layer] = implicit_biases(call, values) if dependent else []
        except NoForwardModeError:
            views = [value.view_as(value) for value in dependent]
            self.pending[layer] = views
            return replace_tensors((args, kwargs), call.places, views)
        return None

    def after(self, layer: nn.Module, args: tuple[Any, ...], out: Any) -> None:
        self.recorded.layouts.follow("layer", args, out)
        found, outputs = self.pending.pop(layer), flatten_tensors(out)
        if any(value is not None and value.requires_grad for value in found):  # views of the inputs: no forward mode
            terms = [(value, value.detach()) for value in outputs] + [(v, -v.detach()) for v in found if v is not None]
        else:
            terms = [(value, bias) for value, bias in zip(outputs, found, strict=False) if bias is not None]
        # a plain LayerNorm over one axis works on (B, H, W, C); its subclasses for images move the axes themselves
        norms_last = type(layer) is nn.LayerNorm and len(layer.normalized_shape) == 1
        for value, bias in terms:
            self.recorded.add(value, bias, last=norms_last or id(value) in self.recorded.layouts.channels_last)
