"""Dropout by functions instead of layers: `F.dropout`, attention with `dropout_p`, recurrent layers.

All of them draw a tensor of zeros and ones, by the operation `bernoulli_`. A pass in training mode shows which modules
draw, and how large the part of one image is; a sample then runs these modules, alone, in training mode, with fixed
numbers instead of random ones.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass
from itertools import count

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd

from dubium.errors import NetworkStateError
from dubium.posteriors.fixed_noise import Draw, TakeMask, replace_noise
from dubium.posteriors.weights import with_weights

FAST = (nn.TransformerEncoderLayer, nn.TransformerDecoderLayer)  # in eval mode they may leave out their dropout layers

IS_FINDING_SITES: ContextVar[bool] = ContextVar("is_finding_sites", default=False)
"""Whether passes run that are made once, to see what a network draws: they do not count as memory that a pass needs."""

IMAGE_AXES = "image_axes"  # of a dropout layer with a fixed mask: the axis of the images at each of its calls


@dataclass(frozen=True)
class NoiseShape:
    """The shape of one image's part of a draw, and the axis along which images follow each other, if any."""

    image_shape: tuple[int, ...]
    axis: int | None

    def count_images(self, shape: Sequence[int]) -> int | None:
        """How many images a draw of this shape is for; None if it is not a number of `image_shape`s along `axis`."""
        if self.axis is None:
            return 1 if tuple(shape) == self.image_shape else None
        fits = len(shape) == len(self.image_shape) and all(
            a == b or axis == self.axis for axis, (a, b) in enumerate(zip(shape, self.image_shape, strict=True))
        )
        count, remainder = divmod(shape[self.axis], self.image_shape[self.axis]) if fits else (0, 1)
        return count if remainder == 0 else None


Sites = Mapping[str, Mapping[Draw, NoiseShape]]
"""What each module draws, by the module's name."""


def may_drop_out_inside(network: nn.Module) -> bool:
    """Whether dropout that is no layer is possible: in code that is not torch's, or inside some layers of torch's."""
    return any(
        layer.dropout > 0
        if isinstance(layer, nn.MultiheadAttention | nn.RNNBase)
        else not type(layer).__module__.startswith("torch.nn.") and not isinstance(layer, _DropoutNd)
        for layer in network.modules()
    )


def find_sites(network: nn.Module, x: Tensor) -> Sites:
    """Where the network draws, in training mode or in eval mode; x tells the shape, type and device of its images.

    Its dropout layers are already replaced by fixed masks. Stochastic depth, which draws one number an image, is left
    out: it stays as it is in eval mode.
    """
    batches = [torch.zeros((image_count, *x.shape[1:]), dtype=x.dtype, device=x.device) for image_count in (2, 3)]
    token = IS_FINDING_SITES.set(True)
    try:
        drawn = [shapes_drawn(network, batch) for batch in batches] if may_drop_out_inside(network) else [{}, {}]
    finally:
        IS_FINDING_SITES.reset(token)
    sites: dict[str, dict[Draw, NoiseShape]] = {}
    for name, two in drawn[0].items():
        three = drawn[1].get(name, {})
        shapes = {draw: noise_shape(shape, three.get(draw, ())) for draw, shape in two.items()}
        known = {draw: shape for draw, shape in shapes.items() if shape is not None}
        if len(known) < len(shapes) and not hasattr(network.get_submodule(name), IMAGE_AXES):
            raise NetworkStateError(
                f"The layer {name!r} drops out numbers of shape {list(two.values())} for two images and "
                f"{list(three.values())} for three, so that its masks cannot be fixed. Make it a layer: self.dropout = "
                "nn.Dropout(p) in __init__, self.dropout(x) in forward; the weights stay the same."
            )
        if any(torch.Size(shape.image_shape).numel() > 1 for shape in known.values()):
            sites[name] = known
    return sites


def has_noise(network: nn.Module, sites: Sites) -> bool:
    """Whether anything but dropout layers, whose masks are fixed already, drops out."""
    return any(not hasattr(network.get_submodule(name), IMAGE_AXES) for name in sites)


def shapes_drawn(network: nn.Module, x: Tensor) -> dict[str, dict[Draw, tuple[int, ...]]]:
    """The shapes of all that modules draw in a pass, by the name of the module; nothing is dropped."""
    found: dict[str, dict[Draw, tuple[int, ...]]] = {}

    def note(name: str) -> TakeMask:
        def take(draw: Draw, noise: Tensor, probability: float) -> Tensor:
            found.setdefault(name, {})[draw] = tuple(noise.shape)
            return keep_all_numbers(draw, noise, probability)

        return take

    for training in (True, False):
        copy = with_weights(network, {})
        for name, layer in copy.named_modules():
            layer.training = training and not isinstance(layer, _BatchNorm)  # which cannot train on one image
            replace_noise(layer, note(name), training=layer.training)
            if hasattr(layer, IMAGE_AXES):
                note_inputs(layer, found.setdefault(name, {}))
        errors = (RuntimeError, TypeError, ValueError, AttributeError) if training else ()  # it may want labels
        with torch.no_grad(), suppress(*errors):
            copy(x)
    return found


def note_inputs(layer: nn.Module, shapes: dict[Draw, tuple[int, ...]]) -> None:
    """Note the shape of what a dropout layer is given at each of its calls."""
    calls = count()
    layer.register_forward_pre_hook(lambda _layer, args: shapes.update({(0, next(calls)): tuple(args[0].shape)}))


def noise_shape(two: tuple[int, ...], three: tuple[int, ...]) -> NoiseShape | None:
    """What one image draws, from the shapes of two images' and of three images' draws; None if they do not tell."""
    axes = [axis for axis, (a, b) in enumerate(zip(two, three, strict=False)) if a != b]
    if len(two) != len(three) or len(axes) > 1 or any(two[axis] * 3 != three[axis] * 2 for axis in axes):
        return None
    axis = axes[0] if axes else None
    return NoiseShape(tuple(size // 2 if i == axis else size for i, size in enumerate(two)), axis)


MakeMask = Callable[[str, Draw, tuple[int, ...], float], Tensor]
"""Module, draw, shape for one image and the probability of a 1 -> zeros and ones of that shape."""


def fix_noise(network: nn.Module, sites: Sites, make_mask: MakeMask) -> None:
    """Let the modules at the sites draw what `make_mask` gives, the same for all images.

    Dropout layers, whose masks are fixed already, are told where the images are: tokens may come before them.
    """
    for name, layer in network.named_modules():
        if hasattr(layer, IMAGE_AXES):
            axes = {call: shape.axis or 0 for (_, call), shape in sites.get(name, {}).items()}
            setattr(layer, IMAGE_AXES, axes)
        elif name in sites:
            replace_noise(layer, mask_for_all_images(name, sites[name], make_mask), training=True, draws=sites[name])
        elif isinstance(layer, FAST):
            replace_noise(layer, keep_all_numbers, training=True)


def mask_for_all_images(name: str, shapes: Mapping[Draw, NoiseShape], make_mask: MakeMask) -> TakeMask:
    def take(draw: Draw, noise: Tensor, probability: float) -> Tensor:
        shape = shapes.get(draw)
        image_count = None if shape is None else shape.count_images(noise.shape)
        if shape is None or image_count is None:
            raise NetworkStateError(f"The layer {name!r} drops out other numbers than before: {tuple(noise.shape)}.")
        mask = make_mask(name, draw, shape.image_shape, probability).to(noise)
        return mask if shape.axis is None else torch.cat([mask] * image_count, shape.axis)

    return take


def keep_all_numbers(_draw: Draw, noise: Tensor, _probability: float) -> Tensor:
    return torch.ones_like(noise)
