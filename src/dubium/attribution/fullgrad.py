"""FullGrad (Srinivas and Fleuret, 2019, arXiv:1905.00780): gradient times input, plus gradient times every bias."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import count
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import interpolate

from dubium.attribution._biases import Bias, biases
from dubium.attribution._graph import held
from dubium.attribution._vjp import DEFAULT_MEMORY, aimed, cost, differentiable, in_parts, part_of, pullbacks
from dubium.errors import lookup
from dubium.models.normalized import Normalized
from dubium.posteriors.stack import Stack
from dubium.types import Images, Maps, Target

EPS = 1e-6  # of the reference code

Term = Callable[[Bias, Tensor], Tensor]
"""Of a bias, and the gradients of all targets at its layer's output, what is wanted of their product: for each target
and image a map, or a number."""

Total = Callable[[Sequence[Tensor], Images], Float[Tensor, "t B H W"]]
"""From the terms of all layers to maps of the images' size."""


def fullgrad(
    network: nn.Module, x: Images, target: Target, *, rescale: str = "reference", memory: int = DEFAULT_MEMORY
) -> Maps:
    """Credit each pixel with its input term and the bias terms of all layers above it.

    `rescale="reference"` brings each layer's terms to [0, 1] per image, as the authors' code does, sums channels and
    layers, and brings the map to [0, 1]; `"none"` takes the mean over channels and adds the layers up as they are.
    """
    term, total = lookup("rescale", RESCALE, rescale)
    network, x = past_normalisation(network, x)
    maps: list[Maps] = []
    for part, own in in_parts(x, target, images_at_once(network, x, target, memory)):
        maps.append(Passed(network, part, term).maps(own, total, memory))
    return torch.cat(maps)


class Ahead:
    """FullGrad whose forward pass is done, and whose logits are known, before the target is."""

    def __init__(self, network: nn.Module, x: Images, *, rescale: str, memory: int) -> None:
        term, self.total = lookup("rescale", RESCALE, rescale)
        network, x = past_normalisation(network, x)
        self.memory, self.size = memory, images_at_once(network, x, lambda output: output, memory)
        self.parts = [Passed(network, part, term) for part in x.split(self.size)]
        weights = sum(parameter.nbytes for parameter in network.parameters())
        self.bytes = weights + x.element_size() * sum(held(part.output) for part in self.parts)

    @property
    def outputs(self) -> list[tuple[Images, Any]]:
        return [(part.at, part.output) for part in self.parts]

    def __call__(self, _x: Images, target: Target) -> Maps:
        own = (part_of(target, slice(start, start + self.size)) for start in count(0, self.size))
        maps = [part.maps(its, self.total, self.memory) for part, its in zip(self.parts, own, strict=False)]
        return torch.cat(maps)


class Passed:
    """Images that have gone through a network, ready to be asked about any target."""

    def __init__(self, network: nn.Module, x: Images, term: Term, *, spatial: bool = True) -> None:
        with biases(network, len(x), spatial=spatial) as found:
            self.at, self.output = differentiable(network, x)
        self.wanted = [(edge, partial(term, bias)) for edge, bias in found]

    def terms(self, target: Target, memory: int) -> Iterator[Sequence[Tensor]]:
        """The terms of the input and of every bias, for some targets at a time."""
        return pullbacks(aimed(self.at, self.output, target), self.wanted, memory)

    def maps(self, target: Target, total: Total, memory: int) -> Maps:
        return torch.cat([total(terms, self.at) for terms in self.terms(target, memory)]).movedim(0, 1)


def images_at_once(network: nn.Module, x: Images, target: Target, memory: int) -> int:
    return cost(network, x, target).chunks(len(x), memory)[0] if len(x) > 1 else 1


def fullgrad_completeness(network: nn.Module, x: Images, target: Target, *, memory: int) -> Float[Tensor, "B T"]:
    """How far input and bias terms are from adding up to each target, relative to its size if that exceeds 1."""
    network, x = past_normalisation(network, x)
    sums: list[Tensor] = []
    for part, own in in_parts(x, target, images_at_once(network, x, target, memory)):
        pulled = Passed(network, part, everything, spatial=False).terms(own, memory)
        sums.append(torch.cat([torch.stack(list(terms)).sum(0) for terms in pulled]).T)
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


def everything(bias: Bias, gradient: Tensor) -> Float[Tensor, "t B"]:
    """The sum of all of the term."""
    term = (
        gradient * bias.value
        if bias.implicit
        else (gradient if bias.channels == -1 else gradient.movedim(2, -1)) * bias.value
    )
    return term.flatten(2).sum(2)


def printed(bias: Bias, gradient: Tensor) -> Float[Tensor, "t B h w"]:
    """Equation 10: the channel mean of the absolute term."""
    return absolute(bias, gradient).mean(-1)


def reference(bias: Bias, gradient: Tensor) -> Float[Tensor, "t B h w"]:
    """The absolute term in [0, 1] over channels and pixels together, summed over channels.

    Its numbers are not rescaled one by one: their channel sum is `(sum - C lo) / (hi - lo + eps)`.
    """
    term = absolute(bias, gradient)
    low, high = (end[..., None, None] for end in (term.flatten(2).amin(2), term.flatten(2).amax(2)))
    return (term.sum(-1) - term.shape[-1] * low) / (high - low + EPS)


def absolute(bias: Bias, gradient: Tensor) -> Float[Tensor, "t B h w C"]:
    """The absolute term, channels last."""
    if bias.implicit:
        gradient = gradient * bias.value
        return (gradient if bias.channels == -1 else gradient.movedim(2, -1)).abs().contiguous()
    gradient = (gradient if bias.channels == -1 else gradient.movedim(2, -1)).contiguous()
    by_row = bias.value.repeat(gradient.shape[3])  # one long inner loop instead of many short ones
    return (gradient.flatten(3) * by_row).abs_().view_as(gradient)


def summed(terms: Sequence[Tensor], x: Images) -> Float[Tensor, "t B H W"]:
    """All layers, at the size of the image. Those of one size are summed before they are upsampled, which is linear."""
    layers: dict[tuple[int, ...], Tensor] = {}
    for term in terms:
        size = tuple(term.shape[2:])
        layers[size] = layers[size] + term if size in layers else term
    size = x.shape[2:]
    return sum(
        term if term.shape[2:] == size else interpolate(term, size=size, mode="bilinear", align_corners=True)
        for term in layers.values()
    )  # type: ignore[return-value]


def summed_and_rescaled(terms: Sequence[Tensor], x: Images) -> Float[Tensor, "t B H W"]:
    """The sum, in [0, 1]."""
    maps = summed(terms, x)
    low, high = maps.amin((2, 3), keepdim=True), maps.amax((2, 3), keepdim=True)
    return (maps - low) / (high - low + EPS)


RESCALE: dict[str, tuple[Term, Total]] = {
    "reference": (reference, summed_and_rescaled),
    "none": (printed, summed),
}
