"""What each kind of posterior gathers while its network trains, and what it makes of it."""

from collections.abc import Sequence
from pathlib import Path

from torch import Tensor, nn

from dubium.data import Dataset
from dubium.posteriors import SWAG, MCDropout, fit_laplace
from dubium.training.loop import OnEpoch, network_for
from dubium.training.plan import Plan
from dubium.training.samplers import Batches, sample
from dubium.types import Posterior

Trained = tuple[nn.Module, dict[str, Tensor]]
"""A network, and what was kept while it trained."""


def collector(plan: Plan) -> OnEpoch | None:
    """What to do after each epoch."""
    return {"snapshot": _keep_snapshots, "swag": _keep_moments}.get(plan.posterior, lambda _plan: None)(plan)


def _keep_snapshots(plan: Plan) -> OnEpoch:
    length = plan.recipe_of(0).epochs // plan.members

    def on_epoch(epoch: int, network: nn.Module, kept: dict[str, Tensor]) -> None:
        if epoch % length == 0:
            state = network.state_dict().items()
            kept.update({f"{epoch // length - 1}.{name}": tensor.clone() for name, tensor in state})

    return on_epoch


def _keep_moments(plan: Plan) -> OnEpoch:
    recipe = plan.recipe_of(0)

    def on_epoch(epoch: int, network: nn.Module, kept: dict[str, Tensor]) -> None:
        if epoch > recipe.epochs - recipe.tail:
            swag = SWAG()
            if kept:
                swag.restore(kept)
            swag.collect(network)
            kept.update(swag.tensors())

    return on_epoch


def finish(plan: Plan, trained: Sequence[Trained], data: Dataset, checkpoint: Path) -> Posterior:
    """The posterior of what was trained; kinds that go on from there keep their state in `checkpoint`."""
    network, kept = trained[0]
    if plan.posterior == "mc-dropout":
        return MCDropout(network, plan.members, plan.seed)
    if plan.posterior == "snapshot":
        return [_with_state(plan, kept, f"{index}.") for index in range(plan.members)]
    if plan.posterior == "swag":
        swag = SWAG()
        swag.restore(kept)
        return swag.posterior(network, samples=plan.members, seed=plan.seed, batches=Batches(data, plan))
    if plan.posterior == "laplace":
        return fit_laplace(network, Batches(data, plan), samples=plan.members, seed=plan.seed)
    if plan.posterior in ("sghmc", "vi"):
        return sample(plan, network, data, checkpoint)
    return [network for network, _ in trained]


def _with_state(plan: Plan, kept: dict[str, Tensor], prefix: str) -> nn.Module:
    network = network_for(plan.recipe, plan.seed)
    network.load_state_dict({name.removeprefix(prefix): t for name, t in kept.items() if name.startswith(prefix)})
    return network.eval()
