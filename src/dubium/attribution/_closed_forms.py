"""Implicit biases `f(x) - J_f(x) x` of functions that many networks use, in closed form.

Forward mode gives the same; it takes several times as long.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from dubium.attribution._implicit import replace_infinity

ClosedForm = Callable[..., Tensor | None]
"""A function's output, and its arguments as that function of torch takes them, the input first -> its implicit bias.

It has the output's shape, or one number for each channel; None is for arguments of which the closed form is not known.
"""


def layer_norm_bias(
    out: Tensor,
    x: Tensor,
    normalized_shape: Any,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    axes = [*range(-len(normalized_shape), 0)]
    return norm_bias(out, bias, x.var(axes, correction=0, keepdim=True), eps)


def group_norm_bias(
    out: Tensor,
    x: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    by_group = x.reshape(len(x), num_groups, -1).var(2, correction=0)
    by_channel = by_group.repeat_interleave(x.shape[1] // num_groups, 1)
    shape = [-1, *[1] * (x.ndim - 2)]
    shift = None if bias is None else bias.view(shape)
    return norm_bias(out, shift, by_channel.view(len(x), *shape), eps)


def norm_bias(out: Tensor, shift: Tensor | None, variance: Tensor, eps: float) -> Tensor:
    """Of `f(x) = w (x - mean) / sqrt(variance + eps) + shift`; J x is `(f(x) - shift) eps / (variance + eps)`."""
    scaled = out if shift is None else out - shift
    return out - scaled * (eps / (variance + eps))


def batch_norm_bias(
    out: Tensor,
    x: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor | None:
    """One number a channel."""
    if training or running_mean is None:
        return None
    return batch_norm_shift(running_mean, running_var, weight, bias, eps)


def batch_norm_shift(
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float | int,
) -> Tensor:
    """What BatchNorm in eval mode makes of zeros: one number a channel."""
    assert running_mean is not None, "networks without running statistics are refused"
    zeros = running_mean.new_zeros(1, len(running_mean))
    return torch.batch_norm(
        zeros, weight, bias, running_mean, running_var, False, 0.0, eps, torch.backends.cudnn.enabled
    )[0]


def gelu_bias(out: Tensor, x: Tensor, approximate: str = "none") -> Tensor:
    x = x.clamp(-40, 40)  # it is 0 from there on, and in half precision the powers of a larger number are infinite
    if approximate == "none":  # x Phi(x)
        return -x.square() * torch.exp(-x.square() / 2) / math.sqrt(2 * math.pi)
    cubic, scale = 0.044715, math.sqrt(2 / math.pi)  # x (1 + tanh u) / 2
    tanh = torch.tanh(scale * (x + cubic * x**3))
    return -x.square() * (1 - tanh.square()) * scale * (1 + 3 * cubic * x.square()) / 2


def silu_bias(out: Tensor, x: Tensor, inplace: bool = False) -> Tensor:
    return -out * (x * torch.sigmoid(-x))


def sigmoid_bias(out: Tensor, x: Tensor) -> Tensor:
    return out - out * (x * torch.sigmoid(-x))


def tanh_bias(out: Tensor, x: Tensor) -> Tensor:
    return out - x * (1 - out.square())


def softmax_bias(
    out: Tensor, x: Tensor, dim: int | None = None, dtype: torch.dtype | None = None, _stacklevel: int = 3
) -> Tensor | None:
    if dim is None:
        return None
    x = replace_infinity(x.to(out.dtype))
    return out * (1 - x + (out * x).sum(dim, keepdim=True))


def hardswish_bias(out: Tensor, x: Tensor, inplace: bool = False) -> Tensor:
    """x (x + 3) / 6 between -3 and 3."""
    return torch.where(x.abs() <= 3, -x.square() / 6, 0)


def hardsigmoid_bias(out: Tensor, x: Tensor, inplace: bool = False) -> Tensor:
    """x / 6 + 1 / 2 between -3 and 3."""
    return torch.where(x.abs() < 3, 0.5, out)


def hardtanh_bias(out: Tensor, x: Tensor, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> Tensor:
    return torch.where((x > min_val) & (x < max_val), 0, out)


def relu6_bias(out: Tensor, x: Tensor, inplace: bool = False) -> Tensor:
    return hardtanh_bias(out, x, 0.0, 6.0)


FUNCTION_FORMS: dict[Any, ClosedForm] = {
    functional.layer_norm: layer_norm_bias,
    functional.group_norm: group_norm_bias,
    functional.batch_norm: batch_norm_bias,
    functional.gelu: gelu_bias,
    functional.silu: silu_bias,
    functional.hardswish: hardswish_bias,
    functional.hardsigmoid: hardsigmoid_bias,
    functional.hardtanh: hardtanh_bias,
    functional.relu6: relu6_bias,
    **dict.fromkeys([functional.softmax, torch.softmax, Tensor.softmax], softmax_bias),
    **dict.fromkeys([torch.sigmoid, torch.sigmoid_, Tensor.sigmoid, Tensor.sigmoid_], sigmoid_bias),
    **dict.fromkeys([torch.tanh, torch.tanh_, Tensor.tanh, Tensor.tanh_], tanh_bias),
}
"""Functions of one feature, whose other arguments are constants."""

LAYER_FORMS: dict[type[nn.Module], tuple[ClosedForm, tuple[str, ...]]] = {
    nn.LayerNorm: (layer_norm_bias, ("normalized_shape", "weight", "bias", "eps")),
    nn.GroupNorm: (group_norm_bias, ("num_groups", "weight", "bias", "eps")),
    nn.GELU: (gelu_bias, ("approximate",)),
    nn.SiLU: (silu_bias, ()),
    nn.Sigmoid: (sigmoid_bias, ()),
    nn.Softmax: (softmax_bias, ("dim",)),
    nn.Tanh: (tanh_bias, ()),
    nn.Hardswish: (hardswish_bias, ()),
    nn.Hardsigmoid: (hardsigmoid_bias, ()),
    nn.Hardtanh: (hardtanh_bias, ("min_val", "max_val")),
    nn.ReLU6: (relu6_bias, ()),
}
"""Layers of one such function, and their attributes that are its arguments."""


def is_nonzero(bias: Tensor) -> bool:
    """Whether a bias is not 0 everywhere, as that of ReLU6 often is. On a GPU, asking would wait for the device."""
    return not bias.is_cpu or bool(bias.any())


def layer_closed_form(base: type[nn.Module], layer: nn.Module) -> ClosedForm | None:
    """The closed form of a layer that computes what this class of torch.nn computes, of output and input alone."""
    if base not in LAYER_FORMS or (isinstance(layer, nn.Softmax) and layer.dim is None):
        return None
    closed_form, names = LAYER_FORMS[base]
    return lambda out, x: closed_form(out, x, *[getattr(layer, name) for name in names])
