"""How each kind of posterior is trained: its recipe, what it keeps after each epoch, what is built at the end."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil
from pathlib import Path

import torch
from torch import Tensor, nn

from dubium.data import Dataset
from dubium.posteriors import SWAG, MCDropout, fit_laplace
from dubium.seeds import seed_for
from dubium.training.loop import OnEpoch, network_for
from dubium.training.plan import Plan
from dubium.training.recipe import Recipe
from dubium.training.recipes import with_dropout
from dubium.training.samplers import PlanBatches, TrainedNetwork, sghmc_posterior, vi_posterior
from dubium.types import Posterior


def list_networks(_plan: Plan, trained: Sequence[TrainedNetwork], _data: Dataset, _checkpoint: Path) -> Posterior:
    """The trained networks themselves."""
    return [each.network for each in trained]


@dataclass(frozen=True)
class Trainer:
    """The functions that train one kind of posterior; the defaults are those of a deep ensemble.

    Args:
        prepare_recipe: the recipe as this kind needs it; what would fail after the training must fail here.
        member_recipe: `(plan, index)`, the recipe of the network `index`.
        collector: what to keep after each epoch of a training, or None.
        build_posterior: `(plan, trained, data, checkpoint)`; a kind that samples from the trained network keeps its
            state in the file `checkpoint`.
    """

    prepare_recipe: Callable[[Recipe], Recipe] = lambda recipe: recipe
    member_recipe: Callable[[Plan, int], Recipe] = lambda plan, _index: plan.recipe
    collector: Callable[[Plan], OnEpoch | None] = lambda _plan: None
    build_posterior: Callable[[Plan, Sequence[TrainedNetwork], Dataset, Path], Posterior] = list_networks


def snapshot_recipe(plan: Plan, _index: int) -> Recipe:
    """One cosine cycle per member."""
    epochs = plan.members * ceil(plan.recipe.epochs / plan.members)
    return plan.recipe.changed(epochs=epochs, cycles=plan.members, milestones=())


def snapshot_collector(plan: Plan) -> OnEpoch:
    """Keep the weights at the end of each cycle."""
    length = snapshot_recipe(plan, 0).epochs // plan.members

    def on_epoch(epoch: int, network: nn.Module, kept: dict[str, Tensor]) -> None:
        if epoch % length == 0:
            state = network.state_dict().items()
            kept.update({f"{epoch // length - 1}.{name}": tensor.clone() for name, tensor in state})

    return on_epoch


def snapshot_posterior(plan: Plan, trained: Sequence[TrainedNetwork], _data: Dataset, _checkpoint: Path) -> Posterior:
    """The networks at the ends of the cycles."""
    networks = [network_for(plan.recipe, plan.seed) for _ in range(plan.members)]
    for index, network in enumerate(networks):
        state = {name: tensor for name, tensor in trained[0].kept.items() if name.startswith(f"{index}.")}
        network.load_state_dict({name.removeprefix(f"{index}."): tensor for name, tensor in state.items()})
    return [network.eval() for network in networks]


def hyper_recipe(plan: Plan, index: int) -> Recipe:
    """Learning rate, weight decay and dropout differ from member to member."""
    return vary_recipe(plan.recipe, plan.seed, index)


def vary_recipe(recipe: Recipe, seed: int, index: int) -> Recipe:
    """The recipe of a hyper-ensemble's member (Wenzel et al., 2020, arXiv:2006.13570); the first is not changed."""
    if index == 0:
        return recipe
    draws = torch.rand(3, generator=torch.Generator().manual_seed(seed_for(seed, "hyper", index))).tolist()
    options = dict(recipe.options)
    if recipe.architecture in ("cnn", "cnn3"):
        options["dropout"] = round(0.1 + 0.5 * draws[2], 3)
    lr = float(f"{recipe.lr * 10 ** (0.75 * draws[0] - 0.5):.3g}")
    return recipe.changed(lr=lr, weight_decay=float(f"{10 ** (2 * draws[1] - 5):.3g}"), options=options)


def mc_dropout_recipe(recipe: Recipe) -> Recipe:
    """The recipe with dropout in its network; an architecture without dropout layers is refused."""
    recipe = with_dropout(recipe)
    MCDropout(network_for(recipe, 0).eval(), 1)
    return recipe


def mc_dropout_posterior(plan: Plan, trained: Sequence[TrainedNetwork], _data: Dataset, _checkpoint: Path) -> Posterior:
    """Fixed dropout masks on the trained network."""
    return MCDropout(trained[0].network, plan.members, plan.seed)


def swag_recipe(plan: Plan, _index: int) -> Recipe:
    """A tail of epochs at a constant learning rate, to collect weights from."""
    if plan.recipe.tail:
        return plan.recipe
    tail = max(5, plan.recipe.epochs // 4)
    return plan.recipe.changed(epochs=plan.recipe.epochs + tail, tail=tail, tail_lr=plan.recipe.lr / 5)


def swag_collector(plan: Plan) -> OnEpoch:
    """Collect the moments of the weights over the tail."""
    recipe = swag_recipe(plan, 0)

    def on_epoch(epoch: int, network: nn.Module, kept: dict[str, Tensor]) -> None:
        if epoch > recipe.epochs - recipe.tail:
            swag = SWAG()
            if kept:
                swag.restore(kept)
            swag.collect(network)
            kept.update(swag.tensors())

    return on_epoch


def swag_posterior(plan: Plan, trained: Sequence[TrainedNetwork], data: Dataset, _checkpoint: Path) -> Posterior:
    """The Gaussian of the collected moments."""
    swag = SWAG()
    swag.restore(trained[0].kept)
    batches = PlanBatches(data, plan)
    return swag.posterior(trained[0].network, samples=plan.members, seed=plan.seed, batches=batches)


def laplace_posterior(plan: Plan, trained: Sequence[TrainedNetwork], data: Dataset, _checkpoint: Path) -> Posterior:
    """A Laplace approximation at the trained network."""
    return fit_laplace(trained[0].network, PlanBatches(data, plan), samples=plan.members, seed=plan.seed)


TRAINERS: dict[str, Trainer] = {
    "ensemble": Trainer(),
    "snapshot": Trainer(
        member_recipe=snapshot_recipe, collector=snapshot_collector, build_posterior=snapshot_posterior
    ),
    "hyper-ensemble": Trainer(member_recipe=hyper_recipe),
    "mc-dropout": Trainer(prepare_recipe=mc_dropout_recipe, build_posterior=mc_dropout_posterior),
    "swag": Trainer(member_recipe=swag_recipe, collector=swag_collector, build_posterior=swag_posterior),
    "laplace": Trainer(build_posterior=laplace_posterior),
    "sghmc": Trainer(build_posterior=sghmc_posterior),
    "vi": Trainer(build_posterior=vi_posterior),
}
"""One row for each kind of `dubium.posterior_kinds.POSTERIOR_KINDS`."""


def member_recipe(plan: Plan, index: int) -> Recipe:
    """The recipe of the network `index` of the plan."""
    return TRAINERS[plan.posterior].member_recipe(plan, index)
