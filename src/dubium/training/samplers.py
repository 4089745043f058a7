"""SGHMC and variational inference from a trained network, with a checkpoint after every epoch."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from dubium.data import Dataset
from dubium.posteriors import mean_field_vi, sghmc
from dubium.training import checkpoint as checkpoints
from dubium.training.loop import limited
from dubium.training.plan import Plan
from dubium.training.seeds import seed_for
from dubium.types import Posterior


@dataclass(frozen=True)
class Batches:
    """The training images and labels of a plan, batch by batch: shuffled, and the same on every pass."""

    data: Dataset
    plan: Plan

    def __len__(self) -> int:
        return len(self._rows())

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        data = limited(self.data, self.plan.recipe.images)
        assert data.labels is not None
        for rows in self._rows():
            yield data.batch(rows), data.labels[rows]

    def _rows(self) -> tuple[Tensor, ...]:
        images = len(limited(self.data, self.plan.recipe.images))
        draws = torch.Generator().manual_seed(seed_for(self.plan.seed, "batches", 0))
        return tuple(torch.randperm(images, generator=draws).split(self.plan.recipe.batch_size))


def sample(plan: Plan, network: nn.Module, data: Dataset, checkpoint: Path) -> Posterior:
    """Draw the plan's posterior, "sghmc" or "vi", starting from a trained network."""
    resume = None
    if checkpoint.exists():
        tensors, header = checkpoints.read(checkpoint)
        resume = (header["epochs"], tensors)

    def on_epoch(epoch: int, tensors: dict[str, Tensor]) -> None:
        checkpoints.write(checkpoint, tensors, {"epochs": epoch})

    options: dict[str, Any] = {"samples": plan.members, "seed": plan.seed, "on_epoch": on_epoch, "resume": resume}
    if plan.posterior == "sghmc":
        options["burn_in"] = max(1, plan.recipe.epochs // 3)
    else:
        options["epochs"] = plan.recipe.epochs
    run: Callable[..., Posterior] = sghmc if plan.posterior == "sghmc" else mean_field_vi
    return run(network, Batches(data, plan), **options)
