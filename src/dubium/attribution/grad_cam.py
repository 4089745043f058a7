"""Grad-CAM (Selvaraju et al., 2017, arXiv:1610.02391)."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import interpolate
from torch.nn.modules.conv import _ConvNd

from dubium.attribution._budget import images_per_pass
from dubium.attribution._context import DEFAULT_CONTEXT, Context
from dubium.attribution._gradients import gradients_at
from dubium.attribution._passes import forward_with_graph
from dubium.attribution._target import split_images
from dubium.checks import count_text
from dubium.errors import OptionError, UnknownNameError, unknown_name_text
from dubium.posteriors.stack import Stack, stacked_networks
from dubium.types import Images, Maps, Target

Layer = str | nn.Module | None
Features = tuple[Tensor, Tensor]
"""What a layer puts out, (B, C, h, w), and zeros that were added to it: their gradient is that of the features."""


def grad_cam(
    network: nn.Module, x: Images, target: Target, *, layer: Layer = None, context: Context = DEFAULT_CONTEXT
) -> Maps:
    """Credit each pixel with the features above it, weighted by how much each channel moves the target.

    Args:
        layer: a layer's name, or the layer itself; None is the 2-D convolution executed last, of those with features
            larger than one pixel. Of a stacked posterior each network has one, and their maps are averaged.
    """
    recording = RecordingNetwork(network, x[:1], layer)
    maps: list[Maps] = []
    for images, chunk_target in split_images(x, target, images_per_pass(network, x, target, context.memory)):
        _, scores = forward_with_graph(recording, images, chunk_target)
        rows = []
        for gradients in gradients_at(scores, [probe for _, probe in recording.features], context.memory):
            last = zip(gradients, recording.features, strict=True)
            rows.append(torch.stack([activation_map(g, features, images) for g, (features, _) in last]).mean(0))
        maps.append(torch.cat(rows).movedim(0, 1))
    return torch.cat(maps)


class RecordingNetwork(nn.Module):
    """A network, or all of a stack, with the features of each one's layer in its own pass: they may share layers."""

    def __init__(self, network: nn.Module, x: Images, layer: Layer) -> None:
        super().__init__()
        self.members = nn.ModuleList(stacked_networks(network))
        self.is_stack = isinstance(network, Stack)
        self.layers = [find_layer(member, x, layer) for member in self.members]
        self.features: list[Features] = []

    def forward(self, x: Images) -> Tensor:
        self.features, outputs = [], list[Tensor]()
        for member, layer in zip(self.members, self.layers, strict=True):
            with record_features([layer], len(x), is_chosen=True) as recorded:
                outputs.append(member(x.clone()))
            if layer not in recorded:
                raise OptionError(
                    f"The layer {type(layer).__name__} is not executed by {type(member).__name__}. Name another with "
                    "layer=."
                )
            self.features.append(recorded[layer])
        return torch.stack(outputs, 1) if self.is_stack else outputs[0]


def activation_map(
    gradient: Float[Tensor, "t B c h w"], features: Float[Tensor, "B c h w"], x: Images
) -> Float[Tensor, "t B H W"]:
    """The positive part of the features' sum, each channel by its mean gradient, at the size of the image."""
    cam = torch.einsum("tbc,bchw->tbhw", gradient.mean((3, 4)), features).relu()
    return interpolate(cam, size=x.shape[2:], mode="bilinear", align_corners=False)


@contextmanager
def record_features(
    layers: Iterable[nn.Module], image_count: int, *, is_chosen: bool = False
) -> Iterator[dict[nn.Module, Features]]:
    """Within, a forward pass keeps the output of each layer's last execution, and a probe that was added to it.

    Outputs that are no features of so many images are refused if the layers were chosen, or else left out.
    """
    recorded: dict[nn.Module, Features] = {}

    def note(layer: nn.Module, _args: Any, out: Any) -> Tensor | None:
        if not isinstance(out, Tensor) or out.ndim != 4 or len(out) != image_count:
            if not is_chosen:
                return None
            given = tuple(out.shape) if isinstance(out, Tensor) else type(out).__name__
            raise OptionError(
                f"The layer {type(layer).__name__} puts out {given}; Grad-CAM needs feature maps (B, C, h, w) of "
                f"the {count_text(image_count, 'image')}. Name another with layer=."
            )
        zeros = out.detach().new_zeros(())  # they take no memory
        recorded.pop(layer, None)  # the dictionary is in order of execution
        recorded[layer] = out.detach(), zeros.expand(out.shape).requires_grad_()
        return out + recorded[layer][1]

    handles = [layer.register_forward_hook(note) for layer in layers]
    try:
        yield recorded
    finally:
        for handle in handles:
            handle.remove()


def find_layer(network: nn.Module, x: Images, layer: Layer) -> nn.Module:
    """The layer of that name, or the convolution that this network executes last."""
    named: dict[str, nn.Module] = {name: module for name, module in network.named_modules() if name}
    if isinstance(layer, nn.Module):
        if layer not in named.values():
            raise OptionError(
                f"The layer {type(layer).__name__} is not part of every network. Give its name instead: "
                f"{', '.join(list(named)[:8])}, ..."
            )
        return layer
    if layer is not None:
        if not isinstance(layer, str) or layer not in named:
            raise UnknownNameError(unknown_name_text("layer", layer, named))
        return named[layer]
    convolutions = [m for m in network.modules() if isinstance(m, _ConvNd) and len(m.kernel_size) == 2]
    with record_features(convolutions, len(x)) as ran:
        network(x.clone())
    if not ran:
        raise OptionError(
            f"{type(network).__name__} executes no convolution of images (B, C, H, W). Name a layer with layer=."
        )
    wide = [layer for layer, (features, _) in ran.items() if features.shape[2:].numel() > 1]
    return wide[-1] if wide else list(ran)[-1]  # after global pooling, features have no place
