"""Uncertainty as a function of images, for protocols that ask it thousands of times."""

from collections.abc import Callable, Iterable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from dubium.shares import class_shares
from dubium.types import KINDS, Images, Kind, Posterior

Uncertainty = Callable[[Images], Float[Tensor, " B"]]
"""Nats of one kind, image by image."""

BATCH_SIZE = 64  # with channels last, the fastest on the CPUs tried: see benchmarks/blurring.py


def scorer(posterior: Posterior, kind: Kind = "epistemic", *, batch_size: int = BATCH_SIZE) -> Uncertainty:
    """The posterior's uncertainty of one kind, in float64, without the checks of `dubium.uncertainty`."""
    networks = list(posterior)

    @torch.no_grad()
    def uncertainty(x: Images) -> Float[Tensor, " B"]:
        scores = [x.new_zeros(0, dtype=torch.float64)]
        for part in x.split(batch_size):
            logits = [forward(network, part) for network in networks]
            scores.append(class_shares(torch.stack(logits))[KINDS.index(kind)].sum(-1))
        return torch.cat(scores)

    return uncertainty


def forward(network: nn.Module, x: Images) -> Float[Tensor, "B K"]:
    """Logits, with channels last where the network can: one that flattens with `view` cannot."""
    try:
        logits: Tensor = network(x.clone(memory_format=torch.channels_last))  # a copy, since it may work in place
    except RuntimeError:
        logits = network(x.clone())
    return logits


def batched(uncertainty: Uncertainty, batches: Iterable[Images]) -> Float[Tensor, " B"]:
    """Scores of images that are made batch by batch, so that they need not exist at once."""
    return torch.cat([uncertainty(batch) for batch in batches])
