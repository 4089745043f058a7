"""Uncertainty as a function of images, for protocols that ask it thousands of times."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from dubium.shares import class_shares
from dubium.types import KINDS, Images, Kind, Posterior

Uncertainty = Callable[[Images], Float[Tensor, " B"]]
"""Images -> nats of one kind, one number for each image."""


class Predictions(NamedTuple):
    """Uncertainty in nats, and the mean probabilities, of a batch of images."""

    scores: Float[Tensor, " B"]
    probs: Float[Tensor, "B K"]


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
    predict = predictor(posterior, kind, batch_size=batch_size)
    return lambda x: predict(x).scores


def predictor(
    posterior: Posterior, kind: Kind = "epistemic", *, batch_size: int = BATCH_SIZE
) -> Callable[[Images], Predictions]:
    """Like `scorer`, with the posterior's mean probabilities beside the uncertainty."""
    networks = list(posterior)

    @torch.no_grad()
    def predict(x: Images) -> Predictions:
        parts = [_predict_batch(networks, part, kind) for part in x.split(batch_size)]
        if not parts:
            return Predictions(x.new_zeros(0, dtype=torch.float64), x.new_zeros(0, 0, dtype=torch.float64))
        return Predictions(torch.cat([part.scores for part in parts]), torch.cat([part.probs for part in parts]))

    return predict


def _predict_batch(networks: Sequence[nn.Module], x: Images, kind: Kind) -> Predictions:
    logits = torch.stack([channels_last_logits(network, x) for network in networks])
    return Predictions(class_shares(logits)[KINDS.index(kind)].sum(-1), logits.double().softmax(-1).mean(0))


def channels_last_logits(network: nn.Module, x: Images) -> Float[Tensor, "B K"]:
    """Logits of a batch in channels-last format where the network can take it: one that flattens with `view` cannot."""
    try:
        logits: Tensor = network(x.clone(memory_format=torch.channels_last))  # a copy, since it may work in place
    except RuntimeError:
        logits = network(x.clone())
    return logits
