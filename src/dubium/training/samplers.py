"""SGHMC and variational inference from a trained network, with a checkpoint after every epoch."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from dubium.data import Dataset
from dubium.posteriors import mean_field_vi, sghmc
from dubium.seeds import seed_for
from dubium.training.checkpoint import read_checkpoint, write_checkpoint
from dubium.training.loop import limit_images
from dubium.training.plan import Plan
from dubium.types import Posterior

SGHMC_LR = 0.1  # as trainings had it that may be continued; the function's own default is for fewer images


@dataclass(frozen=True, eq=False)
class TrainedNetwork:
    """A network after its training, and the tensors that were kept while it trained."""

    network: nn.Module
    kept: dict[str, Tensor]


@dataclass(frozen=True)
class PlanBatches:
    """Batches (images, labels) of a plan's training data: shuffled, in the same order on every pass."""

    data: Dataset
    plan: Plan

    def __len__(self) -> int:
        return len(self._rows())

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        data = limit_images(self.data, self.plan.recipe.images)
        assert data.labels is not None
        for rows in self._rows():
            yield data.batch(rows), data.labels[rows]

    def _rows(self) -> tuple[Tensor, ...]:
        images = len(limit_images(self.data, self.plan.recipe.images))
        draws = torch.Generator().manual_seed(seed_for(self.plan.seed, "batches", 0))
        return tuple(torch.randperm(images, generator=draws).split(self.plan.recipe.batch_size))


def sghmc_posterior(plan: Plan, trained: Sequence[TrainedNetwork], data: Dataset, checkpoint: Path) -> Posterior:
    """Samples of SGHMC, which starts from the trained network."""
    burn_in, options = max(1, plan.recipe.epochs // 3), sampler_options(plan, checkpoint)
    return sghmc(trained[0].network, PlanBatches(data, plan), burn_in=burn_in, lr=SGHMC_LR, **options)


def vi_posterior(plan: Plan, trained: Sequence[TrainedNetwork], data: Dataset, checkpoint: Path) -> Posterior:
    """The Gaussian of variational inference, which starts from the trained network."""
    options = sampler_options(plan, checkpoint)
    return mean_field_vi(trained[0].network, PlanBatches(data, plan), epochs=plan.recipe.epochs, **options)


def sampler_options(plan: Plan, checkpoint: Path) -> dict[str, Any]:
    """Samples, seed, and how to write and continue from `checkpoint`."""
    resume = None
    if checkpoint.exists():
        tensors, header = read_checkpoint(checkpoint)
        resume = (header["epochs"], tensors)

    def on_epoch(epoch: int, tensors: dict[str, Tensor]) -> None:
        write_checkpoint(checkpoint, tensors, {"epochs": epoch})

    return {"samples": plan.members, "seed": plan.seed, "on_epoch": on_epoch, "resume": resume}
