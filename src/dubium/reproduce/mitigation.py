"""Mitigation (Sec. 4 and Appendix D.2): arms with any maps, kind, strength and space, that share networks and maps.

As `dubium evaluate mitigation`, which has one strength and space in a run; here one untrained start, one explainer and
one set of maps serve all arms of all tables.
"""

from collections.abc import Mapping
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from dubium.data import Dataset
from dubium.errors import DivergedError
from dubium.evaluation.protocols import PROTOCOLS
from dubium.evaluation.protocols.evaluation import Evaluation, run_items
from dubium.evaluation.protocols.images import compute_maps
from dubium.evaluation.protocols.mitigation import MAPS, MitigationOptions, mitigation_options, train_explainer
from dubium.evaluation.protocols.mitigation_arm import Attention, arm_measurements, train_arm
from dubium.evaluation.shards import ShardStore, arm_shard, file_name
from dubium.evaluation.summary import EvaluationSummary
from dubium.fingerprint import dataset_fingerprint
from dubium.folder_lock import own_folder
from dubium.kinds import KINDS
from dubium.registry import UA_BACKPROP
from dubium.reproduce.job import NONE, SEEDS, AttentionArm, Job
from dubium.reproduce.networks import open_data
from dubium.reproduce.settings import NETWORK
from dubium.reproduce.study import Study, open_methods
from dubium.training.recipe import Recipe
from dubium.types import Kind

MEMBERS = 5
RECIPE = ("batch_size", "lr", "mean", "std")  # options of a job that change the recipe


class Trials(NamedTuple):
    """What every training of a job needs."""

    store: ShardStore
    data: Dataset
    test: Dataset
    recipe: Recipe
    maps: dict[str, dict[str, Tensor]]


def measure_mitigation(study: Study, job: Job) -> dict[str, Any]:
    """Train every arm with every seed, and test each on images it has not seen.

    Returns:
        The summary; `results[label]` has accuracy, nll and ece with Student's intervals over the seeds.
    """
    train, test = (open_data(job.dataset, split, study.scale) for split in ("train", "test"))
    options = training_options(study, job, train)
    first = int(job.options.get("first seed", 0))
    seeds = range(first, first + int(job.options.get("seeds", options.seeds)))
    folder = study.folder / "evaluations" / f"mitigation-{job.dataset}-{job.shared_digest(study.scale, {})}"
    evaluation = arm_evaluation(study, job, train.sample(options.images), folder)
    settings = arm_settings(job, evaluation, options, dataset_fingerprint(test))
    test = test if options.test_images is None else test.sample(options.test_images)
    with own_folder(folder):
        store = ShardStore.open(folder, settings)
        maps = arm_maps(evaluation, store, options.recipe, members_for(job))
        trials = Trials(store, evaluation.data, test, options.recipe, maps)
        items = [(arm, seed) for seed in seeds for arm in job.arms]
        values = run_items(evaluation, partial(train_trial, trials), items, job.name)
        settings |= {"seeds": len(seeds), "first seed": first, "arms": [asdict(arm) for arm in job.arms]}
        return summarise_arms(job, settings, dict(zip(items, values, strict=True))).write(folder)


def summarise_arms(
    job: Job, settings: dict[str, Any], found: Mapping[tuple[AttentionArm, int], Mapping[str, Any]]
) -> EvaluationSummary:
    """Metrics of every arm over the seeds; a seed with which any arm diverged is left out for all."""
    seeds = list(dict.fromkeys(seed for _, seed in found))
    diverged = sorted({seed for (_, seed), values in found.items() if "diverged" in values})
    kept = [seed for seed in seeds if seed not in diverged]
    if not kept:
        raise DivergedError(f"Training of {job.name} diverged with every seed: an arm's loss was no longer a number.")
    by_arm = {arm.label: [dict(found[arm, seed]) for seed in kept] for arm in job.arms}
    measurements = {label: arm_measurements(values, None) for label, values in by_arm.items()}
    notes = [f"Seed {seed} is left out: an arm's loss was no longer a number." for seed in diverged]
    return EvaluationSummary("mitigation", settings, {"seed": kept}, measurements, few_runs=True, notes=notes)


def training_options(study: Study, job: Job, data: Dataset) -> MitigationOptions:
    """The protocol's options at this scale with the job's changes, of which some change the recipe."""
    given = {name: value for name, value in job.options.items() if name not in (*SEEDS, *RECIPE, NETWORK, "members")}
    options = mitigation_options(study.scale, data, **given)
    changes = {name: job.options[name] for name in RECIPE if name in job.options}
    if NETWORK in job.options:
        changes["options"] = {**options.recipe.options, **job.options[NETWORK]}
    if not changes:
        return options
    return replace(options, recipe=options.recipe.changed(**changes, milestones=(), cycles=1))


def arm_settings(
    job: Job, evaluation: Evaluation, options: MitigationOptions, test: Mapping[str, Any]
) -> dict[str, Any]:
    """What shards of a folder depend on; `how` is each arm's own."""
    return {
        **{name: value for name, value in options.settings().items() if name != "how"},
        "dataset": evaluation.data.name,
        "data": dataset_fingerprint(evaluation.data),
        "test data": dict(test),
        "methods": evaluation.method_fingerprints(),
        "explainer members": members_for(job),
        "protocol": {"name": "mitigation", "version": PROTOCOLS["mitigation"].version},
    }


def members_for(job: Job) -> int:
    """Networks of the ensemble whose maps are the attention."""
    return int(job.options.get("members", MEMBERS))


def arm_evaluation(study: Study, job: Job, data: Dataset, folder: Path) -> Evaluation:
    """The few training images, and the methods whose maps the arms use; its posterior is trained later."""
    texts = tuple(dict.fromkeys(arm.method for arm in job.arms if arm.method != NONE))
    methods = open_methods(study, replace(job, methods=texts), data.shape[0])
    return Evaluation((), data, methods, KINDS, folder, on_step=study.on_step, executor=study.executor)


def arm_maps(
    evaluation: Evaluation, store: ShardStore, recipe: Recipe, count: int, images: int | None = None
) -> dict[str, dict[str, Tensor]]:
    """Maps of the first training images by method and kind, of `count` networks trained plainly on all of them."""
    if not evaluation.methods:
        return {}
    members = train_explainer(evaluation, store, evaluation.data, recipe, count)
    x = evaluation.data.batch(slice(images))
    maps: dict[str, dict[str, Tensor]] = {}
    for method in evaluation.methods:
        kinds: tuple[Kind, ...] = KINDS if method.method == UA_BACKPROP else ("epistemic",)  # as the arms need
        alone = replace(evaluation, posterior=members, methods=(method,), kinds=kinds)
        maps |= compute_maps(alone, store, x, MAPS)
    return maps


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
    return f"{file_name(arm.method)}_{arm.kind}-{arm.alpha:g}-{arm.normalisation}-{arm.space}"
