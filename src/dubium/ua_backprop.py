"""z -> x: UA-Backprop (Wang et al., CVPR 2023). Shares of the uncertainty, carried to pixels by relevance maps."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from dubium.attribution._context import DEFAULT_CONTEXT, Context
from dubium.attribution._relevance import ClassWeights, PreparedRelevance
from dubium.class_sampling import sample_classes
from dubium.shares import class_shares
from dubium.softmax_share import scale_tau1, softmax_share
from dubium.types import KINDS, Attribution, Images, Kind, Maps, Progress

PAPER_TAUS = {True: (0.08, 0.3), False: (0.55, 0.02)}
"""`tau1` and `tau2` of the paper (Appendix B), by whether the images are grey: `PAPER_TAUS[channels == 1]`."""


@dataclass(frozen=True)
class UABackpropOptions:
    """The options of UA-Backprop that are not its relevance's.

    Args:
        tau1: temperature from classes to logits, or "auto": the paper's, adapted to the number of classes.
        tau2: temperature from logits to pixels.
        normalize: whether a softmax over pixels is applied to each relevance map, so that it sums to 1.
        classes: how many classes are traced to pixels: "all", a number, or "auto".
        of: what the relevance explains: "logits", or "log-probs", which do not change when all logits are shifted.
    """

    tau1: float | str
    tau2: float
    normalize: bool
    classes: int | str
    of: str = "logits"

    def resolve_tau1(self, classes: int, channels: int) -> "UABackpropOptions":
        """The same with a number instead of `tau1="auto"`, for so many classes."""
        return replace(self, tau1=scale_tau1(classes, PAPER_TAUS[channels == 1][0]))


def ua_backprop(
    relevance: PreparedRelevance, x: Images, kinds: Sequence[Kind], options: UABackpropOptions, context: Context
) -> Attribution:
    """Maps (B, kinds, H, W): relevance maps of all classes, or of the sampled ones, weighted by shares on logits."""
    assert not isinstance(options.tau1, str), "options.resolve_tau1 says which number 'auto' is"
    on_probs = class_shares(relevance.logits)  # U -> g   (kinds, B, K)
    on_logits = softmax_share(on_probs, relevance.logits, options.tau1)  # g -> z   (S, kinds, B, K)
    to_pixels = partial(carry_to_pixels, relevance, x, options)
    weights, counts = on_logits, None
    if options.classes != "all":
        weights, counts = sample_classes(on_logits, options.classes, context.seed, to_pixels)
    maps = to_pixels(weights[:, [KINDS.index(kind) for kind in kinds]], context.progress)  # z -> x   (B, kinds, H, W)
    return Attribution(maps, {} if counts is None else {"classes": counts[:, None].expand(-1, len(kinds))})


def carry_to_pixels(
    relevance: PreparedRelevance,
    x: Images,
    options: UABackpropOptions,
    weights: ClassWeights,
    progress: Progress = DEFAULT_CONTEXT.progress,
) -> Maps:
    """The sum of all classes' relevance maps, each times its weights; the mean over networks."""
    weights = weights.to(x.dtype)
    maps = x.new_zeros(len(x), weights.shape[1], *x.shape[2:])
    done, total = 0, len(weights) * len(x)
    for chunk in relevance.class_maps(weights):
        pixel_weights = pixel_softmax(chunk.maps, options.tau2) if options.normalize else chunk.maps
        pixel_weights = pixel_weights.to(weights.dtype)  # a network may compute in another type inside
        maps[chunk.image_slice] += torch.einsum("stbk,sbkhw->bthw", chunk.weights, pixel_weights) / len(weights)
        done = (chunk.network_slice.stop - 1) * len(x) + chunk.image_slice.stop
        progress(done, total)
    if done < total:  # classes without weight have no chunk, so that the last call may be missing
        progress(total, total)
    return maps


def pixel_softmax(relevance_maps: Tensor, tau2: float) -> Tensor:
    """Non-negative maps (..., H, W) that sum to 1: the sharper, the smaller tau2."""
    return (relevance_maps / tau2).flatten(-2).softmax(-1).view_as(relevance_maps)
