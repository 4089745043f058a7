"""The biases of a network, found by running it, and zero probes beside them whose gradients are the biases' gradients.

Every layer is `f(v) = J_f(v) v + b`. For convolutions, BatchNorm and dense layers b is a parameter or follows from
some; for a layer that is not positively homogeneous (GELU, GroupNorm, ...) it is implicit: `b = f(v) - J_f(v) v`.
"""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd
from torch.nn.modules.dropout import _DropoutNd
from torch.nn.modules.pooling import _AdaptiveAvgPoolNd, _AdaptiveMaxPoolNd, _AvgPoolNd, _MaxPoolNd

from dubium.types import Images

LINEAR = (_ConvNd, nn.Linear)
HOMOGENEOUS = (
    *(nn.ReLU, nn.LeakyReLU, nn.PReLU, nn.Identity, nn.Flatten, nn.Unflatten, nn.Upsample, nn.PixelShuffle),
    *(_DropoutNd, _AdaptiveAvgPoolNd, _AdaptiveMaxPoolNd, _AvgPoolNd, _MaxPoolNd),
)


@dataclass(frozen=True)
class Term:
    """One bias, at one execution of one layer."""

    layer: nn.Module
    shape: torch.Size  # of the layer's output
    bias: Tensor  # one number a channel, or as large as the output where it is implicit
    channels: int  # the axis of the channels in the output

    @property
    def implicit(self) -> bool:
        return self.bias.ndim > 1

    def spatial(self, images: int) -> bool:
        """Whether the term has a place in the image; a dense layer's has none."""
        return len(self.shape) == 4 and self.shape[0] == images

    def broadcast(self) -> Tensor:
        """The bias, in a shape that multiplies the layer's output."""
        if self.implicit:
            return self.bias
        return self.bias.view(-1, *[1] * (len(self.shape) - 1 - self.channels % len(self.shape)))


def record(network: nn.Module, x: Images) -> tuple[list[Term], Tensor]:
    """Run the network once: its biases in order of execution, and its output."""
    terms: list[Term] = []
    channels_last: list[Tensor] = []  # outputs kept alive, so that identity means identity

    def note(layer: nn.Module, out: Tensor, bias: Tensor, last: bool) -> None:
        terms.append(Term(layer, out.shape, bias, -1 if last else 1))
        if last:
            channels_last.append(out)

    def explicit(layer: nn.Module, _args: Any, out: Any) -> None:
        bias = explicit_bias(layer)
        if bias is not None:
            note(layer, out, bias, last=isinstance(layer, nn.Linear))

    def before(layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        waiting[layer] = implicit_bias(layer, args, kwargs)  # now: a layer that works in place overwrites its input

    def after(layer: nn.Module, args: tuple[Any, ...], out: Any) -> None:
        bias = waiting.pop(layer)
        if bias is not None:
            inherited = any(arg is seen for arg in args for seen in channels_last)
            note(layer, out, bias, last=out.ndim == 4 and (inherited or normalises_last_axis(layer)))

    waiting: dict[nn.Module, Tensor | None] = {}
    handles = []
    for layer in layers(network):
        if isinstance(layer, (*LINEAR, _BatchNorm)):
            handles.append(layer.register_forward_hook(explicit))
        elif not isinstance(layer, HOMOGENEOUS):
            handles.append(layer.register_forward_pre_hook(before, with_kwargs=True))
            handles.append(layer.register_forward_hook(after))
    try:
        output = network(x.clone())
    finally:
        for handle in handles:
            handle.remove()
    return terms, output


@contextmanager
def added(probes: Sequence[Tensor], terms: Sequence[Term]) -> Iterator[None]:
    """Add a probe to each listed output, in order of execution; a zero's gradient is that output's gradient."""
    waiting = iter(probes)

    def add(_layer: nn.Module, _args: Any, out: Tensor) -> Tensor:
        return out + next(waiting)

    def scale_and_add(layer: nn.Module, args: tuple[Tensor, ...], _out: Any) -> Tensor:
        # BatchNorm again as what it is in eval mode: backward, one product is a third of the time of its own kernel
        slope, bias = affine(layer)
        return args[0] * per_channel(slope, args[0].ndim) + (next(waiting) + per_channel(bias, args[0].ndim))

    seen = {term.layer for term in terms}
    handles = [layer.register_forward_hook(scale_and_add if isinstance(layer, _BatchNorm) else add) for layer in seen]
    try:
        yield  # a new tensor leaves each layer, so in-place activations are harmless
    finally:
        for handle in handles:
            handle.remove()


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


def explicit_bias(layer: nn.Module) -> Tensor | None:
    if isinstance(layer, _BatchNorm):
        return affine(layer)[1]
    bias = layer.bias
    assert bias is None or isinstance(bias, Tensor)
    return None if bias is None else bias.detach()


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


def per_channel(values: Tensor, axes: int) -> Tensor:
    """Values of channels, in a shape that multiplies features (B, C, ...)."""
    return values.view(-1, *[1] * (axes - 2))


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

    values = [args[place].clone() for place in places]
    if not places or not isinstance(function(*values), Tensor):
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # torch's own, about how it loads forward mode
        value, product, *_ = torch.func.jvp(function, tuple(values), tuple(values))
    bias: Tensor = value - product
    if type(layer).__module__.startswith("torch.nn."):
        return bias  # known to have one: no need to wait for the device
    return bias if bias.abs().max() > 64 * torch.finfo(bias.dtype).eps * value.abs().max() else None


def normalises_last_axis(layer: nn.Module) -> bool:
    """A plain LayerNorm over one axis works on (B, H, W, C); its subclasses for images move the axes themselves."""
    return type(layer) is nn.LayerNorm and len(layer.normalized_shape) == 1
