"""Retraining on few images under attention, against no attention and random maps, over several seeds."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from torch import Tensor, nn

from dubium.data import Dataset
from dubium.errors import DivergedError, OptionError
from dubium.evaluation.figures.mitigation import mitigation_figures
from dubium.evaluation.mitigation import HIGHER_IS_BETTER, NO_ATTENTION, Attention, mitigation_arm
from dubium.evaluation.protocols.job import Job, all_maps, each, metric_name
from dubium.evaluation.statistics import mean
from dubium.evaluation.store import Store
from dubium.evaluation.summary import Measured, Summary
from dubium.training.attention import MITIGATION
from dubium.training.loop import fit, network_for
from dubium.training.recipe import Recipe
from dubium.training.recipes import RECIPES, sizes
from dubium.seeds import seed_for
from dubium.types import Kind

IMAGES = {"mnist": 500, "cifar-10": 1000, "svhn": 2000, "cifar-100": 4000}  # Sec. 5.2.2
MAPS = 50  # images explained at a time


@dataclass(frozen=True)
class MitigationOptions:
    """`explainer`: whose maps; "subset" (an ensemble trained on the same few images) or "run" (the posterior)."""

    images: int = 500
    seeds: int = 5
    recipe: Recipe = MITIGATION
    how: Attention = field(default_factory=Attention)
    explainer: str = "subset"
    test_images: int | None = None


def options_for(scale: str, data: Dataset) -> MitigationOptions:
    """The paper's; half its epochs for a CPU; next to nothing for a test."""
    known = RECIPES.get(data.name, {}).get("paper", MITIGATION)
    recipe = replace(MITIGATION, options=sizes("cnn3", data), mean=known.mean, std=known.std)
    if scale == "smoke":
        tiny = {**recipe.options, "filters": 4, "units": 16, "dropout": 0.1}
        recipe = recipe.changed(options=tiny, epochs=2, batch_size=16, milestones=(), lr=0.05)
        return MitigationOptions(24, 2, recipe, test_images=24)
    if scale == "cpu":
        recipe = recipe.changed(epochs=60, milestones=(15, 30, 45))
    return MitigationOptions(IMAGES.get(data.name, 500), 5, recipe)


def evaluate_mitigation(job: Job, options: MitigationOptions, test: Dataset) -> dict[str, Any]:
    """Train every arm with every seed on a few of the job's images, and test each on images it has not seen."""
    if job.data.labels is None or test.labels is None:
        raise OptionError(f"{job.data.name} has no labels, so that nothing can be trained or tested on it.")
    about = {"recipe": options.recipe.to_json(), "how": options.how.__dict__, "test": f"{test.name}:{test.split}"}
    settings = {**job.settings(), **options.__dict__, **about}
    del settings["seeds"]  # more may be added
    store = Store.open(job.out, settings)
    data = job.data.sample(options.images, seed=job.seed)
    test = test if options.test_images is None else test.sample(options.test_images, seed=job.seed)
    explained = (
        replace(job, posterior=_subset_ensemble(job, store, data, options)) if options.explainer == "subset" else job
    )
    arms: dict[str, tuple[str, Kind | None]] = {NO_ATTENTION: (NO_ATTENTION, None)}
    maps: dict[str, Tensor | None] = {NO_ATTENTION: None}
    for method_label, by_kind in all_maps(explained, store, data.batch(slice(None)), "explaining images", MAPS).items():
        for kind in job.kinds:
            label = f"{method_label}@{kind}"
            arms[label], maps[label] = (method_label, kind), by_kind[kind]
    folders = {
        label: label if kind is None else f"{_file_name(job, method)}@{kind}" for label, (method, kind) in arms.items()
    }
    items = [(label, seed) for seed in range(options.seeds) for label in arms]
    train = partial(_arm_values, store, data, maps, test, options, folders)
    values = dict(zip(items, each(job, train, items, "training arms"), strict=True))
    return _summary(job, options, settings, arms, values, data, maps)


def _arm_values(
    store: Store,
    data: Dataset,
    maps: Mapping[str, Tensor | None],
    test: Dataset,
    options: MitigationOptions,
    folders: Mapping[str, str],
    _job: Job,
    item: tuple[str, int],
) -> dict[str, Any]:
    label, seed = item
    compute = partial(_arm, data, maps[label], test, options, seed)
    return store.values(f"arm-{folders[label]}", f"seed-{seed}", compute)


def _arm(data: Dataset, maps: Tensor | None, test: Dataset, options: MitigationOptions, seed: int) -> dict[str, Any]:
    try:
        return dict(mitigation_arm(data, maps, test, recipe=options.recipe, how=options.how, seed=seed))
    except DivergedError as error:
        return {"diverged": str(error)}


def _summary(
    job: Job,
    options: MitigationOptions,
    settings: dict[str, Any],
    arms: dict[str, tuple[str, Kind | None]],
    values: dict[tuple[str, int], dict[str, Any]],
    data: Dataset,
    maps: dict[str, Tensor | None],
) -> dict[str, Any]:
    diverged = sorted({seed for (_, seed), found in values.items() if "diverged" in found})
    seeds = [seed for seed in range(options.seeds) if seed not in diverged]
    notes = [f"Seed {seed} is left out: an arm's loss was no longer a number." for seed in diverged]
    if not seeds:
        raise DivergedError(f"Training diverged with every seed. Try a lower learning rate than {options.recipe.lr}.")
    results: dict[str, dict[str, Measured]] = {}
    for label, (method, kind) in arms.items():
        for metric, higher in HIGHER_IS_BETTER.items():
            found = np.array([values[label, seed][metric] for seed in seeds])
            name = metric if kind is None else metric_name(metric, kind)
            results.setdefault(method, {})[name] = Measured(found, mean, found, higher)
    methods = [NO_ATTENTION, *(method.label for method in job.methods)]
    settings = {**settings, "seeds": options.seeds, "methods": methods}
    written = Summary("mitigation", settings, {"seed": seeds}, results, few=True, notes=notes).write(job.out)
    drawn = {label: found for label, found in maps.items() if found is not None}
    mitigation_figures(data, drawn, options.how, written["results"], job.out)
    return written


def _subset_ensemble(job: Job, store: Store, data: Dataset, options: MitigationOptions) -> list[nn.Module]:
    """As many networks as the posterior has, trained plainly on the few images."""
    members = range(len(job.posterior))
    return each(job, partial(_subset_member, store, data, options), members, "training the explainer")


def _subset_member(store: Store, data: Dataset, options: MitigationOptions, job: Job, member: int) -> nn.Module:
    seed = seed_for(job.seed, "explainer", member)
    network = network_for(options.recipe, seed)

    def train() -> dict[str, Tensor]:
        fit(network, data, options.recipe, seed=seed)
        return dict(network.state_dict())

    network.load_state_dict(store.tensors("explainer", f"member-{member}", train))
    return network.eval()


def _file_name(job: Job, label: str) -> str:
    return next(method.file_name for method in job.methods if method.label == label)
