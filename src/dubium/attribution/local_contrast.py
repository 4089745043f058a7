"""Local contrast of the image: a control that knows the image, but no network."""

from torch import nn

from dubium.attribution._blur import blur_images
from dubium.attribution._target import repeat_for_targets
from dubium.types import Images, Maps, Target

WIDTH = 1 / 8  # sigma of the local mean, as a part of the image's shorter side: 4 pixels of 32


def local_contrast(network: nn.Module, x: Images, target: Target) -> Maps:
    """The distance of each pixel from the mean around it, weighted by a Gaussian; mean over channels."""
    means = blur_images(x, [WIDTH * min(x.shape[2:])])[0]
    return repeat_for_targets((x - means).abs().mean(1), network, x, target)
