"""The one training loop."""

import math
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from dubium.data import Dataset, as_float
from dubium.errors import DivergedError
from dubium.models import Normalized, build
from dubium.training import checkpoint as checkpoints
from dubium.training.augment import random_crop, random_flip
from dubium.training.checkpoint import TrainingState
from dubium.training.recipe import Recipe
from dubium.training.seeds import seed_for, seeded

Objective = Callable[[nn.Module, Tensor, Tensor], tuple[Tensor, Tensor]]
"""`(network, images, labels) -> (mean loss, how many are right)`."""

OnEpoch = Callable[[int, nn.Module, dict[str, Tensor]], None]
"""Called after each epoch with its number from 1, the network, and tensors to fill that are kept in the checkpoint."""

OnStep = Callable[[dict[str, Any]], None]
"""Called now and then with epoch, epochs, step, steps, loss, accuracy and learning rate so far."""

CHECK_EVERY = 50  # steps between two looks at the loss: often enough to stop early, too seldom to cost anything


def fit(
    network: nn.Module,
    data: Dataset,
    recipe: Recipe,
    *,
    seed: int = 0,
    objective: Objective | None = None,
    checkpoint: Path | None = None,
    on_epoch: OnEpoch | None = None,
    on_step: OnStep | None = None,
    on_record: Callable[[dict[str, Any]], None] | None = None,
) -> TrainingState:
    """Train `network` in place, and leave it in eval mode.

    With a `checkpoint` file, the state is written after every epoch and an existing one is continued from: the final
    weights are the same, bit for bit, given the same number of threads. The global random state is left as it was.
    """
    objective = objective or classify
    data = limited(data, recipe.images)
    optimizer = _optimizer(network, recipe)
    progress = TrainingState()
    if checkpoint is not None and checkpoint.exists():
        progress = checkpoints.restore(checkpoint, network, optimizer)
    network.train()
    while progress.epochs < recipe.epochs:
        with seeded(seed_for(seed, "noise", progress.epochs)):
            record = _epoch(network, data, recipe, progress.epochs, seed, optimizer, objective, on_step)
            progress.epochs += 1
            progress.history.append(record)
            if on_epoch is not None:
                on_epoch(progress.epochs, network, progress.kept)
        if checkpoint is not None:
            checkpoints.save(checkpoint, network, optimizer, progress)
        if on_record is not None:
            on_record(record)
    network.eval()
    return progress


def _epoch(
    network: nn.Module,
    data: Dataset,
    recipe: Recipe,
    epoch: int,
    seed: int,
    optimizer: torch.optim.Optimizer,
    objective: Objective,
    on_step: OnStep | None,
) -> dict[str, Any]:
    started = perf_counter()
    device = next(network.parameters()).device
    draws = torch.Generator().manual_seed(seed_for(seed, "order", epoch))
    labels = data.labels if data.labels is not None else torch.zeros(len(data), dtype=torch.int64)
    batches = torch.randperm(len(data), generator=draws).split(recipe.batch_size)
    where = {"epoch": epoch + 1, "epochs": recipe.epochs, "steps": len(batches)}
    loss_sum, right, seen = torch.zeros((), device=device), torch.zeros((), device=device), 0
    for step, rows in enumerate(batches):
        x = data.images[rows]
        if recipe.crop:
            x = random_crop(x, recipe.crop, draws)
        if recipe.flip:
            x = random_flip(x, draws)
        rate = recipe.learning_rate(epoch + step / len(batches))
        for group in optimizer.param_groups:
            group["lr"] = rate
        loss, correct = objective(network, as_float(x).to(device), labels[rows].to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        loss_sum, right, seen = loss_sum + loss.detach() * len(rows), right + correct, seen + len(rows)
        if step % CHECK_EVERY == 0 or step + 1 == len(batches):
            mean = float(loss_sum) / seen
            if not math.isfinite(mean):
                raise DivergedError(_diverged(epoch, step, rate, recipe))
            if on_step is not None:
                so_far = {"loss": mean, "accuracy": float(right) / seen, "lr": rate}
                on_step({**where, "step": step + 1, **so_far})
    seconds = perf_counter() - started
    return {"epoch": epoch + 1, "loss": mean, "accuracy": float(right) / seen, "lr": rate, "seconds": round(seconds, 3)}


def classify(network: nn.Module, x: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Cross-entropy of a classifier."""
    logits = network(x)
    return F.cross_entropy(logits, labels), (logits.detach().argmax(1) == labels).sum()


def network_for(recipe: Recipe, seed: int) -> nn.Module:
    """A fresh network in training mode, initialised from `seed`, behind the recipe's normalisation."""
    with seeded(seed_for(seed, "weights", 0)):
        network = build(recipe.architecture, **recipe.options)
    if recipe.mean is not None and recipe.std is not None:
        network = Normalized(network, recipe.mean, recipe.std)
    return network.train()


def limited(data: Dataset, images: int | None) -> Dataset:
    """The first `images` of a fixed shuffle, in their original order; all of them for None."""
    return data if images is None or images >= len(data) else data.sample(images)


@torch.no_grad()
def predict(network: nn.Module, data: Dataset, batch_size: int = 500) -> Tensor:
    """Logits of every image; the network should be in eval mode."""
    device = next(network.parameters()).device
    rows = range(0, len(data), batch_size)
    return torch.cat([network(data.batch(slice(i, i + batch_size)).to(device)).cpu() for i in rows])


def _optimizer(network: nn.Module, recipe: Recipe) -> torch.optim.Optimizer:
    if recipe.optimizer == "adam":
        return torch.optim.Adam(network.parameters(), recipe.lr, weight_decay=recipe.weight_decay)
    return torch.optim.SGD(network.parameters(), recipe.lr, recipe.momentum, weight_decay=recipe.weight_decay)


def _diverged(epoch: int, step: int, rate: float, recipe: Recipe) -> str:
    return (
        f"The loss is no longer a number (epoch {epoch + 1}, step {step + 1}, learning rate {rate:.3g}). Try a lower"
        f" learning rate (lr {recipe.lr / 10:.2g} instead of {recipe.lr:.2g}), standardised input (mean, std), or a"
        f" larger batch than {recipe.batch_size}."
    )
