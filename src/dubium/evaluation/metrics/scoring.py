"""Uncertainty as a function of images, for protocols that ask it thousands of times."""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from dubium.shares import class_shares
from dubium.types import KINDS, Images, Kind, Posterior

Uncertainty = Callable[[Images], Float[Tensor, " B"]]
"""Images -> nats of one kind, one number for each image."""

BATCH_SIZE = 64  # with channels last, the fastest on the CPUs tried: see benchmarks/blurring.py


def scorer(posterior: Posterior, kind: Kind = "epistemic", *, batch_size: int = BATCH_SIZE) -> Uncertainty:
    """A function of images that gives the posterior's uncertainty, without the checks of `dubium.uncertainty`.

    Args:
        posterior: networks in eval mode.
        kind: of uncertainty.
        batch_size: images that go through a network at a time.

    Returns:
        A function from images (B, C, H, W) to nats (B,), in float64.

    Example:
        >>> network = nn.Sequential(nn.Flatten(), nn.Linear(4, 2))
        >>> scorer([network, network])(torch.rand(3, 1, 2, 2)).shape
        torch.Size([3])
    """
    networks = list(posterior)

    @torch.no_grad()
    def uncertainty(x: Images) -> Float[Tensor, " B"]:
        scores = [x.new_zeros(0, dtype=torch.float64)]
        for part in x.split(batch_size):
            logits = [channels_last_logits(network, part) for network in networks]
            scores.append(class_shares(torch.stack(logits))[KINDS.index(kind)].sum(-1))
        return torch.cat(scores)

    return uncertainty


def channels_last_logits(network: nn.Module, x: Images) -> Float[Tensor, "B K"]:
    """Logits of a batch in channels-last format where the network can take it: one that flattens with `view` cannot."""
    try:
        logits: Tensor = network(x.clone(memory_format=torch.channels_last))  # a copy, since it may work in place
    except RuntimeError:
        logits = network(x.clone())
    return logits
