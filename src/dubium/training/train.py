"""Train a posterior on a dataset and save it."""

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch.nn import functional as F

from dubium.data import Dataset, load
from dubium.errors import DataNotFoundError, DivergedError, OptionError, lookup
from dubium.executor import Executor, in_turn, thread_count
from dubium.fingerprint import dataset_fingerprint
from dubium.folder_lock import own_folder
from dubium.posterior_kinds import POSTERIOR_KINDS
from dubium.posteriors import load_posterior, posterior_record, save_posterior
from dubium.posteriors.files.record import FILE
from dubium.posteriors.optional_imports import import_extra
from dubium.training.board import tensorboard_writer
from dubium.training.checkpoint import restore_state
from dubium.training.loop import check_architecture_options, dataset_logits, network_for
from dubium.training.members import OnEvent, divergence_file, member_checkpoint, read_divergence_note, train_members
from dubium.training.metrics import past_metrics, write_metrics
from dubium.training.plan import Plan, load_images, preprocessing_to, start_or_continue
from dubium.training.recipes import recipe_for
from dubium.training.samplers import TrainedNetwork
from dubium.training.trainers import TRAINERS, member_recipe
from dubium.types import Posterior


def train(
    dataset: str,
    out: Path | str,
    *,
    posterior: str = "ensemble",
    members: int = 5,
    scale: str = "cpu",
    seed: int = 0,
    jobs: int = 1,
    threads: int | None = None,
    device: str | None = None,
    changes: Mapping[str, Any] | None = None,
    input_shape: Sequence[int] | None = None,
    report: OnEvent | None = None,
    spread: Executor = in_turn,
) -> dict[str, Any]:
    """Train a posterior and save it as the folder `out`, which `load_posterior` reads.

    Killed at any moment, the same call continues from the last whole epoch and ends with the same weights. A member
    whose loss is no longer a number is left out.

    Args:
        dataset: a name or a path, as for `dubium.data.load`.
        posterior: one of `dubium.posterior_kinds.POSTERIOR_KINDS`.
        members: the number of networks of the posterior, trained or drawn.
        scale: "paper", "cpu" or "smoke".
        jobs: the number of networks that are trained at a time, in processes of their own.
        threads: of each process; by default the cores divided by the jobs.
        device: where to train; by default on a CUDA device if there is one.
        changes: values of the recipe to replace; those of `options` are added to its options.
        input_shape: (C, H, W) that images are brought to, as `evaluate` does it; those of a folder may then differ in
            size. As they are by default.
        report: called with what happens, see `OnEvent`.
        spread: where networks are trained when `jobs` is 1: in this process, or where `dubium.run.ray_cluster` says.

    Returns:
        The training record: settings, accuracies, members that diverged; `skipped` says which files of a folder could
        not be read, if any.
    """
    out, report = Path(out), report or (lambda _event: None)
    plan, data = plan_training(
        dataset, posterior=posterior, members=members, scale=scale, seed=seed, jobs=jobs, threads=threads,
        device=device, changes=changes, input_shape=input_shape,
    )  # fmt: skip
    with own_folder(out):
        return run_plan(start_or_continue(out, plan), out, data, Workers(jobs, spread), report)


def plan_training(
    dataset: str,
    *,
    posterior: str,
    members: int,
    scale: str,
    seed: int,
    jobs: int,
    threads: int | None,
    device: str | None,
    changes: Mapping[str, Any] | None,
    input_shape: Sequence[int] | None = None,
) -> tuple[Plan, Dataset]:
    """What `train` is about to do, after its checks, and the training images."""
    kind = lookup("posterior", POSTERIOR_KINDS, posterior)
    data = load(dataset, "train", skip=True, preprocessing=preprocessing_to(input_shape))
    check_has_labels(data)
    if kind.library is not None:
        import_extra(kind.library, kind.library)
    recipe = TRAINERS[posterior].prepare_recipe(recipe_for(data, scale, changes or {}))
    check_architecture_options(recipe)
    threads = threads or max(1, torch.get_num_threads() // max(1, min(jobs, members)))
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    digest = dataset_fingerprint(data)
    return Plan(dataset, posterior, members, scale, recipe, seed, threads, digest, device, input_shape), data


class Workers(NamedTuple):
    """How many networks are trained at a time in processes of their own, and where they are if it is one."""

    jobs: int
    spread: Executor


def run_plan(plan: Plan, out: Path, data: Dataset, workers: Workers, report: OnEvent) -> dict[str, Any]:
    """Train what is not trained yet, and save the posterior; returns the training record."""
    if (out / FILE).exists():
        load_posterior(out)  # which finds damage to the weights
        shutil.rmtree(out / "training", ignore_errors=True)
        return dict(posterior_record(out).training)
    with thread_count(plan.threads), tensorboard_writer(out / "tensorboard") as draw:
        lines = past_metrics(plan, out)

        def write_and_report(event: dict[str, Any]) -> None:
            if "record" in event:
                lines.append({"member": event["member"], **event["record"]})
                write_metrics(out, lines)
                draw(event["member"], event["record"])
            report(event)

        train_members(plan, out, data, workers.jobs, write_and_report, workers.spread)
        lines[:] = past_metrics(plan, out)  # in order, and with epochs that a killed worker could not report
        trained, diverged = load_trained_networks(plan, out)
        checkpoint = out / "training" / "sampler.safetensors"
        result = TRAINERS[plan.posterior].build_posterior(plan, trained, data, checkpoint)
        test = load_test_split(plan)
        record = {**plan.to_json(), "diverged": diverged, "test": measure_predictions(result, test)}
        record |= skipped_files(data, test)
        write_metrics(out, [*lines, {"test": record["test"], "diverged": diverged}])
        save_posterior(
            result,
            out,
            architecture=trained_architectures(plan, diverged),
            kind=plan.posterior,
            classes=data.classes,
            input_shape=data.shape,
            training=record,
        )
        shutil.rmtree(out / "training", ignore_errors=True)
        return record


def check_has_labels(data: Dataset) -> None:
    """Training needs labels of at least two classes."""
    if data.labels is None or len(data.classes) < 2:
        raise OptionError(f"{data.name} has no labels of two or more classes, so that nothing can be trained on it.")


def load_test_split(plan: Plan) -> Dataset | None:
    """The test images and labels of the plan's dataset; None if it has none."""
    try:
        data = load_images(plan, "test")
    except DataNotFoundError:
        return None
    return data if data.split == "test" and data.labels is not None else None


def skipped_files(*parts: Dataset | None) -> dict[str, list[str]]:
    """What a training record says of files that could not be read: nothing where all could."""
    found = list(dict.fromkeys(reason for data in parts if data is not None for reason in data.skipped))
    return {"skipped": found} if found else {}


def load_trained_networks(plan: Plan, out: Path) -> tuple[list[TrainedNetwork], dict[str, str]]:
    """The networks whose training ended, and for each of the others why it did not."""
    diverged = {i: divergence_file(out, i) for i in range(plan.runs) if divergence_file(out, i).exists()}
    reasons = {str(i): read_divergence_note(note) for i, note in diverged.items()}
    if len(reasons) == plan.runs:
        raise DivergedError(
            f"No network is left: {next(iter(reasons.values()))} Then use another folder, or delete {out}."
        )
    found = []
    for index in (index for index in range(plan.runs) if str(index) not in reasons):
        network = network_for(member_recipe(plan, index), plan.seed_of(index))
        state = restore_state(member_checkpoint(out, index), network)
        found.append(TrainedNetwork(network.eval().to(available_device(plan)), state.kept))
    return found, reasons


def available_device(plan: Plan) -> str:
    """The plan's device, or the CPU where it is a GPU of another machine."""
    return plan.device if torch.cuda.is_available() or not plan.device.startswith("cuda") else "cpu"


def trained_architectures(plan: Plan, diverged: Mapping[str, str]) -> Any:
    """The architecture of the trained networks, or a list with one per network where they differ."""
    kept = [index for index in range(plan.runs) if str(index) not in diverged]
    recipes = [member_recipe(plan, index) for index in kept]
    named = [{"name": r.architecture, "options": dict(r.options)} for r in recipes]
    return named[0] if all(one == named[0] for one in named) else named


@torch.no_grad()
def measure_predictions(posterior: Posterior, data: Dataset | None) -> dict[str, Any] | None:
    """Accuracy of each network and of the mean prediction, and the negative log likelihood of the latter.

    `guess` is the accuracy of always the most frequent class: who has learnt nothing has no more.
    """
    if data is None or data.labels is None:
        return None
    logits = torch.stack([dataset_logits(network, data) for network in posterior])
    probs = logits.double().softmax(-1).mean(0)
    right = [round(float((each.argmax(-1) == data.labels).float().mean()), 5) for each in (*logits, probs)]
    nll = float(F.nll_loss(probs.clamp_min(1e-12).log(), data.labels))
    guess = round(float(data.labels.bincount().max()) / len(data), 5)
    return {"images": len(data), "members": right[:-1], "accuracy": right[-1], "nll": round(nll, 5), "guess": guess}
