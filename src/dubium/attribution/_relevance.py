"""The relevance of UA-Backprop, logits (S, B, K) and maps of classes in chunks; and an attributor with its options."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

from jaxtyping import Float
from torch import Tensor, nn

from dubium.attribution._budget import maps_at_once
from dubium.attribution._context import Context
from dubium.attribution._passes import predict_logits
from dubium.attribution._target import LogitTarget
from dubium.checks import describe_tensor
from dubium.errors import OutputError
from dubium.registry import MethodEntry
from dubium.types import Attribution, Attributor, Images, Logits, Posterior, Target

CONTEXT_ARGUMENT = "context"
ClassWeights = Float[Tensor, "S kinds B K"]
"""Of each network, kind of uncertainty, image and class: how much its relevance map counts."""


@dataclass(frozen=True)
class ConfiguredAttributor:
    """An attributor with the values of its options."""

    name: str
    function: Attributor
    options: Mapping[str, Any]
    takes_context: bool
    entry: MethodEntry | None  # its row in the registry; None of a function, class or object of the user's
    relevance_class: Callable[..., "PreparedRelevance"]  # of (attributor, networks, x, context)

    @property
    def is_users(self) -> bool:
        return self.entry is None

    def __call__(
        self, network: nn.Module, x: Images, target: Target, context: Context, *, target_count: int
    ) -> Attribution:
        """The maps of each of so many targets, and whatever else the method finds."""
        arguments = {**self.options, CONTEXT_ARGUMENT: context} if self.takes_context else self.options
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

    network_slice: slice
    image_slice: slice
    weights: Float[Tensor, "s kinds b k"]
    maps: Float[Tensor, "s b k H W"]


@runtime_checkable
class PreparedRelevance(Protocol):
    """The relevance of one call of UA-Backprop: the networks' logits at its images, and maps of classes on request."""

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
    for s, network in numbered:
        for image_slice in image_slices(weights[s], max_maps):
            for target in class_targets(weights[s][:, image_slice], max_maps):
                chunk_weights = target.select(weights[s][:, image_slice])
                count = chunk_weights.shape[-1]
                maps = attributor(network, x[image_slice], target, context, target_count=count).maps
                yield ClassMaps(slice(s, s + 1), image_slice, chunk_weights[None], maps[None])


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
    image_count, classes = has_weight.shape
    most = int(has_weight.sum(1).max())
    size = max(1, max_maps // image_count)
    if most == classes:
        for start in range(0, classes, size):
            yield LogitTarget(slice(start, min(classes, start + size)))
    elif most:
        for class_ids in has_weight.int().topk(most).indices.split(size, 1):
            yield LogitTarget(class_ids[0] if image_count == 1 else class_ids)
