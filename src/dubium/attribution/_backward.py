"""Backward passes of our own where autograd's, within vmap, take most of the time: they copy inputs they do not need.

A layer's output stays what it is; only the gradient behind it is replaced. Features and gradients have their channels
last, the layout in which oneDNN convolves fastest.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.nn.functional import conv_transpose2d, fold, max_pool2d, max_unpool2d, pad
from torch.nn.modules.batchnorm import _BatchNorm

from dubium.types import Images

SUITS: WeakKeyDictionary[nn.Module, bool] = WeakKeyDictionary()  # what was found by trying


def faster(network: nn.Module, x: Images) -> AbstractContextManager[None]:
    """`own_backward`, if the network works with it; that is tried once, on one image.

    Some networks flatten features with `view`, and some of torch's layers know no other layout than their own.
    """
    if network not in SUITS:
        try:
            with torch.enable_grad(), own_backward(network):
                at = x[:1].clone().requires_grad_()
                score = network(at.clone()).flatten()[:1]
            pull = torch.func.vmap(lambda one: torch.autograd.grad(score, at, one, allow_unused=True))
            pull(torch.ones_like(score)[None])
            SUITS[network] = True
        except RuntimeError:
            SUITS[network] = False
    return own_backward(network) if SUITS[network] else nullcontext()


@contextmanager
def own_backward(network: nn.Module) -> Iterator[None]:
    """Within, a forward pass of the network leaves our gradients behind it, where there are some for a layer."""
    latest: tuple[Any, ...] = ()  # the last convolution's output, and what made it

    def convolution(layer: nn.Conv2d, args: tuple[Tensor, ...], out: Tensor) -> Tensor | None:
        nonlocal latest
        x = args[0]
        if not ours(x) or layer.padding_mode != "zeros" or isinstance(layer.padding, str):
            return None
        out = Convolution.apply(x, channels_last(out), layer.weight.detach(), layer)
        latest = out, out._version, x, layer
        return out

    def normalisation(layer: _BatchNorm, args: tuple[Tensor, ...], out: Tensor) -> Tensor | None:
        if layer.running_mean is None:
            return None
        slope, bias = affine(layer)
        if latest and args[0] is latest[0] and args[0]._version == latest[1]:  # nothing worked on it in place since
            *_, x, before = latest  # together they are one convolution with other weights
            weight = before.weight.detach() * slope[:, None, None, None]
            return Convolution.apply(x, channels_last(out), weight, before)  # type: ignore[no-any-return]
        shape = (-1, *[1] * (args[0].ndim - 2))
        return args[0] * slope.view(shape) + bias.view(shape)

    def pooling(layer: nn.MaxPool2d, args: tuple[Tensor, ...], out: Tensor) -> Tensor | None:
        size = layer.kernel_size
        plain = (layer.stride, layer.padding, layer.dilation, layer.ceil_mode) == (size, 0, 1, False)
        if not plain or not isinstance(size, int) or not isinstance(out, Tensor) or not ours(args[0]):
            return None
        return Pooling.apply(args[0], out.detach(), size)  # type: ignore[no-any-return]

    def rectifier(layer: nn.ReLU, args: tuple[Tensor, ...], out: Tensor) -> Tensor | None:
        return Rectifier.apply(args[0], out.detach()) if ours(out) and not layer.inplace else None

    hooks: dict[type[nn.Module], Callable[..., Any]] = {
        nn.Conv2d: convolution, nn.MaxPool2d: pooling, nn.ReLU: rectifier,
    }  # fmt: skip
    handles = []
    for layer in network.modules():
        hook = normalisation if isinstance(layer, _BatchNorm) else hooks.get(type(layer))  # a subclass may differ
        if hook is not None:
            handles.append(layer.register_forward_hook(hook))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def ours(x: Tensor) -> bool:
    return x.is_cpu and x.ndim == 4


def channels_last(x: Tensor) -> Tensor:
    """By strides, since `contiguous(memory_format=...)` does not work within vmap."""
    _, channels, height, width = x.shape
    if x.stride() == (height * width * channels, 1, width * channels, channels):
        return x.detach()
    return x.movedim(1, -1).contiguous().movedim(-1, 1).detach()


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


class Convolution(torch.autograd.Function):
    """The gradient of a convolution at its input is a transposed convolution."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, out: Tensor, weight: Tensor, layer: nn.Conv2d) -> Tensor:
        ctx.size, ctx.weight, ctx.layer = x.shape[2:], weight, layer
        ctx.mark_dirty(out)  # so that it is no view, and the next layer may work in place
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        layer, weight = ctx.layer, ctx.weight
        kernel, stride, padding, dilation = layer.kernel_size, layer.stride, layer.padding, layer.dilation
        if layer.in_channels == 1:  # a product of small matrices: oneDNN's kernels want many channels
            columns = weight.flatten(1).T @ gradient.flatten(2)
            return fold(columns, ctx.size, kernel, dilation, padding, stride), None, None, None
        reached = [
            (n - 1) * s - 2 * p + d * (k - 1) + 1
            for n, k, s, p, d in zip(gradient.shape[2:], kernel, stride, padding, dilation, strict=True)
        ]
        rest = [size - end for size, end in zip(ctx.size, reached, strict=True)]
        gradient = channels_last(gradient)
        pulled = conv_transpose2d(gradient, weight, None, stride, padding, rest, layer.groups, dilation)
        return pulled, None, None, None


class Pooling(torch.autograd.Function):
    """Maxima of squares that do not overlap: where each was found is known once for all targets."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, out: Tensor, size: int) -> Tensor:
        height, width = out.shape[2] * size, out.shape[3] * size
        _, found = max_pool2d(x.detach()[:, :, :height, :width], size, return_indices=True)
        where = max_unpool2d(torch.ones_like(out), found, [size, size], output_size=(height, width))
        ctx.where = where.movedim(1, -1).unflatten(1, (-1, size)).flatten(3).contiguous()  # image, row, row, columns
        ctx.size, ctx.rest = size, (0, x.shape[3] - width, 0, x.shape[2] - height)
        ctx.mark_dirty(out)
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        # across columns by a copy, then down rows by the product: its inner loop runs over whole rows
        across = gradient.movedim(1, -1)[:, :, :, None].expand(-1, -1, -1, ctx.size, -1).flatten(2)
        pulled = (across[:, :, None] * ctx.where).flatten(1, 2).unflatten(2, (-1, gradient.shape[1])).movedim(-1, 1)
        return (pad(pulled, ctx.rest) if any(ctx.rest) else pulled), None, None


class Rectifier(torch.autograd.Function):
    """A ReLU that brings its gradient to the layout of its output: mixed layouts take ten times as long."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, out: Tensor) -> Tensor:
        ctx.save_for_backward(out)
        ctx.mark_dirty(out)
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (out,) = ctx.saved_tensors
        if out.movedim(1, -1).is_contiguous():
            gradient = channels_last(gradient)
        return torch.ops.aten.threshold_backward(gradient, out, 0), None
