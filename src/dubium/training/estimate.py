"""What a training will take, from a few of its steps: nothing is written."""

from math import ceil
from time import perf_counter

from torch import nn

from dubium.checks import count_text
from dubium.data import Dataset
from dubium.estimate import Estimate
from dubium.executor import thread_count
from dubium.posterior_kinds import POSTERIOR_KINDS
from dubium.seeds import seed_for, temporary_seed
from dubium.training.loop import (
    Objective,
    TrainingTask,
    classify,
    limit_images,
    network_for,
    new_optimizer,
    train_epoch,
)
from dubium.training.plan import Plan
from dubium.training.recipe import Recipe
from dubium.training.trainers import member_recipe

TIMED = 3  # steps, after one that warms up
COPIES = {"networks": 1, "gaussian": 3, "dropout": 1}  # of a network's weights in a posterior's files, by storage


def estimate_training(plan: Plan, data: Dataset, *, jobs: int = 1, objective: Objective = classify) -> Estimate:
    """From the beginning: epochs that a stopped run has done already are counted, too."""
    kind = POSTERIOR_KINDS.get(plan.posterior)  # None of a VAE
    recipe = plan.recipe if kind is None else member_recipe(plan, 0)
    images = len(limit_images(data, recipe.images))
    epochs = recipe.epochs * plan.runs + sampler_epochs(plan)
    with thread_count(plan.threads):
        network = network_for(recipe, plan.seed).to(plan.device)
        seconds = epochs * epoch_seconds(network, recipe, data, objective=objective)
    files = plan.members if kind is not None and kind.storage == "networks" else 1
    weights = sum(tensor.nbytes for tensor in network.state_dict().values())
    size = files * weights * (COPIES[kind.storage] if kind is not None else 1)
    passes = images * epochs
    length = count_text(recipe.epochs, "epoch")
    networks = f"{count_text(plan.runs, 'network')} to train on {count_text(images, 'image')} for {length}"
    seconds /= max(1, min(jobs, plan.runs))
    return Estimate(f"{networks} ({passes:,} forward passes)", images, passes, 0, seconds, size)


def sampler_epochs(plan: Plan) -> int:
    """Epochs of what starts from the trained network."""
    if plan.posterior == "sghmc":
        return max(1, plan.recipe.epochs // 3) + plan.members
    return plan.recipe.epochs if plan.posterior == "vi" else 0


def epoch_seconds(network: nn.Module, recipe: Recipe, data: Dataset, *, objective: Objective = classify) -> float:
    """Seconds of an epoch, from a few steps, which change the network; the global random state is not changed."""
    steps = ceil(len(limit_images(data, recipe.images)) / recipe.batch_size)

    def run_steps(count: int) -> float:
        few, start = data.subset(slice(count * recipe.batch_size)), perf_counter()
        train_epoch(TrainingTask(network, few, recipe, new_optimizer(network, recipe), objective, 0), 0, None)
        return perf_counter() - start  # the loss is read at the end, which waits for a GPU

    timed = min(TIMED, steps)
    with temporary_seed(seed_for(0, "noise", 0)):
        run_steps(1)
        return run_steps(timed) * steps / timed
