"""Networks whose random layers are replaced by `torch.nn` layers with fixed weights, which every method can read."""

from collections.abc import Iterable, Mapping
from typing import Any

from torch import Tensor, nn
from torch.nn.utils import skip_init

from dubium.posteriors.weights import snapshot


def networks_with(network: nn.Module, replacements: Iterable[Mapping[int, Any]]) -> list[nn.Module]:
    """Copies of the network, one per mapping from the `id` of a layer to its replacement.

    The parameters of the other layers are shared by all copies.
    """
    shared = {id(parameter): nn.Parameter(parameter.detach().clone()) for parameter in network.parameters()}
    return [snapshot(network, {**shared, **layers}) for layers in replacements]


def build_torch_layer(kind: str, like: Any, weight: Tensor, bias: Tensor | None) -> nn.Module:
    """A `torch.nn` layer of that kind ("Linear", "Conv2d", "ConvTranspose1d", ...) with the sizes of `like`."""
    layer: nn.Module
    if kind == "Linear":
        layer = skip_init(nn.Linear, like.in_features, like.out_features, bias=bias is not None)
    else:
        names = ["stride", "padding", "dilation", "groups", "padding_mode"]
        names += ["output_padding"] if kind.startswith("ConvTranspose") else []
        options = {name: getattr(like, name) for name in names if hasattr(like, name)}
        sizes = (like.in_channels, like.out_channels, tuple(weight.shape[2:]))
        layer = skip_init(getattr(nn, kind), *sizes, bias=bias is not None, **options)
    layer.weight = nn.Parameter(weight.detach(), requires_grad=False)
    if bias is not None:
        layer.bias = nn.Parameter(bias.detach(), requires_grad=False)
    return layer.eval()
