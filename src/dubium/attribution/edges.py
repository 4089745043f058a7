"""Edges of the image (Sobel): a control that knows the image, but no network."""

import torch
from torch import nn
from torch.nn.functional import conv2d, pad

from dubium.attribution._target import repeat_for_targets
from dubium.types import Images, Maps, Target

SOBEL = ((-1.0, 0.0, 1.0), (-2.0, 0.0, 2.0), (-1.0, 0.0, 1.0))


def edges(network: nn.Module, x: Images, target: Target) -> Maps:
    """The length of the image's gradient by Sobel's filters, mean over channels."""
    maps = [sobel_lengths(image).mean(1) for image in x.split(1)]  # one at a time, for the sake of memory
    return repeat_for_targets(torch.cat(maps), network, x, target)


def sobel_lengths(x: Images) -> Images:
    """The length of the gradient in each channel."""
    across = torch.tensor(SOBEL, dtype=x.dtype, device=x.device)
    filters = torch.stack([across, across.mT])[:, None]
    framed = pad(x, (1, 1, 1, 1), mode="replicate").flatten(0, 1)[:, None]  # channels apart
    return conv2d(framed, filters).square().sum(1).sqrt().view_as(x)
