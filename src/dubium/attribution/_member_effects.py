"""What each network of a posterior says about every class, pixel by pixel: for methods that compare networks."""

from collections.abc import Callable, Iterator

import torch
from jaxtyping import Float
from torch import Tensor, nn

from dubium.attribution._budget import split_memory_for_effects
from dubium.attribution._gradients import pixel_gradients
from dubium.posteriors.stack import stacked_networks
from dubium.types import Images


def member_effects(
    network: nn.Module, x: Images, find_detail: Callable[[Images], Images], memory: int
) -> Iterator[tuple[slice, Float[Tensor, "S b K H W"]]]:
    """`sum over channels of detail * dp_k/dx` of each network's class probabilities p_k: some images at a time."""
    members = stacked_networks(network)
    classes = probabilities(members[0](x[:1].clone())).shape[1]
    size, left = split_memory_for_effects(members[0], x, len(members) * classes, memory)
    for first in range(0, len(x), size):
        image_slice = slice(first, min(len(x), first + size))
        detail = find_detail(x[image_slice])
        slopes = (pixel_gradients(member, x[image_slice], probabilities, memory=left) for member in members)
        yield image_slice, torch.stack([torch.einsum("bkchw,bchw->bkhw", slope, detail) for slope in slopes])


def probabilities(logits: Float[Tensor, "B K"]) -> Float[Tensor, "B K"]:
    return logits.softmax(-1)
