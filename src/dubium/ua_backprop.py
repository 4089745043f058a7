"""z -> x: UA-Backprop (Wang et al., CVPR 2023). Shares of the uncertainty, carried to pixels by relevance maps."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor

from dubium.attribution._vjp import EachOwn
from dubium.checks import check_maps, silent
from dubium.class_sampling import FEW, class_weights, enough_classes, offsets, pilot_weights
from dubium.softmax_share import softmax_share
from dubium.types import KINDS, Images, Kind, Logits, Maps, Progress, Shares, Target

Relevance = Callable[[Images, Target], Maps]
"""Which pixels of x move each target, in one network."""


def ua_backprop(
    x: Images,
    logits: Logits,
    on_probs: Shares,
    *,
    relevances: Callable[[], Iterable[Relevance]],
    known: Callable[[], Float[Tensor, "S B K H W"] | None],
    together: bool,
    tau1: float,
    tau2: float,
    normalize: bool,
    classes: int | str,
    kinds: Sequence[Kind],
    seed: int,
    memory: int,
    progress: Progress,
    extras: dict[str, Tensor],
) -> Maps:
    """Carry the uncertainty back to pixels, through every sample and every class, or those that `classes` leaves.

    `relevances` gives that of each network; it is called when they are needed, perhaps more than once.
    `known` gives the maps of all classes of all networks, if they can be had together.
    `together`: they know targets that differ from image to image.
    `extras["classes"]` receives what `classes="auto"` chose for each image.
    """
    on_logits = softmax_share(on_probs, logits, tau1)  # g -> z   (S, kinds, B, K)
    through = partial(
        traced,
        x,
        relevances=relevances,
        tau2=tau2 if normalize else None,
        together=together,
        memory=memory,
    )
    every, sampled = logits.shape[-1], False
    if classes != "all":
        offset = offsets(len(logits), seed).to(x.device)
        count = torch.full((len(x),), min(classes, every) if isinstance(classes, int) else every)
        if classes == "auto":
            if every > FEW:
                pilot = pilot_weights(on_logits, offset).to(x.dtype)
                count = enough_classes(through(pilot, sampled=True, progress=silent), every)
            extras["classes"] = count[:, None].expand(-1, len(kinds))
        sampled = bool((count < every).any())
        on_logits = class_weights(on_logits, count, offset) if sampled else on_logits
    weights = on_logits[:, [KINDS.index(kind) for kind in kinds]].to(x.dtype)
    every_map = None if sampled else known()
    if every_map is None:
        return through(weights, sampled=sampled, progress=progress)  # z -> x   (B, kinds, H, W)
    progress(len(logits) * len(x), len(logits) * len(x))
    where = pixel_softmax(every_map.flatten(0, 1), tau2).view_as(every_map) if normalize else every_map
    return torch.einsum("stbk,sbkhw->bthw", weights, where) / len(logits)


def located(relevance: Relevance, x: Images, target: Target, targets: int, tau2: float | None) -> Maps:
    """Relevance, checked, and as parts of a whole if there is a tau2."""
    maps = relevance(x, target)
    check_maps(maps, "The relevance", (len(x), targets, *x.shape[2:]))
    return maps if tau2 is None else pixel_softmax(maps, tau2)


def traced(
    x: Images,
    weights: Float[Tensor, "S T B K"],
    *,
    relevances: Callable[[], Iterable[Relevance]],
    tau2: float | None,
    together: bool,
    sampled: bool,
    memory: int,
    progress: Progress,
) -> Maps:
    """The sum of all classes' relevance maps, each times its weights; the mean over networks."""
    maps = x.new_zeros(len(x), weights.shape[1], *x.shape[2:])
    rows = rows_at_once(x, memory)
    for s, (weight, relevance) in enumerate(zip(weights, relevances(), strict=True)):
        for images, parts in drawn(weight, rows, together) if sampled else chunks(len(x), weight.shape[-1], rows):
            for classes in parts:
                target = only(classes)
                part = torch.stack([target(of_kind) for of_kind in weight[:, images]])  # (T, B, K)
                where = located(relevance, x[images], target, part.shape[-1], tau2)  # (B, K, H, W)
                maps[images] += torch.einsum("tbk,bkhw->bthw", part, where) / len(weights)
            progress(s * len(x) + images.stop, len(weights) * len(x))
    return maps


def only(classes: slice | Tensor) -> Target:
    """A target: the logits of some classes, or those of each image's own if there is a row for each."""
    return EachOwn(classes) if isinstance(classes, Tensor) and classes.ndim == 2 else lambda logits: logits[:, classes]


def pixel_softmax(relevance: Maps, tau2: float) -> Maps:
    """Non-negative maps that sum to 1: the sharper, the smaller tau2."""
    return (relevance / tau2).flatten(2).softmax(-1).view_as(relevance)


def chunks(images: int, classes: int, rows: int) -> Iterator[tuple[slice, Sequence[slice]]]:
    """Images, and classes in parts, that make so many rows at a time."""
    parts = [slice(first, min(classes, first + rows)) for first in range(0, classes, rows)]
    at_once = max(1, rows // classes)
    for start in range(0, images, at_once):
        yield slice(start, min(images, start + at_once)), parts


def drawn(weight: Float[Tensor, "T B K"], rows: int, together: bool) -> Iterator[tuple[slice, Sequence[Tensor]]]:
    """Images, and for each its own classes that have any weight, filled up with some that have none.

    Most relevances cannot know which images a target is given the logits of: for them, images go one by one.
    """
    counts = weight.any(0).sum(1)
    most = max(1, int(counts.max())) if len(counts) else 1
    for images, _ in chunks(len(counts), most, rows if together else most):
        classes = weight[:, images].any(0).int().topk(int(counts[images].max())).indices
        yield images, (classes if together else classes[0]).split(rows, -1) if classes.numel() else ()


def rows_at_once(x: Images, memory: int) -> int:
    """Relevance maps that, with their gradients, take no more than a quarter of the memory."""
    return max(1, memory // (4 * (x.shape[1] + 3) * x[0, 0].nbytes)) if len(x) else 1
