"""Train with every strategy and its control, over several seeds, and test on images that were not seen.

Every seed has images of its own, the same ones for all strategies.
"""

from functools import partial
from pathlib import Path
from typing import Any

import torch

from dubium.data import Dataset
from dubium.evaluation.metrics.calibration import predictive_metrics
from dubium.evaluation.protocols.evaluation import Evaluation, run_items
from dubium.evaluation.protocols.mitigation_arm import arm_measurements
from dubium.evaluation.shards import ShardStore, arm_shard
from dubium.evaluation.summary import EvaluationSummary
from dubium.fingerprint import dataset_fingerprint
from dubium.folder_lock import own_folder
from dubium.reproduce.job import CONTROL, Job
from dubium.reproduce.mitigation import training_options
from dubium.reproduce.networks import open_data
from dubium.reproduce.strategies import POOL, STRATEGIES, Trial
from dubium.reproduce.study import Study
from dubium.training.loop import dataset_logits
from dubium.training.recipe import Recipe


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

    return store.compute_values(arm_shard(label.replace(": ", "__"), seed), compute)
