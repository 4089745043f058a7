"""FullGrad prepared for UA-Backprop: forward passes kept for their maps, networks of one architecture walked together.

What it gives is what `PlainRelevance` gives of FullGrad; it spares a forward pass, and launches at small batches.
"""

from collections.abc import Iterator, Sequence
from itertools import chain, islice

import torch
from jaxtyping import Float
from torch import Tensor, nn

from dubium.attribution._autograd.backward import DifferentGraphsError
from dubium.attribution._autograd.nodes import MissingAttributeError, count_graph_numbers
from dubium.attribution._budget import FEATURES, TOGETHER_ROWS, kept_bytes, map_rows
from dubium.attribution._context import Context
from dubium.attribution._prepared import (
    ClassMaps,
    ClassWeights,
    class_maps_by_calls,
    class_targets,
    network_logits,
)
from dubium.attribution._resolve import Method
from dubium.attribution._target import ALL_LOGITS
from dubium.attribution.fullgrad import FullGradPass, fullgrad_maps, images_per_pass
from dubium.checks import check_logits, name_network
from dubium.types import Images, Posterior

NetworkPasses = Sequence[tuple[slice, FullGradPass]]
"""The forward passes of one network: which images, and their pass."""


class PreparedFullGrad:
    """FullGrad at images that the networks have seen; as many networks' passes are kept as fit the memory."""

    def __init__(self, method: Method, networks: Posterior, x: Images, context: Context) -> None:
        self.method, self.networks, self.x, self.context = method, networks, x, context
        self.kept = keep_passes(networks, x, context.memory)
        kept_logits = (torch.cat([one.output.detach() for _, one in passes]) for passes in self.kept)
        others = network_logits(self.other_networks(), x, context.memory)
        self.logits = check_logits(chain(kept_logits, others), len(networks))[:, : len(x)]

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
    room, kept = kept_bytes(memory), list[NetworkPasses]()
    for index, network in enumerate(networks if len(x) else ()):
        if FEATURES * x.nbytes > room:
            break
        with name_network(index, x):
            size = images_per_pass(network, x, ALL_LOGITS, memory)
            slices = [slice(start, min(len(x), start + size)) for start in range(0, len(x), size)]
            passes = [(images, FullGradPass(network, x[images])) for images in slices]
        try:
            room -= x.element_size() * sum(count_graph_numbers(one.output) for _, one in passes)
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
    rows = sum(len(one.leaf) * one.output.shape[1] for one in passes)
    shapes = {tuple((bias.value.shape, bias.channels, bias.layout) for bias in one.biases) for one in passes}
    if rows > TOGETHER_ROWS or len(shapes) > 1 or any(len(several) > 1 for several in kept):
        return None
    try:
        return fullgrad_maps(passes, ALL_LOGITS, rescale, memory)
    except DifferentGraphsError:
        return None
