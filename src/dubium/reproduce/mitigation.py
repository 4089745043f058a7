"""Mitigation (Sec. 4 and Appendix D.2): arms with any maps, kind, strength and space, that share networks and maps.

As `dubium evaluate mitigation`, which has one strength and space in a run; here one untrained start, one explainer and
one set of maps serve all arms of all tables.
"""

from dataclasses import asdict, replace
from functools import partial
from typing import Any, NamedTuple

from torch import Tensor, nn

from dubium.data import Dataset
from dubium.errors import DivergedError
from dubium.evaluation.protocols.evaluation import Evaluation, run_items
from dubium.evaluation.protocols.images import compute_maps
from dubium.evaluation.protocols.mitigation import MAPS, mitigation_options
from dubium.evaluation.protocols.mitigation_arm import Attention, arm_measurements, train_arm
from dubium.evaluation.shards import ShardStore, arm_shard, explainer_shard, file_name
from dubium.evaluation.summary import EvaluationSummary
from dubium.kinds import KINDS
from dubium.reproduce.context import Context, open_methods
from dubium.reproduce.job import NONE, AttentionArm, Job
from dubium.reproduce.networks import SMOKE_MEMBERS, open_data
from dubium.seeds import seed_for
from dubium.training.loop import fit, network_for
from dubium.training.recipe import Recipe

MEMBERS = 5


class Trials(NamedTuple):
    """What every training of a job needs."""

    store: ShardStore
    data: Dataset
    test: Dataset
    recipe: Recipe
    maps: dict[str, dict[str, Tensor]]


def measure_mitigation(context: Context, job: Job) -> dict[str, Any]:
    """Train every arm with every seed, and test each on images it has not seen.

    Returns:
        The summary; `results[label]` has accuracy, nll and ece with Student's intervals over the seeds.
    """
    options = {name: value for name, value in job.options.items() if name != "seeds"}
    train, test = (open_data(job.dataset, split, context.scale) for split in ("train", "test"))
    chosen = mitigation_options(context.scale, train, **options)
    seeds = int(job.options.get("seeds", chosen.seeds))
    settings = {**chosen.settings(), "dataset": job.dataset, "explainer members": members_for(context)}
    folder = context.folder / "evaluations" / f"mitigation-{job.dataset}-{job.shared_digest(context.scale, {})}"
    store, data = ShardStore.open(folder, settings), train.sample(chosen.images)
    test = test if chosen.test_images is None else test.sample(chosen.test_images)
    evaluation = map_evaluation(context, job, store, data, chosen.recipe)
    maps = compute_maps(evaluation, store, data.batch(slice(None)), MAPS) if evaluation.methods else {}
    trials = Trials(store, data, test, chosen.recipe, maps)
    items = [(arm, seed) for seed in range(seeds) for arm in job.arms]
    found = dict(zip(items, run_items(evaluation, partial(train_trial, trials), items, job.name), strict=True))
    diverged = sorted({seed for (_, seed), values in found.items() if "diverged" in values})
    kept = [seed for seed in range(seeds) if seed not in diverged]
    if not kept:
        raise DivergedError(f"Training of {job.name} diverged with every seed: an arm's loss was no longer a number.")
    measurements = {arm.label: arm_measurements([found[arm, seed] for seed in kept], None) for arm in job.arms}
    notes = [f"Seed {seed} is left out: an arm's loss was no longer a number." for seed in diverged]
    settings |= {"seeds": seeds, "arms": [asdict(arm) for arm in job.arms]}
    summary = EvaluationSummary("mitigation", settings, {"seed": kept}, measurements, few_runs=True, notes=notes)
    return summary.write(folder)


def members_for(context: Context) -> int:
    """Networks of the ensemble whose maps are the attention."""
    return SMOKE_MEMBERS if context.scale == "smoke" else MEMBERS


def map_evaluation(context: Context, job: Job, store: ShardStore, data: Dataset, recipe: Recipe) -> Evaluation:
    """An ensemble trained plainly on the few images, with the methods whose maps the arms use."""
    texts = tuple(dict.fromkeys(arm.method for arm in job.arms if arm.method != NONE))
    methods = open_methods(context, replace(job, methods=texts), data.shape[0])
    evaluation = Evaluation((), data, methods, KINDS, store.folder, on_step=context.on_step, executor=context.executor)
    if not methods:
        return evaluation
    train = partial(train_member, store, data, recipe)
    members = run_items(evaluation, train, range(members_for(context)), f"{job.name}: training the explainer")
    return replace(evaluation, posterior=members)


def train_member(store: ShardStore, data: Dataset, recipe: Recipe, _evaluation: Evaluation, member: int) -> nn.Module:
    """One network of the explaining ensemble, trained or read."""
    seed = seed_for(0, "explainer", member)
    network = network_for(recipe, seed)

    def train() -> dict[str, Tensor]:
        fit(network, data, recipe, seed=seed)
        return dict(network.state_dict())

    network.load_state_dict(store.compute_tensors(explainer_shard(member), train))
    return network.eval()


def train_trial(trials: Trials, _evaluation: Evaluation, item: tuple[AttentionArm, int]) -> dict[str, Any]:
    """Test results of one arm and seed, computed or read; what went wrong where training diverged."""
    arm, seed = item
    maps = None if arm.method == NONE else trials.maps[arm.method][arm.kind]
    attention = Attention(arm.alpha, arm.normalisation, arm.space)

    def compute() -> dict[str, Any]:
        try:
            found = train_arm(trials.data, maps, trials.test, recipe=trials.recipe, attention=attention, seed=seed)
        except DivergedError as error:
            return {"diverged": str(error)}
        return dict(found)

    return trials.store.compute_values(arm_shard(arm_folder(arm), seed), compute)


def arm_folder(arm: AttentionArm) -> str:
    """A name that tells arms apart by what they do, not by their label."""
    if arm.method == NONE:
        return NONE
    return file_name(f"{arm.method}@{arm.kind}-{arm.alpha:g}-{arm.normalisation}-{arm.space}")
