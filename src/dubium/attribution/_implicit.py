"""The implicit bias `f(v) - J_f(v) v` of any function or layer, by forward mode."""

import warnings
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, field, fields, is_dataclass
from functools import partial
from operator import is_
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.nn.attention import SDPBackend, sdpa_kernel

from dubium.attribution._structure import BOOKKEEPING

if TYPE_CHECKING:
    from dubium.attribution._biases import RecordedBiases

BIAS_ROUNDING = 64  # times the machine's precision: a bias below this is that of a homogeneous function
LARGEST_ROUNDING = 2**-5  # of the values, in any precision: a larger bias is none of rounding


class NoForwardModeError(NotImplementedError):
    """A function that torch cannot differentiate forwards."""


class DependentCall:
    """A function with its arguments, as a function of those of them that depend on the image."""

    def __init__(
        self, function: Any, args: Any, kwargs: Any, dependent: Sequence[Tensor], *, returns_nothing: bool
    ) -> None:
        self.function, self.args, self.kwargs = function, args, kwargs
        self.indices = {id(value): index for index, value in enumerate(dependent)}
        self.returns_nothing = returns_nothing

    def run_on_copies(self, *values: Tensor) -> tuple[Tensor, ...]:
        """The tensors that the function returns for copies of other values of these arguments."""
        copies = [value.clone() for value in values]  # the function may work in place
        args, kwargs = self.arguments(copies)
        out = self.function(*args, **kwargs)
        return tuple(flatten_tensors(args[0] if self.returns_nothing else out))

    def arguments(self, values: Sequence[Tensor]) -> Any:
        """All arguments, positional and by name, with other values of those that depend on the image."""
        indices = self.indices
        return map_tensors(
            (self.args, self.kwargs), lambda each: values[indices[id(each)]] if id(each) in indices else each
        )

    def run_on(self, values: Sequence[Tensor]) -> Any:
        """What the function returns for other values of these arguments, which it may overwrite."""
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


def significant_bias(value: Tensor, tangent: Tensor | None) -> Tensor | None:
    """Value minus tangent, the derivative along the inputs, of a function's output.

    Set to 0 for images where it is no more than rounding; None if that holds for all images.
    """
    if not is_continuous(value) or not value.numel():
        return None
    bias = replace_infinity(value - tangent if tangent is not None else value)  # from infinity comes no gradient
    precision = min(BIAS_ROUNDING * torch.finfo(bias.dtype).eps, LARGEST_ROUNDING)
    is_significant = largest_of_images(bias) > precision * largest_of_images(replace_infinity(value))
    if not is_significant.any():
        return None
    return bias if is_significant.all() else bias * is_significant.view(-1, *[1] * (bias.ndim - 1))


def largest_of_images(value: Tensor) -> Tensor:
    """The largest absolute number at each index of the first axis, which is that of the images in most tensors."""
    return value.reshape(len(value) if value.ndim else 1, -1).abs().amax(1)


def is_continuous(value: Tensor) -> bool:
    """Whether a tensor has real or complex numbers, and so may have a gradient."""
    return value.is_floating_point() or value.is_complex()


TENSORLESS = (str, int, float)
"""Types of values that hold no tensor: they are many, and looking further takes time."""


def flatten_tensors(value: Any) -> list[Tensor]:
    """The tensors in nested lists, tuples, dicts and dataclasses, in order."""
    if isinstance(value, Tensor):
        return [value]
    if value is None or isinstance(value, TENSORLESS):
        return []
    if isinstance(value, dict):
        items: Any = value.values()
    elif isinstance(value, list | tuple):
        items = value
    else:
        items = [getattr(value, name) for name in field_names(value)]
    return [tensor for item in items for tensor in flatten_tensors(item)]


def field_names(value: Any) -> list[str]:
    """Of a dataclass's object, those that are set; of anything else there are none."""
    is_object = is_dataclass(value) and not isinstance(value, type)
    return [each.name for each in fields(value) if hasattr(value, each.name)] if is_object else []


def map_tensors(value: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """The same nesting, with what a function makes of each tensor instead of it."""
    if isinstance(value, Tensor):
        return change(value)
    if value is None or isinstance(value, TENSORLESS):
        return value
    if isinstance(value, list | tuple):
        items = [map_tensors(item, change) for item in value]
        if isinstance(value, tuple) and all(map(is_, items, value)):
            return value  # a class of the user's own may not be made of its items
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


def put_into(values: Any, changed: Any) -> Any:
    """What `map_tensors` made of lists and dicts, in these lists and dicts themselves: others may hold them, too."""
    if isinstance(values, list) and isinstance(changed, list):
        values[:] = [*map(put_into, values, changed), *changed[len(values) :]]
    elif isinstance(values, dict) and isinstance(changed, dict):
        for name, value in changed.items():
            values[name] = put_into(values.get(name), value)
    else:
        return changed
    return values


def separate_outputs(out: Any) -> Any:
    """Several outputs as views, one as it is.

    One may be computed from another, as an LSTM's state is from its cell. The gradient at a view counts only what comes
    after it.
    """
    if sum(value.requires_grad for value in flatten_tensors(out)) < 2:
        return out
    return map_tensors(out, lambda value: value.view_as(value) if value.requires_grad else value)


class InputOutputTerms:
    """The bias terms of a function f without forward mode, at its inputs v and at its outputs f(v).

    With g the cotangent at the outputs, the wanted term is `g b = g f(v) - (J'g) v`. It is the sum of two terms: bias
    `f(v)` at the outputs, where the gradient is g, and bias `-v` at the inputs, where it is J'g.

    With one input and one output of its shape, one term replaces both. The output is `f(v * ones) / ones`, whose
    gradient at `ones` is `(J'g) v - g f(v)`, so the bias there is -1. A function without a bias then has a term of
    zeros, not two terms that cancel.
    """

    def __init__(self, dependent: Sequence[Tensor]) -> None:
        self.ones = torch.ones_like(dependent[0]).requires_grad_() if len(dependent) == 1 else None
        # two copies: the function may overwrite the second, and the caller the original
        self.inputs = [value.clone() if self.ones is None else value.clone() * self.ones for value in dependent]
        self.working_copies = [value.clone() for value in self.inputs]
        self.versions = [value._version for value in self.working_copies]

    def overwritten(self) -> list[int]:
        """Which of its inputs the function has overwritten."""
        return [i for i, value in enumerate(self.working_copies) if value._version != self.versions[i]]

    def terms(self, out: Any) -> tuple[Any, list[tuple[Tensor, Tensor, Tensor]]]:
        """The output to go on with, and the tensors of the graph at which a bias acts.

        Each comes with that bias, and with a tensor that lies in the image where the bias does.
        """
        outputs = [value for value in flatten_tensors(out) if value.requires_grad]
        ones = self.ones
        if ones is not None and [value.shape for value in outputs] == [ones.shape] and not self.overwritten():
            out = map_tensors(out, lambda value: value / ones if value is outputs[0] else value)
            return out, [(ones, -torch.ones_like(ones), self.inputs[0])]
        out = separate_outputs(out)
        output_terms = [(value, value.detach(), value) for value in flatten_tensors(out) if value.requires_grad]
        return out, [*((value, -value.detach(), value) for value in self.inputs), *output_terms]


def layer_state(layer: nn.Module) -> dict[str, Any]:
    """What a layer may change in a call, by its attributes' names: buffers, numbers, lists, tensors."""
    state = {name: value for name, value in vars(layer).items() if name not in BOOKKEEPING}
    return {"_buffers": layer._buffers, **state} if layer._buffers else state


def forward_of_copy(layer: nn.Module, parameters: dict[str, Any], state: dict[str, Any], args: Any, kwargs: Any) -> Any:
    """Run the forward of a copy of a layer, with this state and no hooks: its output, and the tensors that it keeps.

    Kept tensors that do not depend on the image are returned empty.
    """
    twin = object.__new__(type(layer))
    own = {name: copy(value) if isinstance(value, set) else value for name, value in state.items()}
    twin.__dict__.update({**vars(layer), **map_tensors(own, clone_or_dual), "_parameters": parameters})
    out = twin.forward(*args, **kwargs)
    kept = flatten_tensors(layer_state(twin))
    return out, [value if forward_ad.unpack_dual(value).tangent is not None else value.new_empty(0) for value in kept]


def clone_or_dual(value: Tensor) -> Tensor:
    """A copy if it is no parameter; a dual with a tangent of zeros if it is one with one axis; any other as it is.

    Vectors are biases of recurrent layers. Their tangent is for speed alone: where one is missing, each addition calls
    into Python.
    """
    if not isinstance(value, nn.Parameter):
        return value.clone()
    return forward_ad.make_dual(value.detach(), torch.zeros_like(value)) if value.ndim == 1 else value


@dataclass
class ImplicitBiases:
    """Hooks before and after layers of any kind, which record the implicit bias of each execution.

    What a layer keeps counts too: tensors that depend on the image are inputs before a call, and outputs after it.
    """

    needs_before: ClassVar[bool] = True
    recorded: "RecordedBiases"
    pending: dict[nn.Module, list[Tensor | None] | InputOutputTerms] = field(default_factory=dict)  # layers that run

    def before(self, layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        given = (layer._parameters, layer_state(layer), args, kwargs)
        dependent = [value for value in flatten_tensors(given) if value.requires_grad]
        call = DependentCall(partial(forward_of_copy, layer), given, {}, dependent, returns_nothing=False)
        try:  # now: a layer that works in place overwrites its input
            values = [value.detach() for value in dependent]
            self.pending[layer] = implicit_biases(call.run_on_copies, values) if dependent else []
        except NoForwardModeError:
            self.pending[layer] = both_ends = InputOutputTerms(dependent)
            (layer._parameters, state, args, kwargs), _ = call.arguments(both_ends.working_copies)
            put_into(vars(layer), state)
            return args, kwargs
        return None

    def after(self, layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> Any:
        state, found = layer_state(layer), self.pending.pop(layer, [])  # nothing after an error in `before`
        keeps = any(value.requires_grad for value in flatten_tensors(state))
        if isinstance(found, InputOutputTerms):
            (out, kept), terms = found.terms((out, state))
        else:
            out, kept = separate_outputs((out, state))
            outputs = zip(flatten_tensors((out, kept)), found, strict=False)
            terms = [(value, bias, value) for value, bias in outputs if bias is not None]
        if keeps:
            put_into(vars(layer), kept)
        given = flatten_tensors((args, kwargs))
        for value, bias, layout_from in terms:
            in_place = any(value is each for each in given)
            self.recorded.add(value, bias, layout_from=layout_from, in_place=in_place)
        return out
