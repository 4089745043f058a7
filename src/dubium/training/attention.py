"""Mitigation (Sec. 4): train further with attention, which strengthens the features of uncertain pixels."""

from copy import deepcopy
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from dubium.attribution.grad_cam import Layer, find_layer
from dubium.data import Dataset
from dubium.errors import (
    ImagesError,
    ImagesTypeError,
    PosteriorTypeError,
    UnknownNameError,
    unknown_name_text,
)
from dubium.image_checks import check_images
from dubium.posteriors.batches import check_classes, check_labelled_images, label_range
from dubium.training.loop import Objective, fit
from dubium.training.recipe import Recipe, check_recipe
from dubium.types import Images

Normalisation = Literal["softmax", "unit"]
"""How a map becomes M in [0, 1]: softmax over its pixels (the paper's), or division by its highest value."""

Space = Literal["latent", "input", "input-added"]
"""What attention multiplies: features with `1 + alpha A`, or the image with `A` (the paper's) or `1 + alpha A`."""

MITIGATION = Recipe(architecture="cnn3", epochs=120, batch_size=128, lr=0.1, milestones=(30, 60, 90), gamma=0.2)
"""Appendix B.2.2."""


def mitigate(
    network: nn.Module,
    maps: Float[Tensor, "B H W"] | None,
    images: Images,
    labels: Any,
    *,
    alpha: float = 0.2,
    normalisation: Normalisation = "softmax",
    space: Space = "latent",
    layer: Layer = None,
    recipe: Recipe = MITIGATION,
    seed: int = 0,
    checkpoint: Path | None = None,
    **misplaced: Any,
) -> nn.Module:
    """Train a copy of the network further, with attention that comes from uncertainty maps.

    To train from the start, as the paper does, pass a network with new weights.

    Args:
        network: it is not changed.
        maps: of these images, such as `dubium.explain(...).maps["epistemic"]`; None trains without attention.
        images: (B, C, H, W) in [0, 1].
        labels: (B,), numbers of the classes.
        alpha: strength of the attention.
        normalisation: how maps become numbers in [0, 1]: "softmax" or "unit".
        space: what attention multiplies: features ("latent") or the image ("input", "input-added").
        layer: whose features it multiplies: a name, or the layer itself; None is the convolution executed last.
        recipe: how to train; its architecture, mean and std are not used.
        checkpoint: a file to continue from after an interruption.
        misplaced: refused; values of a recipe belong into `recipe`.

    Returns:
        The trained copy, in eval mode. It takes images alone: there is no attention when it predicts.

    >>> from dubium.models import cnn
    >>> x, labels = torch.rand(4, 1, 12, 12), torch.tensor([0, 1, 0, 1])
    >>> network = cnn(classes=2, filters=2, units=4, size=12)
    >>> trained = mitigate(network, torch.rand(4, 12, 12), x, labels, recipe=Recipe(epochs=1))
    >>> trained(x).shape
    torch.Size([4, 2])
    """
    if not isinstance(network, nn.Module):
        raise PosteriorTypeError(
            f"mitigate trains one network, a torch.nn.Module, and was given a {type(network).__name__}."
        )
    check_recipe(recipe, misplaced)
    labels = check_labelled_images(images, labels)
    check_options(images, maps, normalisation, space)
    trained = deepcopy(network).eval()
    check_classes(trained, images, label_range(labels))
    if maps is None:
        fit(trained, mitigation_images(images, labels), recipe, seed=seed, checkpoint=checkpoint)
        return trained
    owner = network if isinstance(layer, nn.Module) else trained
    name = layer_name(owner, images, layer) if space == "latent" else None
    attention = attention_weights(maps, normalisation).to(images)
    stacked = torch.cat([images, attention[:, None]], 1)  # crops and mirror images then move both alike
    fit(
        trained,
        mitigation_images(stacked, labels),
        recipe,
        seed=seed,
        checkpoint=checkpoint,
        objective=attention_objective(name, alpha, space),
    )
    return trained


def layer_name(network: nn.Module, images: Images, layer: Layer) -> str:
    """The name of the layer that `layer` stands for: itself, its name, or None for the convolution executed last."""
    with torch.no_grad():
        chosen = find_layer(network, images[:1].to(next(network.parameters())), layer)
    name: str = next(name for name, module in network.named_modules() if module is chosen)
    return name


def attention_weights(maps: Float[Tensor, "B H W"], normalisation: Normalisation = "softmax") -> Float[Tensor, "B H W"]:
    """Attention `A = (1 - M) * M`, at most a quarter, where M is one half; "unit" ignores negative values of a map.

    >>> attention_weights(torch.tensor([[[0.0, 1.0, 2.0]]]), "unit")
    tensor([[[0.0000, 0.2500, 0.0000]]])
    """
    flat = maps.flatten(1)
    if normalisation == "softmax":
        scaled = flat.softmax(1)
    else:
        positive = flat.clamp_min(0)
        scaled = positive / positive.amax(1, keepdim=True).clamp_min(torch.finfo(maps.dtype).tiny)
    return ((1 - scaled) * scaled).view_as(maps)


def logits_with_attention(
    network: nn.Module,
    x: Images,
    attention: Float[Tensor, "B H W"],
    *,
    alpha: float,
    space: Space = "latent",
    layer: str | None = None,
) -> Tensor:
    """The network's logits with attention (B, H, W) in effect; `layer` names the layer whose output it multiplies."""
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


def attention_objective(layer: str | None, alpha: float, space: Space) -> Objective:
    """Cross-entropy with attention, which is the last channel of the images."""

    def objective(network: nn.Module, stacked: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        x, attention = stacked[:, :-1], stacked[:, -1]
        logits = logits_with_attention(network, x, attention, alpha=alpha, space=space, layer=layer)
        return F.cross_entropy(logits, labels), (logits.detach().argmax(1) == labels).sum()

    return objective


def mitigation_images(images: Tensor, labels: Tensor) -> Dataset:
    """Images and labels as `fit` takes them."""
    return Dataset(images, labels, (), "mitigation", "train")


def check_options(images: Images, maps: Tensor | None, normalisation: str, space: str) -> None:
    """Raise an error where the maps are none of these images, or a name does not exist."""
    check_images(images)
    if maps is not None and not isinstance(maps, Tensor):
        raise ImagesTypeError(
            f"maps is a {type(maps).__name__}; the maps of one kind are needed, a tensor (B, H, W): "
            "maps=result.maps['epistemic']."
        )
    if maps is not None and maps.shape != (len(images), *images.shape[2:]):
        expected = (len(images), *images.shape[2:])
        raise ImagesError(f"The maps have shape {tuple(maps.shape)}; expected {expected}, one for each image.")
    for noun, value, known in (("normalisation", normalisation, Normalisation), ("space", space, Space)):
        if value not in get_args(known):
            raise UnknownNameError(unknown_name_text(noun, value, get_args(known)))
