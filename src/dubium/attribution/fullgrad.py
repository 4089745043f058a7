"""FullGrad (Srinivas and Fleuret, 2019, arXiv:1905.00780): gradient times input, plus gradient times every bias."""

from collections.abc import Callable, Iterator, Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import interpolate

from dubium.attribution._backward import faster
from dubium.attribution._probes import Bias, Term, probed
from dubium.attribution._vjp import DEFAULT_MEMORY, Cost, cost, in_parts, pullbacks, scored, sized
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
    term, total = lookup("rescale", RESCALE, rescale)
    network, x = past_normalisation(network, x)
    maps: list[Maps] = []
    for part, pulled in full_gradients(network, x, target, term, memory, spatial=True):
        maps.append(torch.cat([total(terms, part) for terms in pulled]).movedim(0, 1))
    return torch.cat(maps)


def fullgrad_completeness(network: nn.Module, x: Images, target: Target, *, memory: int) -> Float[Tensor, "B T"]:
    """How far input and bias terms are from adding up to each target, relative to its size if that exceeds 1."""
    network, x = past_normalisation(network, x)
    sums: list[Tensor] = []
    for _, pulled in full_gradients(network, x, target, everything, memory, spatial=False):
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


def full_gradients(
    network: nn.Module, x: Images, target: Target, term: Term, memory: int, *, spatial: bool
) -> Iterator[tuple[Images, Iterator[Sequence[Tensor]]]]:
    """For some images at a time, and for some targets at a time, the terms of the input and of every bias."""
    images = cost(network, x, target).chunks(len(x), memory)[0] if len(x) > 1 else 1
    for part, own in in_parts(x, target, images):
        with (
            faster(network, part),
            sized(network) as sizes,
            probed(network, len(part), term, spatial=spatial) as probes,
        ):
            _, scores = scored(network, part, own)
        _, targets = Cost.of([part.nbytes, *sizes], scores.shape[1]).chunks(1, memory)
        yield part, pullbacks(scores, probes, targets)


def everything(gradient: Tensor, bias: Bias) -> Float[Tensor, " B"]:
    """The sum of all of the term."""
    value = bias.value
    if not bias.implicit:
        value = value.view(-1, *[1] * (gradient.ndim - 1 - bias.channels % gradient.ndim))
    return (gradient * value).flatten(1).sum(1)


def printed(gradient: Tensor, bias: Bias) -> Float[Tensor, "B h w"]:
    """Equation 10: the channel mean of the absolute term."""
    return absolute(gradient, bias).mean(-1)


def reference(gradient: Tensor, bias: Bias) -> Float[Tensor, "B h w"]:
    """The absolute term in [0, 1] over channels and pixels together, summed over channels.

    Its numbers are not rescaled one by one: their channel sum is `(sum - C lo) / (hi - lo + eps)`.
    """
    term = absolute(gradient, bias)
    low, high = (end[:, None, None] for end in (term.flatten(1).amin(1), term.flatten(1).amax(1)))
    return (term.sum(-1) - term.shape[-1] * low) / (high - low + EPS)


def absolute(gradient: Tensor, bias: Bias) -> Float[Tensor, "B h w C"]:
    """The absolute term, channels last."""
    if bias.implicit:
        gradient = gradient * bias.value
        return (gradient if bias.channels == -1 else gradient.movedim(1, -1)).abs().contiguous()
    gradient = (gradient if bias.channels == -1 else gradient.movedim(1, -1)).contiguous()
    by_row = bias.value.repeat(gradient.shape[2])  # one long inner loop instead of many short ones
    return (gradient.flatten(2) * by_row).abs_().view_as(gradient)


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


RESCALE: dict[str, tuple[Term, Callable[[Sequence[Tensor], Images], Tensor]]] = {
    "reference": (reference, summed_and_rescaled),
    "none": (printed, summed),
}
