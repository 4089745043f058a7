"""The biases of a network, found by running it.

Every layer is `f(v) = J_f(v) v + b`. For convolutions, BatchNorm and dense layers b is a parameter or follows from
some; for a layer that is not positively homogeneous (GELU, GroupNorm, ...) it is implicit: `b = f(v) - J_f(v) v`.
The input counts as a bias of its own: its term is gradient times input.
"""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd
from torch.nn.modules.dropout import _DropoutNd
from torch.nn.modules.pooling import _AdaptiveAvgPoolNd, _AdaptiveMaxPoolNd, _AvgPoolNd, _MaxPoolNd
from torch.utils.hooks import RemovableHandle

from dubium.attribution._autograd.nodes import is_copy, leads_around
from dubium.models.normalized import Normalise
from dubium.types import Images

LINEAR = (_ConvNd, nn.Linear)
HOMOGENEOUS = (
    *(nn.ReLU, nn.LeakyReLU, nn.PReLU, nn.Identity, nn.Flatten, nn.Unflatten, nn.Upsample, nn.PixelShuffle),
    *(_DropoutNd, _AdaptiveAvgPoolNd, _AdaptiveMaxPoolNd, _AvgPoolNd, _MaxPoolNd),
)


@dataclass(frozen=True)
class Bias:
    """A bias, at one execution of one layer."""

    value: Tensor  # one number a channel, or as large as the output where it is implicit; of several networks, stacked
    channels: int  # the axis of the channels in the output
    implicit: bool

    @classmethod
    def of_networks(cls, biases: Sequence["Bias"]) -> "Bias":
        """The same bias in several networks."""
        return cls(torch.stack([bias.value for bias in biases]), biases[0].channels, biases[0].implicit)


class Standardised(NamedTuple):
    """An execution of a `Normalise` layer."""

    layer: Normalise
    given: Tensor
    out: Tensor


@dataclass
class RecordedBiases:
    """What a forward pass has recorded, in order of execution: where each bias acts, and the bias."""

    terms: list[tuple[GradientEdge, Bias]] = field(default_factory=list)
    standardised: list[Standardised] = field(default_factory=list)

    def with_input(self, leaf: Images, output: Any) -> list[tuple[GradientEdge, Bias]]:
        """All biases, and first the images as the network itself sees them: after a normalisation of ours.

        That is where every way from the image leads through `Normalise` layers that are alike, however deep in wrappers
        they stand; otherwise they are layers like any other.
        """
        if not self.standardised or not self._begins_standardised(leaf, output):
            shifts = [(get_gradient_edge(s.out), Bias(s.layer.shift(s.given), 1, False)) for s in self.standardised]
            return [(get_gradient_edge(leaf), Bias(leaf.detach(), 1, True)), *shifts, *self.terms]
        if len(self.standardised) == 1:
            out = self.standardised[0].out
            return [(get_gradient_edge(out), Bias(out.detach(), 1, True)), *self.terms]
        # of several networks: gradients meet at the image, where the factor 1 / std is in them already
        centred = leaf.detach() - self.standardised[0].layer.mean
        return [(get_gradient_edge(leaf), Bias(centred, 1, True)), *self.terms]

    def _begins_standardised(self, leaf: Images, output: Any) -> bool:
        first = self.standardised[0].layer
        if not isinstance(output, Tensor) or not all(
            first.is_like(s.layer) and is_copy(s.given, leaf) for s in self.standardised
        ):
            return False
        return not leads_around(output, leaf, [s.out for s in self.standardised])


@contextmanager
def record_biases(network: nn.Module, images: int, *, spatial: bool) -> Iterator[RecordedBiases]:
    """Within the block, a forward pass records each bias with the place of its gradient.

    Layers that do not keep images apart are left out: what they miss shows in the completeness. With `spatial`, so are
    those that have no place in the image.
    """
    recorded = RecordedBiases()
    channels_last: list[Tensor] = []  # outputs kept alive, so that identity means identity
    implicit: dict[nn.Module, Tensor | None] = {}

    def add(out: Tensor, value: Tensor, last: bool) -> None:
        if out.requires_grad and len(out) == images and (out.ndim == 4 or not spatial):
            recorded.terms.append((get_gradient_edge(out), Bias(value, -1 if last else 1, value.ndim > 1)))
        if last:
            channels_last.append(out)

    def after_linear(layer: nn.Module, _args: Any, out: Any) -> None:
        if isinstance(layer.bias, Tensor):
            add(out, layer.bias.detach(), last=isinstance(layer, nn.Linear))

    def after_batch_norm(layer: nn.Module, _args: Any, out: Tensor) -> None:
        add(out, batch_norm_shift(layer), last=False)

    def after_normalise(layer: nn.Module, args: tuple[Any, ...], out: Tensor) -> None:
        assert isinstance(layer, Normalise)
        if out.requires_grad and len(out) == images:
            recorded.standardised.append(Standardised(layer, args[0], out))

    def before_other(layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        implicit[layer] = implicit_bias(layer, args, kwargs)  # now: a layer that works in place overwrites its input

    def after_other(layer: nn.Module, args: tuple[Any, ...], out: Any) -> None:
        bias = implicit.pop(layer)
        inherited = any(arg is seen for arg in args for seen in channels_last)
        if bias is not None:
            add(out, bias, last=out.ndim == 4 and (inherited or normalises_last_axis(layer)))

    handles: list[RemovableHandle] = []
    for layer in innermost_layers(network):
        if isinstance(layer, _BatchNorm):
            handles.append(layer.register_forward_hook(after_batch_norm))
        elif isinstance(layer, LINEAR):
            handles.append(layer.register_forward_hook(after_linear))
        elif isinstance(layer, Normalise):
            handles.append(layer.register_forward_hook(after_normalise))
        elif not isinstance(layer, HOMOGENEOUS):
            handles.append(layer.register_forward_pre_hook(before_other, with_kwargs=True))
            handles.append(layer.register_forward_hook(after_other))
    try:
        yield recorded
    finally:
        for handle in handles:
            handle.remove()


def batch_norm_shift(layer: nn.Module) -> Tensor:
    """The bias of a BatchNorm layer in eval mode, one number a channel."""
    assert isinstance(layer, _BatchNorm)
    assert layer.running_mean is not None
    assert layer.running_var is not None
    bias = -layer.running_mean * (layer.running_var + layer.eps).rsqrt()
    bias = bias if layer.weight is None else bias * layer.weight.detach()
    return bias if layer.bias is None else bias + layer.bias.detach()


def innermost_layers(module: nn.Module, seen: set[nn.Module] | None = None) -> Iterator[nn.Module]:
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
            yield from innermost_layers(child, seen)


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

    # in torch's own layout: forward mode fails in another for some layers
    values = [args[place].detach().clone(memory_format=torch.contiguous_format) for place in places]
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
