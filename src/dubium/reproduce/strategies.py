"""Other ways to use doubt in training, each against the same thing with scores or maps that know nothing.

`weights`: more weight on doubtful images; its control shuffles the weights. `blur`: a copy of each image with its most
doubtful pixels blurred takes the image's place half of the time; its control blurs random pixels. `choice`: half of the
images are drawn, the others are chosen by the doubt of an ensemble trained on the first half; its control draws them.
Every seed has images of its own, the same ones for all strategies.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from dubium._explain import explain
from dubium.data import Dataset
from dubium.evaluation.metrics.blurring import pixel_ranks
from dubium.evaluation.metrics.calibration import predictive_metrics
from dubium.evaluation.metrics.gaussian_blur import gaussian_blur
from dubium.evaluation.metrics.scoring import scorer
from dubium.evaluation.protocols.evaluation import Evaluation, run_items, shard_slices
from dubium.evaluation.protocols.images import CHUNK
from dubium.evaluation.protocols.mitigation_arm import arm_measurements
from dubium.evaluation.shards import ShardName, ShardStore, arm_shard, file_name
from dubium.evaluation.summary import EvaluationSummary
from dubium.fingerprint import dataset_fingerprint
from dubium.folder_lock import own_folder
from dubium.reproduce.job import CONTROL, Job
from dubium.reproduce.mitigation import training_options
from dubium.reproduce.networks import open_data
from dubium.reproduce.study import AUTO, Study
from dubium.seeds import seed_for
from dubium.training.attention import mitigation_images
from dubium.training.loop import Objective, dataset_logits, fit, network_for
from dubium.training.recipe import Recipe

MEMBERS, POOL = 3, 2000
PASSES = 4  # of the method whose maps are used
BLURRED, SIGMA = 0.15, 3.0  # part of the pixels, and how much they are blurred
PLAIN = "plain"


class Trial(NamedTuple):
    """What a strategy gets: images to train on, more to choose from, and how to train."""

    data: Dataset
    pool: Dataset
    recipe: Recipe
    seed: int
    is_control: bool
    store: ShardStore | None = None  # where strategies share networks


def train_plainly(trial: Trial) -> nn.Module:
    """No use of doubt at all."""
    return train_on(trial, trial.data)


def train_with_weights(trial: Trial) -> nn.Module:
    """Weights from one half to three halves, by the rank of an image's epistemic score."""
    x = trial.data.batch(slice(None))
    if trial.is_control:
        ranks = torch.randperm(len(x), generator=generator_of(trial))
    else:
        ranks = scorer(data_ensemble(trial))(x).argsort().argsort()
    weights = 0.5 + ranks / max(1, len(x) - 1)
    planes = weights.to(x).view(-1, 1, 1, 1).expand(-1, 1, *x.shape[2:])
    return train_on(trial, replace(trial.data, images=torch.cat([x, planes], 1)), weighted_objective)


def train_with_blurred_pixels(trial: Trial) -> nn.Module:
    """Half of the time an image has its most doubtful pixels blurred."""
    x = trial.data.batch(slice(None))
    if trial.is_control:
        maps = torch.rand(len(x), *x.shape[2:], generator=generator_of(trial))
    else:
        found = explain(data_ensemble(trial), x, method=AUTO, kinds="epistemic", passes=PASSES)
        maps = found.maps["epistemic"]
    chosen = (pixel_ranks(maps) < round(BLURRED * maps[0].numel()))[:, None]
    blurred = torch.where(chosen, gaussian_blur(x, [SIGMA])[0], x)
    return train_on(trial, replace(trial.data, images=torch.cat([x, blurred], 1)), two_copies_objective)


def train_on_chosen_images(trial: Trial) -> nn.Module:
    """The second half of the images is chosen from a pool by epistemic score."""
    assert trial.data.labels is not None
    assert trial.pool.labels is not None
    half = len(trial.data) // 2
    first = trial.data.subset(slice(half))
    if trial.is_control:
        order = torch.randperm(len(trial.pool), generator=generator_of(trial))
    else:
        score = scorer(train_ensemble(trial, first))
        scores = torch.cat([score(trial.pool.batch(rows)) for rows in shard_slices(len(trial.pool), CHUNK)])
        order = scores.argsort(descending=True)
    second = trial.pool.subset(order[: len(trial.data) - half])
    assert first.labels is not None
    assert second.labels is not None
    together = torch.cat([first.images, second.images])
    return train_on(trial, replace(first, images=together, labels=torch.cat([first.labels, second.labels])))


STRATEGIES: Mapping[str, Callable[[Trial], nn.Module]] = {
    PLAIN: train_plainly,
    "weights": train_with_weights,
    "blur": train_with_blurred_pixels,
    "choice": train_on_chosen_images,
}


def generator_of(trial: Trial) -> torch.Generator:
    return torch.Generator().manual_seed(seed_for(trial.seed, "control", 0))


def train_on(trial: Trial, data: Dataset, objective: Objective | None = None) -> nn.Module:
    """A fresh network, the same first weights for all strategies of a seed."""
    assert data.labels is not None
    network = network_for(trial.recipe, trial.seed)
    images = mitigation_images(data.batch(slice(None)), data.labels)
    fit(network, images, trial.recipe, seed=trial.seed, objective=objective)
    return network.eval()


def train_ensemble(trial: Trial, data: Dataset) -> list[nn.Module]:
    """The networks whose doubt is used."""
    seeds = [seed_for(trial.seed, "explainer", member) for member in range(MEMBERS)]
    return [train_on(trial._replace(seed=seed), data) for seed in seeds]


def data_ensemble(trial: Trial) -> list[nn.Module]:
    """Networks trained on the trial's images; all strategies of a seed share them."""
    if trial.store is None:
        return train_ensemble(trial, trial.data)

    def train() -> dict[str, Tensor]:
        members = enumerate(train_ensemble(trial, trial.data))
        return {f"{index}/{name}": value for index, each in members for name, value in each.state_dict().items()}

    weights = trial.store.compute_tensors(ShardName("explainer", f"seed-{trial.seed}"), train)
    members = [network_for(trial.recipe, 0).eval() for _ in range(MEMBERS)]
    for index, network in enumerate(members):
        network.load_state_dict({name: weights[f"{index}/{name}"] for name in network.state_dict()})
    return members


def weighted_objective(network: nn.Module, stacked: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Cross-entropy times the weight of each image, which is its last channel."""
    x, weights = stacked[:, :-1], stacked[:, -1, 0, 0]
    logits = network(x)
    loss = (weights * F.cross_entropy(logits, labels, reduction="none")).mean()
    return loss, (logits.detach().argmax(1) == labels).sum()


def two_copies_objective(network: nn.Module, stacked: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Cross-entropy on one of the two copies of each image that are its channels, drawn anew each time."""
    x, other = stacked.chunk(2, 1)
    take_other = torch.rand(len(x), 1, 1, 1, device=x.device) < 0.5
    logits = network(torch.where(take_other, other, x))
    return F.cross_entropy(logits, labels), (logits.detach().argmax(1) == labels).sum()


def measure_strategies(study: Study, job: Job) -> dict[str, Any]:
    """Test accuracy and NLL of every strategy and control over the seeds."""
    train, test = (open_data(job.dataset, split, study.scale) for split in ("train", "test"))
    options = training_options(study, job, train)
    folder = study.folder / "evaluations" / f"strategies-{job.dataset}-{job.shared_digest(study.scale, {})}"
    fingerprints = {"data": dataset_fingerprint(train), "test data": dataset_fingerprint(test)}
    settings = {"images": options.images, "recipe": options.recipe.to_json(), **fingerprints}
    test = test if options.test_images is None else test.sample(options.test_images)
    first = int(job.options.get("first seed", 0))
    seeds = list(range(first, first + int(job.options["seeds"])))
    items = [(label, seed) for seed in seeds for label in job.methods]
    evaluation = Evaluation((), train, (), (), folder, on_step=study.on_step, executor=study.executor)
    with own_folder(folder):
        store = ShardStore.open(folder, settings)
        run = partial(run_trial, store, test, options.recipe, options.images)
        found = dict(zip(items, run_items(evaluation, run, items, job.name), strict=True))
        by_label = {label: [found[label, seed] for seed in seeds] for label in job.methods}
        measurements = {label: arm_measurements(values, None) for label, values in by_label.items()}
        settings |= {"dataset": job.dataset, "seeds": len(seeds), "first seed": first}
        summary = EvaluationSummary("strategies", settings, {"seed": seeds}, measurements, few_runs=True)
        return summary.write(Path(folder))


def run_trial(
    store: ShardStore, test: Dataset, recipe: Recipe, images: int, evaluation: Evaluation, item: tuple[str, int]
) -> dict[str, Any]:
    """Test results of one strategy and seed, computed or read."""
    label, seed = item
    assert test.labels is not None
    labels = test.labels

    def compute() -> dict[str, float]:
        order = torch.randperm(len(evaluation.data), generator=torch.Generator().manual_seed(seed))
        data, pool = (evaluation.data.subset(rows) for rows in (order[:images], order[images : images + POOL]))
        trial = Trial(data, pool, recipe, seed, label.endswith(CONTROL), store)
        network = STRATEGIES[label.removesuffix(CONTROL)](trial)
        return predictive_metrics(dataset_logits(network, test), labels)

    return store.compute_values(arm_shard(file_name(label), seed), compute)
