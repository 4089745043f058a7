"""FullGrad (Srinivas and Fleuret, 2019, arXiv:1905.00780): gradient times input, plus gradient times every bias."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial, reduce

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import interpolate

from dubium.attribution._biases import Bias, record_biases
from dubium.attribution._budget import is_large, measure_cost
from dubium.attribution._context import DEFAULT_CONTEXT, DEFAULT_MEMORY, Context
from dubium.attribution._gradients import apply_target, forward_with_graph, reduced_gradients, split_images
from dubium.attribution._target import ALL_LOGITS
from dubium.errors import lookup
from dubium.types import Images, Maps, Target

EPS = 1e-6  # of the reference code

TermMap = Callable[[Bias, Tensor], Tensor]
"""A bias and the gradients of all targets at its layer's output, (t, S, B, ...) -> the term's map, (t, S, B, h, w)."""

LayerSum = Callable[[Sequence[Tensor], Images], Float[Tensor, "t S B H W"]]
"""The maps of all terms -> one map of the images' size."""


def fullgrad(
    network: nn.Module,
    x: Images,
    target: Target,
    *,
    rescale: str = "reference",
    context: Context = DEFAULT_CONTEXT,
) -> Maps:
    """Credit each pixel with its input term and the bias terms of all layers above it.

    `rescale="reference"` brings each layer's terms to [0, 1] per image, as the authors' code does, sums channels and
    layers, and brings the map to [0, 1]; `"none"` takes the mean over channels and adds the layers up as they are.
    """
    parts = split_images(x, target, images_per_pass(network, x, target, context.memory))
    maps = [fullgrad_maps([FullGradPass(network, part)], own, rescale, context.memory)[0] for part, own in parts]
    return torch.cat(maps)


class FullGradPass:
    """Images that have gone through a network: a leaf, the output, and where each bias acts in the graph between."""

    def __init__(self, network: nn.Module, x: Images, *, spatial: bool = True) -> None:
        with record_biases(network, len(x), spatial=spatial) as recorded:
            self.leaf, self.output = forward_with_graph(network, x)
        terms = recorded.with_input(self.leaf, self.output)
        self.edges, self.biases = [edge for edge, _ in terms], [bias for _, bias in terms]


def images_per_pass(network: nn.Module, x: Images, target: Target, memory: int) -> int:
    """Images whose pass, with all targets' gradients, keeps to the memory."""
    return measure_cost(network, x, target).chunks(len(x), memory)[0] if len(x) > 1 or is_large(x) else 1


def bias_terms(
    passes: Sequence[FullGradPass], target: Target, reduction: Callable[[Bias, Tensor], Tensor], memory: int
) -> Iterator[Sequence[Tensor]]:
    """What the reduction makes of the gradients (t, S, B, ...) at every bias, for some targets at a time.

    The passes are of networks of one architecture, whose graphs are walked together.
    """
    scores = [apply_target(target, one.output, one.leaf) for one in passes]
    by_place = zip(*(one.biases for one in passes), strict=True)
    reductions = [partial(reduction, Bias.of_networks(biases)) for biases in by_place]
    return reduced_gradients(scores, [one.edges for one in passes], reductions, memory)


def fullgrad_maps(
    passes: Sequence[FullGradPass], target: Target, rescale: str, memory: int
) -> Float[Tensor, "S B T H W"]:
    """The maps of networks of one architecture, from forward passes of the same images."""
    term_map, layer_sum = lookup("rescale", RESCALE, rescale)
    chunks = [layer_sum(maps, passes[0].leaf) for maps in bias_terms(passes, target, term_map, memory)]
    return torch.cat(chunks).permute(1, 2, 0, 3, 4)


def fullgrad_gap(network: nn.Module, x: Images, *, memory: int = DEFAULT_MEMORY) -> Float[Tensor, "B K"]:
    """How far input and bias terms are from adding up to each logit, relative to its size if that exceeds 1.

    Image by image: then every term is that image's, whatever the network does to the batch.
    """
    gaps: list[Tensor] = []
    for part, own in split_images(x, ALL_LOGITS, 1):
        one = FullGradPass(network, part, spatial=False)
        sums = torch.cat([torch.stack([*terms]).sum(0)[:, 0] for terms in bias_terms([one], own, term_sum, memory)])
        logits = one.output.detach()
        gaps.append((logits - sums).abs() / logits.abs().clamp(min=1))
    return torch.cat(gaps)


def term_sum(bias: Bias, gradient: Tensor) -> Float[Tensor, "t S"]:
    """The sum of all numbers of a term."""
    value = bias.value
    if not bias.implicit:
        gradient = gradient if bias.channels == -1 else gradient.movedim(3, -1)
        value = value.view(len(value), *[1] * (gradient.ndim - 3), -1)
    return (gradient * value).flatten(2).sum(2)


def mean_term(bias: Bias, gradient: Tensor) -> Float[Tensor, "t S B h w"]:
    """Equation 10: the channel mean of the absolute term."""
    return absolute_term(bias, gradient).mean(-1).movedim(4, 1)


def rescaled_term(bias: Bias, gradient: Tensor) -> Float[Tensor, "t S B h w"]:
    """The absolute term in [0, 1] over channels and pixels together, summed over channels.

    Its numbers are not rescaled one by one: their channel sum is `(sum - C lo) / (hi - lo + eps)`.
    """
    term = absolute_term(bias, gradient)
    whole, high = term.sum(-1), extreme(term, torch.amax)
    # most terms have a 0, of a feature that is off, and it is seen in two rows; a GPU would have to wait for the answer
    if not term.is_cpu or extreme(term[:, :, :2], torch.amin).any():
        low = extreme(term, torch.amin)
        whole, high = whole - term.shape[-1] * low, high - low
    return (whole / (high + EPS)).movedim(4, 1)


def absolute_term(bias: Bias, gradient: Tensor) -> Float[Tensor, "t B h w S C"]:
    """The absolute product of gradient and bias, channels last."""
    assert bias.layout is not None, "only biases that have a place in the image make maps"
    if bias.implicit:
        return bias.layout.as_maps(gradient * bias.value).abs().contiguous()
    rows = bias.layout.as_maps(gradient).contiguous()
    by_row = bias.value.flatten().expand(rows.shape[3], -1).flatten()  # one long inner loop instead of many short ones
    return (rows.flatten(3) * by_row).abs_().view_as(rows)


def extreme(term: Float[Tensor, "t B h w S C"], of: Callable[..., Tensor]) -> Float[Tensor, "t B 1 1 S"]:
    """The least or largest number of each network's term. Of several, rows go first: their inner loops are long."""
    if term.shape[4] == 1:
        return of(term.flatten(2), 2)[:, :, None, None, None]
    by_column = of(term.flatten(3), 2).unflatten(2, (term.shape[3], -1))
    return of(of(by_column, 2).unflatten(2, term.shape[4:]), 3)[:, :, None, None]


def sum_layers(maps: Sequence[Tensor], x: Images) -> Float[Tensor, "t S B H W"]:
    """The sum of all terms' maps. Those of one size are summed before they are upsampled, which is linear."""
    by_size: dict[tuple[int, ...], Tensor] = {}
    for term in maps:
        size = tuple(term.shape[3:])
        by_size[size] = by_size[size] + term if size in by_size else term
    image_size = tuple(x.shape[2:])
    return reduce(torch.add, [m if size == image_size else upsample(m, image_size) for size, m in by_size.items()])


def upsample(maps: Float[Tensor, "t S B h w"], size: Sequence[int]) -> Float[Tensor, "t S B H W"]:
    """Bilinear interpolation. Maps go as channels, side by side: each pixel's weights serve for all of them."""
    rows = maps.permute(2, 3, 4, 0, 1).flatten(3).permute(0, 3, 1, 2)
    larger: Tensor = interpolate(rows, size=size, mode="bilinear", align_corners=True)
    return larger.view(len(rows), *maps.shape[:2], *size).movedim(0, 2)


def sum_layers_rescaled(maps: Sequence[Tensor], x: Images) -> Float[Tensor, "t S B H W"]:
    """The sum of all terms' maps, in [0, 1]."""
    whole = sum_layers(maps, x)
    low, high = whole.amin((3, 4), keepdim=True), whole.amax((3, 4), keepdim=True)
    return (whole - low) / (high - low + EPS)


RESCALE: dict[str, tuple[TermMap, LayerSum]] = {
    "reference": (rescaled_term, sum_layers_rescaled),
    "none": (mean_term, sum_layers),
}
