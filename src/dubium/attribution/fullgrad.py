"""FullGrad (Srinivas and Fleuret, 2019, arXiv:1905.00780): gradient times input, plus gradient times every bias."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge

from dubium.attribution._autograd.graph import Graph, count_graph_elements
from dubium.attribution._autograd.nodes import MissingAttributeError
from dubium.attribution._bias_hooks import record_biases
from dubium.attribution._biases import Bias, RecordedBias, place_bias
from dubium.attribution._budget import (
    IMAGE_BYTES_FACTOR,
    KEPT_DIVISOR,
    ONE_WALK_ROWS,
    Cost,
    images_per_pass,
    maps_at_once,
    needs_no_measuring,
)
from dubium.attribution._context import DEFAULT_CONTEXT, Context
from dubium.attribution._fullgrad_terms import EPS, TERM_MAPS, sum_layers
from dubium.attribution._gradients import reduced_gradients
from dubium.attribution._layout_rules import follow_layouts
from dubium.attribution._layouts import Layout, image_layout
from dubium.attribution._passes import apply_target, forward_with_graph, predict_logits
from dubium.attribution._places import find_place
from dubium.attribution._relevance import (
    ClassMaps,
    ClassWeights,
    ConfiguredAttributor,
    class_maps_by_calls,
    class_targets,
)
from dubium.attribution._target import target_for_images
from dubium.errors import UnknownNameError, unknown_name_text
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

    Args:
        rescale: "reference" brings each layer's terms to [0, 1] per image, as the authors' code does, sums channels and
            layers, and brings the map to [0, 1]; "none" takes the mean over channels and adds the layers as they are.

    Returns:
        Maps that are not negative.
    """
    passes = fullgrad_passes(network, x, images_per_pass(network, x, target, context.memory))
    return torch.cat(
        [
            fullgrad_maps([forward_pass], target_for_images(target, image_slice), rescale, context.memory)[0]
            for image_slice, forward_pass in passes
        ]
    )


class FullGradPass:
    """Images that have gone through a network: a leaf, the output, the graph between, and the biases that act there.

    Args:
        only_spatial: whether biases without a place in the image are left out.
    """

    needs_single_images: bool = False  # some feature's place is lost in a batch, and would not be with one image

    def __init__(self, network: nn.Module, x: Images, *, only_spatial: bool = True) -> None:
        with record_biases(network, only_spatial=only_spatial) as recorded:
            self.leaf, self.output = forward_with_graph(network, x)
        entries = recorded.all_entries(self.leaf, self.output)
        self.graph = list_graph(self.output, entries)
        layouts = guess_layouts(entries, len(x)) if self.graph is None else layouts_at(entries, self.graph, self.leaf)
        self.edges, self.biases = list[GradientEdge](), list[Bias]()
        for entry, layout in zip(entries, layouts, strict=True):
            bias = place_bias(entry, layout, len(x))
            if layout is not None and bias.place is None and len(x) > 1:
                self.needs_single_images |= find_place(layout, 1) is not None
            if bias.place is not None or not only_spatial:
                self.edges.append(entry.edge)
                self.biases.append(bias)

    def walk_key(self) -> tuple[object, ...]:
        """What is equal in passes that can be walked together: operations, and shapes and places of the biases."""
        biases = [(bias.value.shape, bias.channel_axis, bias.place) for bias in self.biases]
        if self.graph is None:
            return tuple(biases)
        return self.graph.operations, *[self.graph.find_output(edge) for edge in self.edges], *biases


def list_graph(output: Any, entries: Sequence[RecordedBias]) -> Graph | None:
    """The graph from the output of a network to its biases; None where torch does not show it."""
    is_tensor = isinstance(output, Tensor) and output.requires_grad
    outputs = [get_gradient_edge(output)] if is_tensor else [entry.layout_edge for entry in entries]
    try:
        return Graph(outputs, {edge.node for entry in entries for edge in (entry.edge, entry.layout_edge)})
    except MissingAttributeError:
        return None


def layouts_at(entries: Sequence[RecordedBias], graph: Graph, leaf: Images) -> list[Layout | None]:
    """The layout of the feature at which each bias acts, where it is known; the first is the input."""
    layouts = follow_layouts(graph, leaf)
    outputs = [graph.find_output(entry.layout_edge) for entry in entries[1:]]
    return [image_layout(leaf.shape), *[None if output is None else layouts.get(output) for output in outputs]]


def guess_layouts(entries: Sequence[RecordedBias], image_count: int) -> list[Layout | None]:
    """Without a graph, every feature (B, C, h, w) counts as a feature map."""
    shapes = [entry.shape for entry in entries]
    return [image_layout(shape) if len(shape) == 4 and shape[0] == image_count else None for shape in shapes]


def fullgrad_passes(network: nn.Module, x: Images, size: int) -> Iterator[tuple[slice, FullGradPass]]:
    """Passes of `size` images at a time, or of one where the network itself takes the images of a batch apart."""
    start, count = 0, len(x)
    while start < count:
        image_slice = slice(start, min(count, start + size))
        forward_pass = FullGradPass(network, x[image_slice])
        if forward_pass.needs_single_images and size > 1:
            size = 1
        else:
            yield image_slice, forward_pass
            start = image_slice.stop


def reduce_at_biases(
    passes: Sequence[FullGradPass], target: Target | None, reduction: Callable[[Bias, Tensor], Tensor], memory: int
) -> Iterator[Sequence[Tensor]]:
    """What the reduction makes of the gradients (t, S, B, ...) at every bias, for some targets at a time.

    The passes are of networks of one architecture, whose graphs are walked together.
    """
    scores = [each.output if target is None else apply_target(target, each.output, each.leaf) for each in passes]
    reductions = []
    for biases in zip(*[each.biases for each in passes], strict=True):
        stacked_bias = replace(biases[0], value=torch.stack([bias.value for bias in biases]))
        reductions.append(partial(reduction, stacked_bias))
    graphs = [each.graph for each in passes if each.graph is not None and target is None]
    return reduced_gradients(scores, [each.edges for each in passes], reductions, memory, graphs)


def fullgrad_maps(
    passes: Sequence[FullGradPass], target: Target | None, rescale: str, memory: int
) -> Float[Tensor, "S B T H W"]:
    """The maps of networks of one architecture, from forward passes of the same images."""
    if not isinstance(rescale, str) or rescale not in TERM_MAPS:
        raise UnknownNameError(unknown_name_text("rescale", rescale, TERM_MAPS))
    chunks: list[Tensor] = []
    for terms in reduce_at_biases(passes, target, TERM_MAPS[rescale], memory):
        maps = sum_layers(terms, passes[0].leaf)
        if rescale == "reference":
            low, high = maps.amin((3, 4), keepdim=True), maps.amax((3, 4), keepdim=True)
            maps = (maps - low) / (high - low + EPS)
        chunks.append(maps)
    return torch.cat(chunks).permute(1, 2, 0, 3, 4)


NetworkPasses = Sequence[tuple[slice, FullGradPass]]
"""The forward passes of one network: which images, and their pass."""


class FullGradRelevance:
    """FullGrad as the relevance of UA-Backprop: the forward passes that gave the logits serve for the maps too.

    As many networks' passes are kept as fit the memory. The maps are those of `RelevanceByCalls`.
    """

    def __init__(self, attributor: ConfiguredAttributor, networks: Posterior, x: Images, context: Context) -> None:
        self.attributor, self.networks, self.x, self.context = attributor, networks, x, context
        self.passes_by_network = keep_passes(networks, x, context.memory)
        logits = [torch.cat([each.output.detach() for _, each in passes]) for passes in self.passes_by_network]
        self.logits = predict_logits(networks, x, context.memory, logits_so_far=logits)

    def class_maps(self, weights: ClassWeights) -> Iterator[ClassMaps]:
        rescale, memory = self.attributor.options["rescale"], self.context.memory
        if len(self.passes_by_network) == len(weights) and bool(weights.any(1).all()):
            maps = maps_in_one_walk(self.passes_by_network, rescale, memory)
            if maps is not None:
                yield ClassMaps(slice(0, len(weights)), slice(0, len(self.x)), weights, maps)
                return
        max_maps = maps_at_once(self.x, memory)
        for s, passes in enumerate(self.passes_by_network):
            for image_slice, forward_pass in passes:
                for target in class_targets(weights[s][:, image_slice], max_maps):
                    maps = fullgrad_maps([forward_pass], target, rescale, memory)
                    yield ClassMaps(slice(s, s + 1), image_slice, target.select(weights[s][:, image_slice])[None], maps)
        if len(self.passes_by_network) < len(weights):  # iterating may make networks anew: only if needed
            others = islice(enumerate(self.networks), len(self.passes_by_network), None)
            yield from class_maps_by_calls(self.attributor, others, self.x, weights, self.context)


def keep_passes(networks: Posterior, x: Images, memory: int) -> list[NetworkPasses]:
    """Forward passes that serve for logits and relevance both: of as many networks as fit into the memory.

    Their memory is counted from their graphs. For few, small images it is not counted: all fit.
    """
    room, passes_by_network = memory // KEPT_DIVISOR, list[NetworkPasses]()
    is_counted, costs = not needs_no_measuring(len(networks), x, memory), dict[tuple[object, ...], Cost]()
    for network in networks if len(x) else ():
        if IMAGE_BYTES_FACTOR * x.nbytes > room:
            break
        passes = [*fullgrad_passes(network, x, images_per_pass(network, x, None, memory, costs))]
        try:
            element_count = sum([count_graph_elements(each.output) for _, each in passes]) if is_counted else 0
        except (MissingAttributeError, RuntimeError):
            break  # what a pass takes cannot be known
        room -= x.element_size() * element_count
        if room < 0:
            break
        passes_by_network.append(passes)
    return passes_by_network


def maps_in_one_walk(
    passes_by_network: Sequence[NetworkPasses], rescale: str, memory: int
) -> Float[Tensor, "S B K H W"] | None:
    """The maps of all logits of networks of one architecture, if they are so few that they fit one chunk.

    Each operation is launched once for all networks.
    """
    passes = [first for ((_, first), *_) in passes_by_network]
    rows = sum([len(each.leaf) * each.output.shape[1] for each in passes])
    is_one_chunk = rows <= ONE_WALK_ROWS and all(len(passes_of_one) == 1 for passes_of_one in passes_by_network)
    if not is_one_chunk or any(each.walk_key() != passes[0].walk_key() for each in passes[1:]):
        return None
    return fullgrad_maps(passes, None, rescale, memory)
