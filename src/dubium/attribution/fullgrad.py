"""FullGrad (Srinivas and Fleuret, 2019, arXiv:1905.00780): gradient times input, plus gradient times every bias."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial, reduce
from itertools import count
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd.graph import get_gradient_edge
from torch.nn.functional import interpolate

from dubium.attribution._autograd.backward import DifferentError
from dubium.attribution._biases import Bias, biases
from dubium.attribution._autograd.graph import held
from dubium.attribution._vjp import DEFAULT_MEMORY, aimed, cost, differentiable, in_parts, part_of, pullbacks
from dubium.errors import lookup
from dubium.models.normalized import Normalized
from dubium.posteriors.stack import Stack
from dubium.types import Images, Maps, Target

EPS = 1e-6  # of the reference code
TOGETHER = 200  # rows of images, classes and networks: more of them do better network by network

Term = Callable[[Bias, Tensor], Tensor]
"""Of a bias, and the gradients of all targets at its layer's output, what is wanted of their product: for each target
and image a map, or a number."""

Total = Callable[[Sequence[Tensor], Images], Float[Tensor, "t S B H W"]]
"""From the terms of all layers to maps of the images' size."""


def fullgrad(
    network: nn.Module, x: Images, target: Target, *, rescale: str = "reference", memory: int = DEFAULT_MEMORY
) -> Maps:
    """Credit each pixel with its input term and the bias terms of all layers above it.

    `rescale="reference"` brings each layer's terms to [0, 1] per image, as the authors' code does, sums channels and
    layers, and brings the map to [0, 1]; `"none"` takes the mean over channels and adds the layers up as they are.
    """
    how = lookup("rescale", RESCALE, rescale)
    network, x = past_normalisation(network, x)
    parts = in_parts(x, target, images_at_once(network, x, target, memory))
    return torch.cat([maps([Passed(network, part)], own, how, memory)[0] for part, own in parts])


class Ahead:
    """FullGrad whose forward pass is done, and whose logits are known, before the target is."""

    def __init__(self, network: nn.Module, x: Images, *, rescale: str, memory: int) -> None:
        self.how, self.memory = lookup("rescale", RESCALE, rescale), memory
        network, x = past_normalisation(network, x)
        self.size = images_at_once(network, x, lambda output: output, memory)
        self.parts = [Passed(network, part) for part in x.split(self.size)]
        self.bytes = x.element_size() * sum(held(part.output) for part in self.parts)

    @property
    def outputs(self) -> list[tuple[Images, Any]]:
        return [(part.at, part.output) for part in self.parts]

    def __call__(self, _x: Images, target: Target) -> Maps:
        own = (part_of(target, slice(start, start + self.size)) for start in count(0, self.size))
        pairs = zip(self.parts, own, strict=False)
        return torch.cat([maps([part], its, self.how, self.memory)[0] for part, its in pairs])


def together(passes: Sequence[Ahead]) -> Float[Tensor, "S B K H W"] | None:
    """The maps of all logits of networks of one architecture, if they are so few that they fit one chunk.

    Each operation is launched once for all networks.
    """
    parts = [one.parts[0] for one in passes]
    rows = sum(len(part.at) * part.output.shape[1] for part in parts)
    kinds = {tuple((bias.value.shape, bias.channels) for bias in part.biases) for part in parts}
    if rows > TOGETHER or len(kinds) > 1 or any(len(one.parts) > 1 for one in passes):
        return None
    try:
        return maps(parts, lambda output: output, passes[0].how, passes[0].memory)
    except DifferentError:
        return None


class Passed:
    """Images that have gone through a network, ready to be asked about any target."""

    def __init__(self, network: nn.Module, x: Images, *, spatial: bool = True) -> None:
        with biases(network, len(x), spatial=spatial) as found:
            self.at, self.output = differentiable(network, x)
        found = [(get_gradient_edge(self.at), Bias.of_input(self.at)), *found]
        self.edges, self.biases = [edge for edge, _ in found], [bias for _, bias in found]


def pulled(passes: Sequence[Passed], target: Target, term: Term, memory: int) -> Iterator[Sequence[Tensor]]:
    """The terms of the input and of every bias, (targets, networks, images, ...), for some targets at a time."""
    scores = [aimed(one.at, one.output, target) for one in passes]
    takes = [partial(term, Bias.of_all(several)) for several in zip(*(one.biases for one in passes), strict=True)]
    return pullbacks(scores, [one.edges for one in passes], takes, memory)


def maps(passes: Sequence[Passed], target: Target, how: tuple[Term, Total], memory: int) -> Float[Tensor, "S B T H W"]:
    term, total = how
    found = [total(terms, passes[0].at) for terms in pulled(passes, target, term, memory)]
    return torch.cat(found).permute(1, 2, 0, 3, 4)


def images_at_once(network: nn.Module, x: Images, target: Target, memory: int) -> int:
    return cost(network, x, target).chunks(len(x), memory)[0] if len(x) > 1 else 1


def fullgrad_completeness(network: nn.Module, x: Images, target: Target, *, memory: int) -> Float[Tensor, "B T"]:
    """How far input and bias terms are from adding up to each target, relative to its size if that exceeds 1."""
    network, x = past_normalisation(network, x)
    sums: list[Tensor] = []
    for part, own in in_parts(x, target, images_at_once(network, x, target, memory)):
        terms = pulled([Passed(network, part, spatial=False)], own, everything, memory)
        sums.append(torch.cat([torch.stack(list(some)).sum(0)[:, 0] for some in terms]).T)
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


def everything(bias: Bias, gradient: Tensor) -> Float[Tensor, "t S B"]:
    """The sum of all of the term."""
    value = bias.value
    if not bias.implicit:
        gradient = gradient if bias.channels == -1 else gradient.movedim(3, -1)
        value = value.view(len(value), *[1] * (gradient.ndim - 3), -1)
    return (gradient * value).flatten(3).sum(3)


def printed(bias: Bias, gradient: Tensor) -> Float[Tensor, "t S B h w"]:
    """Equation 10: the channel mean of the absolute term."""
    return absolute(bias, gradient).mean(-1).movedim(4, 1)


def reference(bias: Bias, gradient: Tensor) -> Float[Tensor, "t S B h w"]:
    """The absolute term in [0, 1] over channels and pixels together, summed over channels.

    Its numbers are not rescaled one by one: their channel sum is `(sum - C lo) / (hi - lo + eps)`.
    """
    term = absolute(bias, gradient)
    whole, high = term.sum(-1), extremes(term, torch.amax)
    low = least(term)
    if low is not None:
        whole, high = whole - term.shape[-1] * low, high - low
    return (whole / (high + EPS)).movedim(4, 1)


def absolute(bias: Bias, gradient: Tensor) -> Float[Tensor, "t B h w S C"]:
    """The absolute term, channels last."""
    axes = (0, 2, 3, 4, 1, 5) if bias.channels == -1 else (0, 2, 4, 5, 1, 3)
    if bias.implicit:
        return (gradient * bias.value).permute(axes).abs().contiguous()
    rows = gradient.permute(axes).contiguous()
    by_row = bias.value.flatten().expand(rows.shape[3], -1).flatten()  # one long inner loop instead of many short ones
    return (rows.flatten(3) * by_row).abs_().view_as(rows)


def least(term: Float[Tensor, "t B h w S C"]) -> Float[Tensor, "t B 1 1 S"] | None:
    """The least number of each network's term; None if it is 0. Most have one, of a feature that is off."""
    if term.is_cpu and not extremes(term[:, :, :2], torch.amin).any():  # a GPU would have to wait for it
        return None
    return extremes(term, torch.amin)


def extremes(term: Float[Tensor, "t B h w S C"], of: Callable[..., Tensor]) -> Float[Tensor, "t B 1 1 S"]:
    """The least or largest number of each network's term. Of several, rows go first: their inner loops are long."""
    if term.shape[4] == 1:
        return of(term.flatten(2), 2)[:, :, None, None, None]
    by_column = of(term.flatten(3), 2).unflatten(2, (term.shape[3], -1))
    return of(of(by_column, 2).unflatten(2, term.shape[4:]), 3)[:, :, None, None]


def summed(terms: Sequence[Tensor], x: Images) -> Float[Tensor, "t S B H W"]:
    """All layers, at the size of the image. Those of one size are summed before they are upsampled, which is linear."""
    layers: dict[tuple[int, ...], Tensor] = {}
    for term in terms:
        size = tuple(term.shape[3:])
        layers[size] = layers[size] + term if size in layers else term
    size = x.shape[2:]
    whole = [term if term.shape[3:] == size else enlarged(term, size) for term in layers.values()]
    return reduce(torch.add, whole)


def enlarged(term: Float[Tensor, "t S B h w"], size: Sequence[int]) -> Float[Tensor, "t S B H W"]:
    """By bilinear interpolation. Maps go as channels, side by side: each pixel's weights serve for all of them."""
    rows = term.permute(2, 3, 4, 0, 1).flatten(3).permute(0, 3, 1, 2)
    larger: Tensor = interpolate(rows, size=size, mode="bilinear", align_corners=True)
    return larger.view(len(rows), *term.shape[:2], *size).movedim(0, 2)


def summed_and_rescaled(terms: Sequence[Tensor], x: Images) -> Float[Tensor, "t S B H W"]:
    """The sum, in [0, 1]."""
    whole = summed(terms, x)
    low, high = whole.amin((3, 4), keepdim=True), whole.amax((3, 4), keepdim=True)
    return (whole - low) / (high - low + EPS)


RESCALE: dict[str, tuple[Term, Total]] = {
    "reference": (reference, summed_and_rescaled),
    "none": (printed, summed),
}
