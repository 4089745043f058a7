"""The one training loop."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from dubium.data import Dataset, as_float
from dubium.errors import DivergedError
from dubium.models import Normalized, build
from dubium.seeds import seed_for, temporary_seed
from dubium.training.augment import random_crop, random_flip
from dubium.training.checkpoint import TrainingState, restore_state, save_state
from dubium.training.recipe import Recipe

Objective = Callable[[nn.Module, Tensor, Tensor], tuple[Tensor, Tensor]]
"""`(network, images, labels) -> (mean loss, number of correct predictions)`."""

OnEpoch = Callable[[int, nn.Module, dict[str, Tensor]], None]
"""Called after each epoch with its number from 1, the network, and tensors to fill that are kept in the checkpoint."""

OnStep = Callable[[dict[str, Any]], None]
"""Called every `CHECK_EVERY` steps with epoch, epochs, step, steps, and the epoch's loss, accuracy and rate so far."""

LARGEST_LOSS = 1e9  # in nats an image; training that got there does not come back
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
    """Train `network` in place, and leave it in eval mode. The global random state is not changed.

    Args:
        data: images and labels; an `objective` of your own may do without labels.
        seed: of the order of the images, their augmentation, and dropout.
        objective: what is minimised; cross-entropy by default.
        checkpoint: a file that is written after every epoch and continued from if it exists. The final weights are
            then the same, bit for bit, given the same number of threads.
        on_epoch: may put tensors into the dict `kept`, which the checkpoint holds too.
        on_record: called after each epoch with its number, loss, accuracy, learning rate and seconds.

    Returns:
        The number of epochs, the record of each, and the tensors that `on_epoch` kept.
    """
    optimizer = new_optimizer(network, recipe)
    task = TrainingTask(network, limit_images(data, recipe.images), recipe, optimizer, objective or classify, seed)
    state = TrainingState()
    if checkpoint is not None and checkpoint.exists():
        state = restore_state(checkpoint, network, optimizer)
    network.train()
    while state.epochs < recipe.epochs:
        with temporary_seed(seed_for(seed, "noise", state.epochs)):
            record = train_epoch(task, state.epochs, on_step)
            state.epochs += 1
            state.history.append(record)
            if on_epoch is not None:
                on_epoch(state.epochs, network, state.kept)
        if checkpoint is not None:
            save_state(checkpoint, network, optimizer, state)
        if on_record is not None:
            on_record(record)
    network.eval()
    check_last_step(task)
    return state


@dataclass(frozen=True, eq=False)
class TrainingTask:
    """What all epochs of a training have in common."""

    network: nn.Module
    data: Dataset
    recipe: Recipe
    optimizer: torch.optim.Optimizer
    objective: Objective
    seed: int


def train_epoch(task: TrainingTask, epoch: int, on_step: OnStep | None) -> dict[str, Any]:
    """One pass over the images in a random order; returns the epoch's figures."""
    started = perf_counter()
    recipe, device = task.recipe, next(task.network.parameters()).device
    steps = math.ceil(len(task.data) / recipe.batch_size)
    loss_sum, right, seen = torch.zeros((), device=device), torch.zeros((), device=device), 0
    for step, (x, labels) in enumerate(epoch_batches(task, epoch)):
        rate = recipe.learning_rate(epoch + step / steps)
        for group in task.optimizer.param_groups:
            group["lr"] = rate
        loss, correct = task.objective(task.network, x.to(device), labels.to(device))
        task.optimizer.zero_grad()
        loss.backward()
        task.optimizer.step()
        loss_sum, right, seen = loss_sum + loss.detach() * len(x), right + correct, seen + len(x)
        if step % CHECK_EVERY == 0 or step + 1 == steps:
            figures = {"loss": float(loss_sum) / seen, "accuracy": float(right) / seen, "lr": rate}
            check_loss(figures["loss"], epoch, step, rate, recipe)
            if on_step is not None:
                on_step({"epoch": epoch + 1, "epochs": recipe.epochs, "steps": steps, "step": step + 1, **figures})
    return {"epoch": epoch + 1, **figures, "seconds": round(perf_counter() - started, 3)}


def check_last_step(task: TrainingTask) -> None:
    """Raise an error where the last step lost the network, whose loss no further step shows."""
    recipe, device = task.recipe, next(task.network.parameters()).device
    x, labels = next(epoch_batches(task, recipe.epochs - 1))
    with temporary_seed(seed_for(task.seed, "noise", recipe.epochs)):
        loss, _ = task.objective(task.network, x.to(device), labels.to(device))
    steps = math.ceil(len(task.data) / recipe.batch_size)
    rate = recipe.learning_rate(recipe.epochs - 1 / steps)
    check_loss(float(loss.detach()), recipe.epochs - 1, steps - 1, rate, recipe)


def check_loss(loss: float, epoch: int, step: int, rate: float, recipe: Recipe) -> None:
    """Raise an error where the loss is no number, or one that no training comes back from."""
    if not loss < LARGEST_LOSS:
        raise DivergedError(divergence_message(loss, epoch, step, rate, recipe))


def epoch_batches(task: TrainingTask, epoch: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Batches (images in [0, 1], labels) of one epoch, in random order and augmented as the recipe says."""
    data, recipe = task.data, task.recipe
    draws = torch.Generator().manual_seed(seed_for(task.seed, "order", epoch))
    labels = data.labels if data.labels is not None else torch.zeros(len(data), dtype=torch.int64)
    for rows in torch.randperm(len(data), generator=draws).split(recipe.batch_size):
        x = data.images[rows]
        if recipe.crop:
            x = random_crop(x, recipe.crop, draws)
        if recipe.flip:
            x = random_flip(x, draws)
        yield as_float(x), labels[rows]


def classify(network: nn.Module, x: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Cross-entropy of a classifier's logits; an `Objective`."""
    logits = network(x)
    return F.cross_entropy(logits, labels), (logits.detach().argmax(1) == labels).sum()


def network_for(recipe: Recipe, seed: int) -> nn.Module:
    """A new network in training mode, initialised from `seed`, inside `Normalized` where the recipe has mean and std.

    >>> type(network_for(Recipe("cnn", {"filters": 2}), seed=0)).__name__
    'Sequential'
    """
    with temporary_seed(seed_for(seed, "weights", 0)):
        network = build(recipe.architecture, **recipe.options)
    if recipe.mean is not None and recipe.std is not None:
        network = Normalized(network, recipe.mean, recipe.std)
    return network.train()


def check_architecture_options(recipe: Recipe) -> None:
    """Raise an error where the recipe's network cannot be built; it takes no memory."""
    with torch.device("meta"):
        network_for(recipe, 0)


def limit_images(data: Dataset, images: int | None) -> Dataset:
    """So many images of the dataset, drawn once and in their original order; all of them for None."""
    return data if images is None or images >= len(data) else data.sample(images)


@torch.no_grad()
def dataset_logits(network: nn.Module, data: Dataset, batch_size: int = 500) -> Tensor:
    """Logits of every image, (N, K), on the CPU; the network should be in eval mode."""
    device = next(network.parameters()).device
    rows = range(0, len(data), batch_size)
    return torch.cat([network(data.batch(slice(i, i + batch_size)).to(device)).cpu() for i in rows])


def new_optimizer(network: nn.Module, recipe: Recipe) -> torch.optim.Optimizer:
    """The recipe's optimiser of all parameters of the network."""
    if recipe.optimizer == "adam":
        return torch.optim.Adam(network.parameters(), recipe.lr, weight_decay=recipe.weight_decay)
    return torch.optim.SGD(network.parameters(), recipe.lr, recipe.momentum, weight_decay=recipe.weight_decay)


def divergence_message(loss: float, epoch: int, step: int, rate: float, recipe: Recipe) -> str:
    """Where the loss stopped being a number that means anything, and what to try."""
    found = f"{loss:.3g}" if math.isfinite(loss) else "no longer a number"
    return (
        f"The loss is {found} (epoch {epoch + 1}, step {step + 1}, learning rate {rate:.3g}). Try a lower"
        f" learning rate (lr {recipe.lr / 10:.2g} instead of {recipe.lr:.2g}), standardised input (mean, std), or a"
        f" larger batch than {recipe.batch_size}."
    )
