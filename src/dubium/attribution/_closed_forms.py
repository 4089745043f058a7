"""Implicit biases `f(x) - J_f(x) x` of layers that many networks have, in closed form.

Forward mode gives the same; it takes ten times as long.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

ClosedForm = Callable[[Any, Tensor, Tensor], Tensor]
"""A layer, its input and its output -> its implicit bias, of the output's shape."""


def layer_norm_bias(layer: nn.LayerNorm, x: Tensor, out: Tensor) -> Tensor:
    axes = [*range(-len(layer.normalized_shape), 0)]
    return norm_bias(out, layer.bias, x.var(axes, correction=0, keepdim=True), layer.eps)


def group_norm_bias(layer: nn.GroupNorm, x: Tensor, out: Tensor) -> Tensor:
    by_group = x.reshape(len(x), layer.num_groups, -1).var(2, correction=0)
    by_channel = by_group.repeat_interleave(layer.num_channels // layer.num_groups, 1)
    shape = [-1, *[1] * (x.ndim - 2)]
    shift = None if layer.bias is None else layer.bias.view(shape)
    return norm_bias(out, shift, by_channel.view(len(x), *shape), layer.eps)


def norm_bias(out: Tensor, shift: Tensor | None, variance: Tensor, eps: float) -> Tensor:
    """Of `f(x) = w (x - mean) / sqrt(variance + eps) + shift`; J x is `(f(x) - shift) eps / (variance + eps)`."""
    scaled = out if shift is None else out - shift
    return out - scaled * (eps / (variance + eps))


def gelu_bias(layer: nn.GELU, x: Tensor, _out: Tensor) -> Tensor:
    x = x.clamp(-40, 40)  # it is 0 from there on, and in half precision the powers of a larger number are infinite
    if layer.approximate == "none":  # x Phi(x)
        return -x.square() * torch.exp(-x.square() / 2) / math.sqrt(2 * math.pi)
    cubic, scale = 0.044715, math.sqrt(2 / math.pi)  # x (1 + tanh u) / 2
    tanh = torch.tanh(scale * (x + cubic * x**3))
    return -x.square() * (1 - tanh.square()) * scale * (1 + 3 * cubic * x.square()) / 2


def silu_bias(_layer: nn.SiLU, x: Tensor, out: Tensor) -> Tensor:
    return -out * (x * torch.sigmoid(-x))


CLOSED_FORMS: dict[type[nn.Module], ClosedForm] = {
    nn.LayerNorm: layer_norm_bias,
    nn.GroupNorm: group_norm_bias,
    nn.GELU: gelu_bias,
    nn.SiLU: silu_bias,
}
