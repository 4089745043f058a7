"""Mitigation (Sec. 4): train again, with the features of pixels that carry some uncertainty made stronger."""

from copy import deepcopy
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn
from torch.nn import functional as F

from dubium.attribution.grad_cam import Layer, find_layer
from dubium.checks import check_images
from dubium.data import Dataset
from dubium.errors import ImagesError, UnknownNameError, unknown
from dubium.training.loop import Objective, fit
from dubium.training.recipe import Recipe
from dubium.types import Images

Normalisation = Literal["softmax", "unit"]
"""How a map becomes M in [0, 1]: softmax over its pixels (the paper's), or divided by its highest value."""

Space = Literal["latent", "input", "input-added"]
"""What attention multiplies: features with `1 + alpha A`, or the image with `A` (the paper's) or `1 + alpha A`."""

MITIGATION = Recipe(architecture="cnn3", epochs=120, batch_size=128, lr=0.1, milestones=(30, 60, 90), gamma=0.2)
"""Appendix B.2.2."""


def mitigate(
    network: nn.Module,
    maps: Float[Tensor, "B H W"] | None,
    images: Images,
    labels: Int64[Tensor, " B"],
    *,
    alpha: float = 0.2,
    normalisation: Normalisation = "softmax",
    space: Space = "latent",
    layer: Layer = None,
    recipe: Recipe = MITIGATION,
    seed: int = 0,
    checkpoint: Path | None = None,
) -> nn.Module:
    """A copy of the network, trained further on images whose uncertainty maps steer its attention; in eval mode.

    To start afresh, as the paper does, pass a network with fresh weights. The result takes images alone: there is no
    attention when it is used.

    Args:
        maps: of these images, such as `dubium.explain(...).maps["epistemic"]`; None trains without attention.
        alpha: strength of the attention.
        layer: whose features it multiplies: a name, or the layer itself; None is the convolution executed last.
        recipe: how to train; its architecture and normalisation are the network's own affair.
        checkpoint: a file to continue from after an interruption.
    """
    _check(images, maps, labels, normalisation, space)
    trained = deepcopy(network).eval()
    if maps is None:
        fit(trained, _dataset(images, labels), recipe, seed=seed, checkpoint=checkpoint)
        return trained
    name = None
    if space == "latent":
        with torch.no_grad():
            chosen = find_layer(
                network if isinstance(layer, nn.Module) else trained, images[:1].to(_like(network)), layer
            )
        owner = network if isinstance(layer, nn.Module) else trained
        name = next(name for name, module in owner.named_modules() if module is chosen)
    attention = attention_weights(maps, normalisation).to(images)
    stacked = torch.cat([images, attention[:, None]], 1)  # crops and mirror images then move both alike
    fit(
        trained,
        _dataset(stacked, labels),
        recipe,
        seed=seed,
        checkpoint=checkpoint,
        objective=_objective(name, alpha, space),
    )
    return trained


def attention_weights(maps: Float[Tensor, "B H W"], normalisation: Normalisation = "softmax") -> Float[Tensor, "B H W"]:
    """`A = (1 - M) * M`: highest, a quarter, where M is one half. Of signed maps, `unit` takes the positive part."""
    flat = maps.flatten(1)
    if normalisation == "softmax":
        scaled = flat.softmax(1)
    else:
        positive = flat.clamp_min(0)
        scaled = positive / positive.amax(1, keepdim=True).clamp_min(torch.finfo(maps.dtype).tiny)
    return ((1 - scaled) * scaled).view_as(maps)


def attentive(
    network: nn.Module,
    x: Images,
    attention: Float[Tensor, "B H W"],
    *,
    alpha: float,
    space: Space = "latent",
    layer: str | None = None,
) -> Tensor:
    """The network's logits under attention; `layer` is the name of the layer whose features it multiplies."""
    weights = attention[:, None]
    if space in ("input", "input-added"):
        logits: Tensor = network((weights if space == "input" else 1 + alpha * weights) * x)
        return logits

    def multiply(_layer: nn.Module, _args: Any, out: Tensor) -> Tensor:
        resized = F.interpolate(weights, size=out.shape[2:], mode="bilinear", align_corners=False)
        return out * (1 + alpha * resized)

    assert layer is not None
    handle = network.get_submodule(layer).register_forward_hook(multiply)
    try:
        logits = network(x)
    finally:
        handle.remove()
    return logits


def _objective(layer: str | None, alpha: float, space: Space) -> Objective:
    """Cross-entropy under attention, which is the images' last channel."""

    def objective(network: nn.Module, stacked: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        x, attention = stacked[:, :-1], stacked[:, -1]
        logits = attentive(network, x, attention, alpha=alpha, space=space, layer=layer)
        return F.cross_entropy(logits, labels), (logits.detach().argmax(1) == labels).sum()

    return objective


def _dataset(images: Tensor, labels: Tensor) -> Dataset:
    return Dataset(images, labels, (), "mitigation", "train")


def _like(network: nn.Module) -> Tensor:
    return next(network.parameters())


def _check(images: Images, maps: Tensor | None, labels: Tensor, normalisation: str, space: str) -> None:
    check_images(images)
    if len(labels) != len(images) or not len(images):
        raise ImagesError(f"{len(images)} images and {len(labels)} labels; as many of one as of the other are needed.")
    if maps is not None and maps.shape != (len(images), *images.shape[2:]):
        expected = (len(images), *images.shape[2:])
        raise ImagesError(f"The maps have shape {tuple(maps.shape)}; expected {expected}, one for each image.")
    for noun, value, known in (("normalisation", normalisation, Normalisation), ("space", space, Space)):
        if value not in get_args(known):
            raise UnknownNameError(unknown(noun, value, get_args(known)))
