"""Variance of the members' effects: the mutual information of networks and classes to second order, pixel by pixel."""

import torch
from torch import nn

from dubium.attribution._blur import blurred_copies
from dubium.attribution._context import DEFAULT_CONTEXT, Context
from dubium.attribution._member_effects import member_effects
from dubium.attribution._passes import predict_logits
from dubium.attribution._target import repeat_for_targets
from dubium.posteriors.stack import stacked_networks
from dubium.types import Images, Maps, Target


def effect_variance(network: nn.Module, x: Images, target: Target, *, context: Context = DEFAULT_CONTEXT) -> Maps:
    """Credit each pixel with `sum_k Var_s(R_k^s) / (2 mean_s p_k^s)`, R_k^s its effect on network s's probability p_k.

    The effect of a pixel is its distance from blurred copies of the image times the slope there. It explains that
    networks differ, so all kinds of uncertainty have the same map.
    """
    with torch.no_grad():
        probs = predict_logits(stacked_networks(network), x, context.memory).softmax(-1).mean(0)  # (B, K)
    maps = []
    for some, effects in member_effects(network, x, blurred_detail, context.memory):
        weights = 0.5 / probs[some].clamp_min(torch.finfo(x.dtype).tiny)
        maps.append((effects.var(0, correction=0) * weights[:, :, None, None]).sum(1))
    return repeat_for_targets(torch.cat(maps), network, x, target)


def blurred_detail(x: Images) -> Images:
    """What blurs of several widths take from the images."""
    return x - blurred_copies(x).mean(0)
