"""An attributor with its options, and the relevance of UA-Backprop: logits (S, B, K), and maps of classes in chunks."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from dubium.attribution._budget import maps_at_once
from dubium.attribution._context import DEFAULT_CONTEXT, Context
from dubium.attribution._measure import forward_batch_size
from dubium.attribution._target import LogitTarget
from dubium.checks import describe_tensor, list_some
from dubium.errors import OutputError, PosteriorError
from dubium.types import Attribution, Attributor, Images, Logits, Posterior, Target

CONTEXT = "context"
ClassWeights = Float[Tensor, "S kinds B K"]
"""Of each network, kind of uncertainty, image and class: how much its relevance map counts."""


@dataclass(frozen=True)
class ConfiguredAttributor:
    """An attributor with the values of its options."""

    name: str
    function: Attributor
    options: Mapping[str, Any]
    takes_context: bool
    fast_relevance: Callable[..., "Relevance"] | None = None  # what UA-Backprop uses instead of calls
    is_builtin: bool = False  # False for a function, class or object of the user's, whatever its name
    is_scaled: bool = False  # whether its maps are to be scaled to the scores

    def __call__(
        self, network: nn.Module, x: Images, target: Target, context: Context, *, target_count: int
    ) -> Attribution:
        """The maps of each of so many targets, and whatever else the method finds."""
        arguments = {**self.options, CONTEXT: context} if self.takes_context else self.options
        returned = self.function(network, x, target, **arguments)
        maps, extras = returned if isinstance(returned, Attribution) else (returned, {})
        expected = len(x), target_count, *x.shape[2:]
        if not isinstance(maps, Tensor) or tuple(maps.shape) != expected or maps.is_complex():
            raise OutputError(
                f"{self.name} returned {describe_tensor(maps)}; maps (B, T, H, W) = {expected} are needed."
            )
        for name, extra in extras.items():
            if not isinstance(extra, Tensor) or tuple(extra.shape[:2]) != expected[:2]:
                shape = f"({expected[0]}, {expected[1]}, ...)"
                raise OutputError(
                    f"{self.name} returned {describe_tensor(extra)} as {name!r}; a tensor {shape} is needed."
                )
        return Attribution(
            maps.to(x), {name: extra.to(x) if extra.is_floating_point() else extra for name, extra in extras.items()}
        )


class ClassMaps(NamedTuple):
    """Relevance maps of some networks, images and classes, and the weights to add them up with."""

    networks: slice
    images: slice
    weights: Float[Tensor, "s kinds b k"]
    maps: Float[Tensor, "s b k H W"]


@runtime_checkable
class Relevance(Protocol):
    """A relevance at images that the networks have seen."""

    logits: Logits

    def class_maps(self, weights: ClassWeights) -> Iterator[ClassMaps]:
        """The relevance maps of all classes that have any weight; each network, image and class comes once."""
        ...


class RelevanceByCalls:
    """Any attributor: a forward pass for the logits, and a call for each chunk of images and classes."""

    def __init__(self, attributor: ConfiguredAttributor, networks: Posterior, x: Images, context: Context) -> None:
        self.attributor, self.networks, self.x, self.context = attributor, networks, x, context
        self.logits = predict_logits(networks, x, context.memory)

    def class_maps(self, weights: ClassWeights) -> Iterator[ClassMaps]:
        return class_maps_by_calls(self.attributor, enumerate(self.networks), self.x, weights, self.context)


def class_maps_by_calls(
    attributor: ConfiguredAttributor,
    numbered: Iterable[tuple[int, nn.Module]],
    x: Images,
    weights: ClassWeights,
    context: Context,
) -> Iterator[ClassMaps]:
    """Relevance maps of the classes that have any weight, by calls of the attributor.

    Args:
        numbered: networks with their index in the posterior.
    """
    max_maps = maps_at_once(x, context.memory)
    as_relevance = replace(context, progress=DEFAULT_CONTEXT.progress, signed=False)
    for s, network in numbered:
        for images in image_slices(weights[s], max_maps):
            for target in class_targets(weights[s][:, images], max_maps):
                chunk_weights = target(weights[s][:, images])
                count = chunk_weights.shape[-1]
                maps = attributor(network, x[images], target, as_relevance, target_count=count).maps
                yield ClassMaps(slice(s, s + 1), images, chunk_weights[None], maps[None])


def image_slices(weights: Float[Tensor, "kinds B K"], max_maps: int) -> Iterator[slice]:
    """Images whose classes of any weight make at most `max_maps` maps."""
    classes = max(1, int(weights.any(0).sum(1).max())) if weights.numel() else 1
    size = max(1, max_maps // classes)
    for start in range(0, weights.shape[1], size):
        yield slice(start, min(weights.shape[1], start + size))


def class_targets(weights: Float[Tensor, "kinds B K"], max_maps: int) -> Iterator[LogitTarget]:
    """Targets that together select all classes of any weight, for at most `max_maps` maps each.

    If images need different classes, each image has its own row of classes, padded with classes of no weight.
    """
    has_weight = weights.any(0)
    images, classes = has_weight.shape
    most = int(has_weight.sum(1).max())
    size = max(1, max_maps // images)
    if most == classes:
        for start in range(0, classes, size):
            yield LogitTarget(slice(start, min(classes, start + size)))
    elif most:
        for class_ids in has_weight.int().topk(most).indices.split(size, 1):
            yield LogitTarget(class_ids[0] if images == 1 else class_ids)


def predict_logits(networks: Posterior, x: Images, memory: int, *, logits_so_far: Sequence[Tensor] = ()) -> Logits:
    """Logits (S, B, K) of all networks: of as many as they say, of the same classes, and finite.

    Those of the first `len(logits_so_far)` networks are taken from `logits_so_far`.
    """
    images = x if len(x) else x.new_zeros(1, *x.shape[1:])  # no images: one of zeros tells K
    by_network = [*logits_so_far]
    for network in islice(networks, len(logits_so_far), None) if len(logits_so_far) < len(networks) else ():
        size = forward_batch_size(network, images, memory)
        by_network.append(torch.cat([network(some.clone()) for some in images.split(size)]))
    class_counts = [each.shape[1] for each in by_network]
    for index, count in enumerate(class_counts):
        if count != class_counts[0]:
            raise PosteriorError(
                f"Networks disagree about the classes: network 0 has {class_counts[0]}, network {index} has {count}. "
                "Give networks that were trained for the same classes, in the same order; explain others on their own."
            )
    if len(by_network) != len(networks):
        raise PosteriorError(f"The posterior says it has {len(networks)} networks, but gave {len(by_network)}.")
    logits = torch.stack(by_network)
    finite = logits.isfinite().all(-1)
    if not finite.all():
        index = int((~finite).any(1).int().argmax())
        bad = (~finite[index]).nonzero().flatten().tolist()
        raise OutputError(
            f"Network {index} gives NaN or infinite logits for image {list_some(bad)}. Has its training diverged?"
        )
    return logits[:, : len(x)]
