"""FullGrad (Srinivas and Fleuret, 2019, arXiv:1905.00780): gradient times input, plus gradient times every bias."""

from collections.abc import Callable, Iterator, Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import interpolate

from dubium.attribution._probes import Term, probed
from dubium.attribution._vjp import DEFAULT_MEMORY, Cost, pullbacks, scored, sized
from dubium.errors import lookup
from dubium.models.normalized import Normalized
from dubium.posteriors.stack import Stack
from dubium.types import Images, Maps, Target

EPS = 1e-6  # of the reference code


def fullgrad(
    network: nn.Module, x: Images, target: Target, *, rescale: str = "reference", memory: int = DEFAULT_MEMORY
) -> Maps:
    """Credit each pixel with its input term and the bias terms of all layers above it.

    `rescale="reference"` brings each layer's terms to [0, 1] per image, as the authors' code does, sums channels and
    layers, and brings the map to [0, 1]; `"none"` takes the mean over channels and adds the layers up as they are.
    """
    combine = lookup("rescale", RESCALE, rescale)
    network, x = past_normalisation(network, x)
    maps: list[Maps] = []
    for part, terms, pulled in full_gradients(network, x, target, memory, spatial=True):
        maps.append(torch.cat([combine(gradients, part, terms) for gradients in pulled]).movedim(0, 1))
    return torch.cat(maps)


def fullgrad_completeness(network: nn.Module, x: Images, target: Target, *, memory: int) -> Float[Tensor, "B T"]:
    """How far input and bias terms are from adding up to each target, relative to its size if that exceeds 1."""
    network, x = past_normalisation(network, x)
    sums: list[Tensor] = []
    for part, terms, pulled in full_gradients(network, x, target, memory, spatial=False):
        sums.append(torch.cat([term_sum(gradients, part, terms) for gradients in pulled]).T)
    value = target(network(x.clone()))
    return (value - torch.cat(sums)).abs() / value.abs().clamp(min=1)


def past_normalisation(network: nn.Module, x: Images) -> tuple[nn.Module, Images]:
    """The network that `Normalized` wraps, and what it sees: the input term is taken there, as if x came normalised."""
    if isinstance(network, Normalized):
        return network.network, network.normalise(x)
    if isinstance(network, Stack):
        wrapped = [member for member in network.networks if isinstance(member, Normalized)]
        if len(wrapped) == len(network.networks) and all(wrapped[0].is_like(member) for member in wrapped):
            return Stack([member.network for member in wrapped]), wrapped[0].normalise(x)
    return network, x


def full_gradients(
    network: nn.Module, x: Images, target: Target, memory: int, *, spatial: bool
) -> Iterator[tuple[Images, list[Term], Iterator[Sequence[Tensor]]]]:
    """For some images at a time, their biases, and for some targets at a time, gradients at input and biases.

    `spatial` leaves out biases without a place in the image.
    """
    images, targets = 1, 0  # the first image tells what the others will take
    start = 0
    while start < len(x):
        part = x[start : start + images]
        with sized(network) as sizes, probed(network) as terms:
            at, scores = scored(network, part, target)
        if not targets:
            kept = sum(term.probe.numel() for term in terms) * x.element_size()
            images, targets = Cost.of([part.nbytes, *sizes], scores.shape[1], kept).chunks(len(x), memory)
        wanted = [term for term in terms if not spatial or term.spatial(len(part))]
        yield part, wanted, pullbacks(scores, [at, *[term.probe for term in wanted]], targets)
        start += len(part)


def term_sum(gradients: Sequence[Tensor], x: Images, terms: Sequence[Term]) -> Float[Tensor, "t B"]:
    """The sum of all terms, those without a place in the image too."""
    by_input, *by_bias = gradients
    total = (by_input * x).flatten(2).sum(2)
    for gradient, term in zip(by_bias, terms, strict=True):
        if gradient.shape[1] == len(x):  # else the layer does not keep images apart: the gap will show
            total += (gradient * term.broadcast()).flatten(2).sum(2)
    return total


def as_printed(gradients: Sequence[Tensor], x: Images, terms: Sequence[Term]) -> Float[Tensor, "t B H W"]:
    """Equation 10: channel means of absolute terms, summed over layers."""
    by_input, *by_bias = gradients
    layers = {tuple(x.shape[2:]): (by_input * x).abs_().mean(2)}
    for gradient, term in zip(by_bias, terms, strict=True):
        if term.spatial(len(x)):
            absolute, weight = channels_first(gradient, term)
            add(layers, channel_sum(absolute, weight) / absolute.shape[2])
    return upsampled_sum(layers, x)


def as_reference(gradients: Sequence[Tensor], x: Images, terms: Sequence[Term]) -> Float[Tensor, "t B H W"]:
    """Each layer's absolute terms in [0, 1] over channels and pixels together, summed; then the map in [0, 1].

    The terms are not rescaled one by one: their channel sum is `(sum - C lo) / (hi - lo + eps)`.
    """
    by_input, *by_bias = gradients
    layers = {tuple(x.shape[2:]): min_max_sum((by_input * x).abs_(), None)}
    for gradient, term in zip(by_bias, terms, strict=True):
        if term.spatial(len(x)):
            add(layers, min_max_sum(*channels_first(gradient, term)))
    maps = upsampled_sum(layers, x)
    low, high = maps.amin((2, 3), keepdim=True), maps.amax((2, 3), keepdim=True)
    return (maps - low) / (high - low + EPS)


RESCALE: dict[str, Callable[[Sequence[Tensor], Images, Sequence[Term]], Tensor]] = {
    "reference": as_reference,
    "none": as_printed,
}


def channels_first(gradient: Tensor, term: Term) -> tuple[Float[Tensor, "t B C h w"], Float[Tensor, " C"] | None]:
    """Absolute terms, or absolute gradients and the absolute bias of each channel that is still to multiply them."""
    if term.implicit:
        absolute, weight = (gradient * term.bias).abs_(), None
    else:
        # in place where the gradient is ours alone to change: two layers may share it, but then both want it absolute
        absolute, weight = gradient.abs_() if gradient.is_contiguous() else gradient.abs(), term.bias.abs()
    return (absolute.movedim(-1, 2) if term.channels == -1 else absolute), weight


def channel_sum(absolute: Float[Tensor, "t B C h w"], weight: Tensor | None) -> Float[Tensor, "t B h w"]:
    if weight is None:
        return absolute.sum(2)
    return (weight @ absolute.flatten(3)).view(*absolute.shape[:2], *absolute.shape[3:])


def min_max_sum(absolute: Float[Tensor, "t B C h w"], weight: Tensor | None) -> Float[Tensor, "t B h w"]:
    low, high = absolute.amin((3, 4)), absolute.amax((3, 4))
    if weight is not None:
        low, high = low * weight, high * weight
    low, high = (end[..., None, None] for end in (low.amin(2), high.amax(2)))
    return (channel_sum(absolute, weight) - absolute.shape[2] * low) / (high - low + EPS)


def add(layers: dict[tuple[int, ...], Tensor], term: Float[Tensor, "t B h w"]) -> None:
    """Layers of one size are summed before they are upsampled, which is linear."""
    size = tuple(term.shape[2:])
    layers[size] = layers[size] + term if size in layers else term


def upsampled_sum(layers: dict[tuple[int, ...], Tensor], x: Images) -> Float[Tensor, "t B H W"]:
    size = x.shape[2:]
    return sum(
        term if term.shape[2:] == size else interpolate(term, size=size, mode="bilinear", align_corners=True)
        for term in layers.values()
    )  # type: ignore[return-value]
