"""Variance of the members' maps: the diagonal of their covariance (Bley et al., 2024, arXiv:2401.17441)."""

import torch
from torch import nn

from dubium.attribution._context import DEFAULT_CONTEXT, Context
from dubium.attribution._member_effects import member_effects
from dubium.attribution._target import repeat_for_targets
from dubium.types import Images, Maps, Target


def map_variance(network: nn.Module, x: Images, target: Target, *, context: Context = DEFAULT_CONTEXT) -> Maps:
    """Credit each pixel with the variance over networks of its gradient times input, summed over class probabilities.

    It explains that networks differ, so all kinds of uncertainty have the same map.
    """
    effects_by_chunk = member_effects(network, x, lambda images: images, context.memory)
    maps = [effects.var(0, correction=0).sum(1) for _, effects in effects_by_chunk]
    return repeat_for_targets(torch.cat(maps), network, x, target)
