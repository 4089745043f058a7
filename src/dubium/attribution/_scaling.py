"""Maps that are parts of a score."""

import torch

from dubium.types import Maps, Scores


def scale_to_scores(maps: Maps, scores: Scores) -> Maps:
    """Non-negative maps that sum to the scores: uniform where a map is zero, zero where its score is zero."""
    total = maps.double().sum((2, 3), keepdim=True)
    parts = torch.where(total == 0, 1 / maps[0, 0].numel(), maps / total)  # of NaN, NaN: it is refused later
    return (scores.double()[:, :, None, None] * parts).to(maps)
