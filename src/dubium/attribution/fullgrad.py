"""FullGrad (Srinivas and Fleuret, 2019, arXiv:1905.00780): gradient times input, plus gradient times every bias."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice

import torch
from jaxtyping import Float
from torch import Tensor, nn

from dubium.attribution._autograd.backward import DifferentGraphsError
from dubium.attribution._autograd.nodes import MissingAttributeError, count_graph_numbers
from dubium.attribution._biases import Bias
from dubium.attribution._budget import FEATURES, KEPT_DIVISOR, TOGETHER_ROWS, is_large, map_rows, measure_cost
from dubium.attribution._context import DEFAULT_CONTEXT, Context
from dubium.attribution._fullgrad_terms import RESCALE
from dubium.attribution._gradients import apply_target, forward_with_graph, reduced_gradients, split_images
from dubium.attribution._layers import record_biases
from dubium.attribution._prepared import (
    ClassMaps,
    ClassWeights,
    Method,
    class_maps_by_calls,
    class_targets,
    network_logits,
)
from dubium.checks import check_logits, name_network
from dubium.errors import UnknownNameError, unknown
from dubium.types import Images, Maps, Posterior, Target


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


def images_per_pass(network: nn.Module, x: Images, target: Target | None, memory: int) -> int:
    """Images whose pass, with all targets' gradients, keeps to the memory."""
    return measure_cost(network, x, target).chunks(len(x), memory)[0] if len(x) > 1 or is_large(x) else 1


def bias_terms(
    passes: Sequence[FullGradPass], target: Target | None, reduction: Callable[[Bias, Tensor], Tensor], memory: int
) -> Iterator[Sequence[Tensor]]:
    """What the reduction makes of the gradients (t, S, B, ...) at every bias, for some targets at a time.

    The passes are of networks of one architecture, whose graphs are walked together.
    """
    scores = [apply_target(target, one.output, one.leaf) for one in passes]
    reductions = []
    for biases in zip(*[one.biases for one in passes], strict=True):
        of_networks = replace(biases[0], value=torch.stack([bias.value for bias in biases]))
        reductions.append(partial(reduction, of_networks))
    return reduced_gradients(scores, [one.edges for one in passes], reductions, memory)


def fullgrad_maps(
    passes: Sequence[FullGradPass], target: Target | None, rescale: str, memory: int
) -> Float[Tensor, "S B T H W"]:
    """The maps of networks of one architecture, from forward passes of the same images."""
    if rescale not in RESCALE:
        raise UnknownNameError(unknown("rescale", rescale, RESCALE))
    term_map, layer_sum = RESCALE[rescale]
    chunks: list[Tensor] = []
    for maps in bias_terms(passes, target, term_map, memory):
        chunks.append(layer_sum(maps, passes[0].leaf))
    return torch.cat(chunks).permute(1, 2, 0, 3, 4)


NetworkPasses = Sequence[tuple[slice, FullGradPass]]
"""The forward passes of one network: which images, and their pass."""


class PreparedFullGrad:
    """FullGrad as the relevance of UA-Backprop: the forward passes that gave the logits serve for the maps too.

    As many networks' passes are kept as fit the memory. What it gives is what `PlainRelevance` gives of FullGrad.
    """

    def __init__(self, method: Method, networks: Posterior, x: Images, context: Context) -> None:
        self.method, self.networks, self.x, self.context = method, networks, x, context
        self.kept = keep_passes(networks, x, context.memory)
        logits = [torch.cat([one.output.detach() for _, one in passes]) for passes in self.kept]
        if len(logits) < len(networks):
            logits += network_logits(self.other_networks(), x, context.memory)
        self.logits = check_logits(logits, len(networks))[:, : len(x)]

    def other_networks(self) -> Iterator[tuple[int, nn.Module]]:
        """The networks without kept passes, numbered; a posterior that makes its networks anew is not asked in vain."""
        first = len(self.kept)
        return islice(enumerate(self.networks), first, None) if first < len(self.networks) else iter(())

    def class_maps(self, weights: ClassWeights) -> Iterator[ClassMaps]:
        rescale, memory = self.method.options["rescale"], self.context.memory
        if len(self.kept) == len(weights) and bool(weights.any(1).all()):
            maps = maps_together(self.kept, rescale, memory)
            if maps is not None:
                yield ClassMaps(slice(0, len(weights)), slice(0, len(self.x)), weights, maps)
                return
        rows = map_rows(self.x, memory)
        for s, passes in enumerate(self.kept):
            for images, one in passes:
                for target in class_targets(weights[s][:, images], rows):
                    maps = fullgrad_maps([one], target, rescale, memory)
                    yield ClassMaps(slice(s, s + 1), images, target(weights[s][:, images])[None], maps)
        yield from class_maps_by_calls(self.method, self.other_networks(), self.x, weights, self.context)


def keep_passes(networks: Posterior, x: Images, memory: int) -> list[NetworkPasses]:
    """Forward passes that serve for logits and relevance both: of as many networks as fit into the memory."""
    room, kept = memory // KEPT_DIVISOR, list[NetworkPasses]()
    for index, network in enumerate(networks if len(x) else ()):
        if FEATURES * x.nbytes > room:
            break
        with name_network(index, x):
            size, passes = images_per_pass(network, x, None, memory), list[tuple[slice, FullGradPass]]()
            for start in range(0, len(x), size):
                images = slice(start, min(len(x), start + size))
                passes.append((images, FullGradPass(network, x[images])))
        try:
            room -= x.element_size() * sum([count_graph_numbers(one.output) for _, one in passes])
        except MissingAttributeError:
            break  # what a pass takes cannot be known
        if room < 0:
            break
        kept.append(passes)
    return kept


def maps_together(kept: Sequence[NetworkPasses], rescale: str, memory: int) -> Float[Tensor, "S B K H W"] | None:
    """The maps of all logits of networks of one architecture, if they are so few that they fit one chunk.

    Each operation is launched once for all networks.
    """
    passes = [one for ((_, one), *_) in kept]
    rows = sum([len(one.leaf) * one.output.shape[1] for one in passes])
    shapes = {tuple([(bias.value.shape, bias.channels, bias.layout) for bias in one.biases]) for one in passes}
    if rows > TOGETHER_ROWS or len(shapes) > 1 or any(len(several) > 1 for several in kept):
        return None
    try:
        return fullgrad_maps(passes, None, rescale, memory)
    except DifferentGraphsError:
        return None
