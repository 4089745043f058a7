"""The biases of a network, found by running it, and zero probes beside them whose gradients are the biases' gradients.

Every layer is `f(v) = J_f(v) v + b`. For convolutions, BatchNorm and dense layers b is a parameter or follows from
some; for a layer that is not positively homogeneous (GELU, GroupNorm, ...) it is implicit: `b = f(v) - J_f(v) v`.
"""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd
from torch.nn.modules.dropout import _DropoutNd
from torch.nn.modules.pooling import _AdaptiveAvgPoolNd, _AdaptiveMaxPoolNd, _AvgPoolNd, _MaxPoolNd

LINEAR = (_ConvNd, nn.Linear)
HOMOGENEOUS = (
    *(nn.ReLU, nn.LeakyReLU, nn.PReLU, nn.Identity, nn.Flatten, nn.Unflatten, nn.Upsample, nn.PixelShuffle),
    *(_DropoutNd, _AdaptiveAvgPoolNd, _AdaptiveMaxPoolNd, _AvgPoolNd, _MaxPoolNd),
)


@dataclass(frozen=True)
class Term:
    """One bias, at one execution of one layer."""

    layer: nn.Module
    probe: Tensor  # zeros, added to the layer's output: their gradient is that output's
    bias: Tensor  # one number a channel, or as large as the output where it is implicit
    channels: int  # the axis of the channels in the output

    @property
    def implicit(self) -> bool:
        return self.bias.ndim > 1

    def spatial(self, images: int) -> bool:
        """Whether the term has a place in the image; a dense layer's has none."""
        return self.probe.ndim == 4 and len(self.probe) == images

    def broadcast(self) -> Tensor:
        """The bias, in a shape that multiplies the layer's output."""
        if self.implicit:
            return self.bias
        return self.bias.view(-1, *[1] * (self.probe.ndim - 1 - self.channels % self.probe.ndim))


@contextmanager
def probed(network: nn.Module) -> Iterator[list[Term]]:
    """Within, a forward pass of the network lists its biases in order of execution, with a probe beside each."""
    terms: list[Term] = []
    channels_last: list[Tensor] = []  # outputs kept alive, so that identity means identity
    waiting: dict[nn.Module, Tensor | None] = {}

    def add(layer: nn.Module, out: Tensor, bias: Tensor, last: bool) -> Tensor:
        terms.append(Term(layer, zeros_like(out), bias, -1 if last else 1))
        out = out + terms[-1].probe  # a new tensor leaves the layer, so in-place activations are harmless
        if last:
            channels_last.append(out)
        return out

    def linear(layer: nn.Module, _args: Any, out: Any) -> Tensor | None:
        bias = layer.bias
        assert bias is None or isinstance(bias, Tensor)
        return None if bias is None else add(layer, out, bias.detach(), last=isinstance(layer, nn.Linear))

    def norm(layer: nn.Module, args: tuple[Tensor, ...], _out: Any) -> Tensor:
        # BatchNorm again, as the affine map that it is: backward, one product takes a third of its own kernel's time
        slope, bias = affine(layer)
        shape = (-1, *[1] * (args[0].ndim - 2))
        return add(layer, args[0] * slope.view(shape) + bias.view(shape), bias, last=False)

    def before(layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        waiting[layer] = implicit_bias(layer, args, kwargs)  # now: a layer that works in place overwrites its input

    def after(layer: nn.Module, args: tuple[Any, ...], out: Any) -> Tensor | None:
        bias = waiting.pop(layer)
        inherited = any(arg is seen for arg in args for seen in channels_last)
        if bias is None:
            return None
        return add(layer, out, bias, last=out.ndim == 4 and (inherited or normalises_last_axis(layer)))

    handles = []
    for layer in layers(network):
        if isinstance(layer, _BatchNorm):
            handles.append(layer.register_forward_hook(norm))
        elif isinstance(layer, LINEAR):
            handles.append(layer.register_forward_hook(linear))
        elif not isinstance(layer, HOMOGENEOUS):
            handles.append(layer.register_forward_pre_hook(before, with_kwargs=True))
            handles.append(layer.register_forward_hook(after))
    try:
        yield terms
    finally:
        for handle in handles:
            handle.remove()


def zeros_like(out: Tensor) -> Tensor:
    """Zeros that take no memory, to be differentiated by."""
    return out.detach().new_zeros(()).expand(out.shape).requires_grad_()


def layers(module: nn.Module, seen: set[nn.Module] | None = None) -> Iterator[nn.Module]:
    """The innermost modules, each once. What is inside a convolution (a weight's parametrization) is no layer."""
    seen = set() if seen is None else seen
    if module in seen:
        return
    seen.add(module)
    children = list(module.children())
    if not children or isinstance(module, (*LINEAR, _BatchNorm)):
        yield module
    else:
        for child in children:
            yield from layers(child, seen)


def affine(layer: nn.Module) -> tuple[Tensor, Tensor]:
    """Slope and bias of a BatchNorm layer in eval mode, per channel."""
    assert isinstance(layer, _BatchNorm)
    assert layer.running_mean is not None
    assert layer.running_var is not None
    slope = (layer.running_var + layer.eps).rsqrt()
    if layer.weight is not None:
        slope = slope * layer.weight.detach()
    bias = -layer.running_mean * slope
    return slope, bias if layer.bias is None else bias + layer.bias.detach()


def implicit_bias(layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor | None:
    """`f(v) - J_f(v) v`, jointly over all floating inputs.

    None where the layer does not map tensors to a tensor, or is homogeneous but for rounding, as a user's may be.
    """
    places = [i for i, arg in enumerate(args) if isinstance(arg, Tensor) and arg.is_floating_point()]

    def function(*values: Tensor) -> Any:
        inputs = list(args)
        for place, value in zip(places, values, strict=True):
            inputs[place] = value.clone()  # the layer may work in place
        return layer.forward(*inputs, **kwargs)  # not layer(): its hooks have run, or are yet to run

    values = [args[place].detach().clone() for place in places]
    with torch.no_grad():
        if not places or not isinstance(function(*values), Tensor):
            return None
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # torch's own, about how it loads forward mode
        value, product, *_ = torch.func.jvp(function, tuple(values), tuple(values))
    bias: Tensor = value - product
    if type(layer).__module__.startswith("torch.nn."):
        return bias  # known to have one: no need to wait for the device
    return bias if bias.abs().max() > 64 * torch.finfo(bias.dtype).eps * value.abs().max() else None


def normalises_last_axis(layer: nn.Module) -> bool:
    """A plain LayerNorm over one axis works on (B, H, W, C); its subclasses for images move the axes themselves."""
    return type(layer) is nn.LayerNorm and len(layer.normalized_shape) == 1
