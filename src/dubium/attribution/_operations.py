"""Operations outside of layers whose biases are known: functional calls, products, added parameters, attention.

The bias of an operation f is `b = f(v) - J_f(v) v`, where v are all inputs that depend on the image; parameters and
constants belong to f. So an added parameter is a bias, a sum of two inputs has none, and a product has `-u w`.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.nn.modules._functions import BackwardHookFunction
from torch.overrides import TorchFunctionMode
from torch.utils.checkpoint import CheckpointFunction

from dubium.attribution._autograd.hidden_calls import show_hidden_calls
from dubium.attribution._bias_free import ADDITIVE_FUNCTIONS, BILINEAR_FUNCTIONS, HOMOGENEOUS_FUNCTIONS
from dubium.attribution._closed_forms import FUNCTION_FORMS, is_nonzero
from dubium.attribution._implicit import (
    DependentCall,
    InputOutputTerms,
    NoForwardModeError,
    flatten_tensors,
    implicit_biases,
    is_continuous,
    replace_infinity,
    separate_outputs,
)

GRADIENTS = frozenset([torch.autograd.grad, torch.autograd.backward, Tensor.backward])
"""Functions that walk a graph: they need the tensors themselves, since copies have none."""


class OperationRecorder(TorchFunctionMode):
    """Within it, a forward pass calls `record(tensor, bias)` for each operation that has a bias.

    Args:
        needs_bias_of: whether the bias of such an output is of any use; if not, it is not computed.
        record: takes a tensor of the graph, the bias that acts there, `layout_from`, another tensor whose place in the
            image the bias has, and `in_place`, whether the tensor was overwritten.
    """

    def __init__(self, needs_bias_of: Callable[[Tensor], bool], record: Callable[..., None]) -> None:
        super().__init__()
        self.needs_bias_of, self.record = needs_bias_of, record
        self.depth: int | None = None  # how many layers are being executed, one in another; None if not recording
        self.is_off = False  # whether it is taken off the stack of modes meanwhile

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Within the block, operations are recorded."""
        self.depth = 0
        self.__enter__()
        try:
            with show_hidden_calls(self.record_hidden):
                yield
        finally:
            if not self.is_off:  # as it may be after an error inside of a layer
                self.__exit__(None, None, None)
            self.depth, self.is_off = None, False

    def pause(self) -> None:
        """Before a layer: take this mode off, since seeing each operation inside would cost time."""
        if self.depth is not None:
            self.depth += 1
            if self.depth == 1 and current_mode() is self:  # another mode on top would be taken off instead
                self.is_off = True
                self.__exit__(None, None, None)

    def resume(self) -> None:
        """After it, also after an error inside; it does nothing where `pause` never ran."""
        if self.depth:
            self.depth -= 1
            if self.depth == 0 and self.is_off:
                self.is_off = False
                self.__enter__()

    def __torch_function__(
        self, function: Any, _types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if self.depth or not torch.is_grad_enabled() or function in GRADIENTS:
            return function(*args, **kwargs)
        name = getattr(function, "__name__", "")
        pads_with_value = name == "pad" and ("value" in kwargs or len(args) > 3)
        if name in HOMOGENEOUS_FUNCTIONS and not pads_with_value:
            return function(*args, **kwargs)
        inputs = [value for value in flatten_tensors((args, kwargs)) if is_continuous(value)]
        dependent = [value for value in inputs if value.requires_grad]
        if not dependent or is_linear(name, inputs, dependent, args, kwargs):
            return function(*args, **kwargs)
        in_place = works_in_place(name, kwargs)
        before = [value.detach().clone() for value in dependent] if in_place else dependent
        args_before = (
            [copy_constant(args[0]), *args[1:]] if in_place and args else args
        )  # the function is called again, on these, to find its bias
        out = function(*args, **kwargs)
        out = out if in_place else separate_outputs(out)
        result = args[0] if out is None else out  # `x[i] = y` gives nothing, and changes its first input
        if not any(value.requires_grad and self.needs_bias_of(value) for value in flatten_tensors(result)):
            return out
        is_of_first = len(dependent) == 1 and len(args) > 0 and args[0] is dependent[0]
        closed_form = FUNCTION_FORMS.get(function) if is_of_first else None
        if closed_form is not None:
            bias = closed_form(result.detach(), before[0].detach(), *args[1:], **kwargs)
            if bias is not None:
                if is_nonzero(bias):
                    self.record(result, bias, in_place=in_place)
                return out
        if name in BILINEAR_FUNCTIONS and len(inputs) == len(dependent) == 2:  # of u w, J v is 2 u w: b = -u w
            self.record(result, -replace_infinity(result.detach()), in_place=in_place)
            return out
        call = DependentCall(function, args_before, kwargs, dependent, returns_nothing=out is None)
        try:
            biases = implicit_biases(call.run_on_copies, [value.detach() for value in before])
        except NoForwardModeError:
            return out if in_place else self.call_and_record_ends(call, dependent)
        for value, bias in zip(flatten_tensors(result), biases, strict=True):
            if bias is not None and value.requires_grad and self.needs_bias_of(value):
                self.record(value, bias, in_place=in_place)
        return out

    def call_and_record_ends(self, call: DependentCall, dependent: Sequence[Tensor]) -> Any:
        """Call a function that has no forward mode, and record the bias terms at its inputs and outputs."""
        both_ends = InputOutputTerms(dependent)
        out, terms = both_ends.terms(call.run_on(both_ends.working_copies))
        for value, bias, layout_from in terms:
            self.record(value, bias, layout_from=layout_from)
        for i in both_ends.overwritten():
            dependent[i].copy_(both_ends.working_copies[i])
        return out

    def record_hidden(self, function: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Call a function that modes do not see. What it does inside is one operation.

        A reentrant checkpoint is not taken as one: the function that it is given is called directly.
        """
        own_class = getattr(function, "__self__", None)
        if own_class is CheckpointFunction:
            checkpointed, _preserves_random_state, *args = args
            return checkpointed(*args)
        if own_class is BackwardHookFunction:  # identity: around layers with hooks on their gradients
            return function(*args)
        given = flatten_tensors((args, kwargs))
        dependent = [value for value in given if is_continuous(value) and value.requires_grad]
        if self.depth != 0 or not torch.is_grad_enabled() or not dependent:
            return function(*args, **kwargs)
        self.depth = 1
        try:
            call = DependentCall(function, args, kwargs, dependent, returns_nothing=False)
            return self.call_and_record_ends(call, dependent)
        finally:
            self.depth = 0


def current_mode() -> object:
    """The mode on top of torch's stack, or None where this version of torch does not tell."""
    return getattr(torch.overrides, "_get_current_function_mode", lambda: None)()


def is_linear(
    name: str, inputs: Sequence[Tensor], dependent: Sequence[Tensor], args: Sequence[Any], kwargs: dict[str, Any]
) -> bool:
    """Whether a function is linear in what depends on the image, and adds nothing."""
    if name in ADDITIVE_FUNCTIONS:
        first = args[0] if args else kwargs.get("tensors")
        by_name = [kwargs[word] for word in ("input", "other") if word in kwargs]
        operands = first if isinstance(first, list | tuple) else [*args[:2], *by_name]
        return all(isinstance(operand, Tensor) and operand.requires_grad for operand in operands)
    if name in BILINEAR_FUNCTIONS:
        return len(dependent) == 1 and (len(inputs) < 3 or name == "einsum")
    if name in ("div", "div_", "true_divide", "__truediv__", "__itruediv__"):
        dividend = args[0] if args else kwargs.get("input")
        is_dividend = len(dependent) == 1 and isinstance(dividend, Tensor) and dividend.requires_grad
        return is_dividend and kwargs.get("rounding_mode") is None
    return False


def copy_constant(value: Any) -> Any:
    """A copy of a tensor that does not depend on the image; anything else as it is."""
    return value.clone() if isinstance(value, Tensor) and not value.requires_grad else value


def works_in_place(name: str, kwargs: dict[str, Any]) -> bool:
    if name.endswith("__"):
        return name.startswith("__i") or name == "__setitem__"
    return name.endswith("_") or bool(kwargs.get("inplace"))
