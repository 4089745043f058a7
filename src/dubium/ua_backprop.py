"""z -> x: UA-Backprop (Wang et al., CVPR 2023). Shares of the uncertainty, carried to pixels by relevance maps."""

from collections.abc import Iterator

import torch

from dubium.checks import check_maps
from dubium.softmax_share import softmax_share
from dubium.types import Attributor, Images, Logits, Maps, Posterior, Progress, Target
from dubium.uncertainty import shares


def ua_backprop(
    posterior: Posterior,
    x: Images,
    logits: Logits,
    *,
    relevance: Attributor,
    tau1: float,
    tau2: float,
    normalize: bool,
    memory: int,
    progress: Progress,
) -> Maps:
    """Carry the total, aleatoric and epistemic uncertainty back to pixels, through every sample and class."""
    on_probs = shares(logits)  # U -> g   (kinds, B, K)
    on_logits = softmax_share(on_probs, logits, tau1).to(x.dtype)  # g -> z   (S, kinds, B, K)
    maps = x.new_zeros(len(x), len(on_probs), *x.shape[2:])
    for s, (share, network) in enumerate(zip(on_logits, posterior, strict=True)):
        for images, classes in chunks(x, logits.shape[-1], memory):
            where = relevance(network, x[images], only(classes))  # z -> x   (B, K, H, W)
            check_maps(where, "The relevance", (*share[0, images, classes].shape, *x.shape[2:]))
            if normalize:
                where = pixel_softmax(where, tau2)
            maps[images] += torch.einsum("tbk,bkhw->bthw", share[:, images, classes], where) / len(on_logits)
            if classes.stop >= logits.shape[-1]:
                progress(s * len(x) + images.stop, len(on_logits) * len(x))
    return maps


def only(classes: slice) -> Target:
    """A target: the logits of some classes."""
    return lambda logits: logits[:, classes]


def pixel_softmax(relevance: Maps, tau2: float) -> Maps:
    """Non-negative maps that sum to 1: the sharper, the smaller tau2."""
    return (relevance / tau2).flatten(2).softmax(-1).view_as(relevance)


def chunks(x: Images, classes: int, memory: int) -> Iterator[tuple[slice, slice]]:
    """Images and classes whose relevance maps, with their gradients, take no more than a quarter of the memory."""
    rows = max(1, memory // (4 * (x.shape[1] + 3) * x[0, 0].nbytes)) if len(x) else 1
    at_once = min(classes, rows)
    images = min(len(x), rows // at_once)
    for start in range(0, len(x), max(1, images)):
        for first in range(0, classes, at_once):
            yield slice(start, min(len(x), start + images)), slice(first, min(classes, first + at_once))
