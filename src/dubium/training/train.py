"""From a dataset's name to a saved posterior."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional as F

from dubium.data import Dataset, load
from dubium.errors import DataNotFoundError, DivergedError, OptionError, lookup
from dubium.executor import Executor, in_turn, thread_count
from dubium.posteriors import MCDropout, posterior_record, save_posterior
from dubium.posteriors.extras import require
from dubium.posteriors.record import FILE
from dubium.training import checkpoint as checkpoints
from dubium.training.board import board
from dubium.training.kinds import Trained, finish
from dubium.training.loop import network_for, predict
from dubium.training.members import Report, checkpoint_of, diverged_note, train_members
from dubium.training.metrics import past_metrics, write_metrics
from dubium.training.plan import KINDS, Plan, fingerprint, start_or_continue
from dubium.training.recipe import Recipe
from dubium.training.recipes import recipe_for, with_dropout
from dubium.types import Posterior

LIBRARIES = {
    "laplace": "laplace",
    "sghmc": "posteriors",
    "vi": "posteriors",
}  # the module, and the extra that brings it


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
    report: Report | None = None,
    spread: Executor = in_turn,
) -> dict[str, Any]:
    """Train a posterior and save it as the folder `out`, which `load_posterior` reads.

    Killed at any moment, the same call continues from the last whole epoch and ends with the same weights. A member
    whose loss is no longer a number is left out.

    Args:
        dataset: a name or a path, as for `dubium.data.load`.
        members: how many networks the posterior has, trained or drawn.
        scale: "paper", "cpu" or "smoke".
        device: where to train; by default on a CUDA device if there is one.
        changes: values of the recipe to replace; those of `options` are added to its options.
        spread: where networks are trained; `dubium.run.ray_cluster` gives another. With `jobs` above 1, in processes.

    Returns:
        The training record: settings, accuracies, members that diverged.
    """
    out, report = Path(out), report or (lambda _event: None)
    lookup("posterior", dict.fromkeys(KINDS), posterior)
    data = labelled(load(dataset, "train"))
    recipe = possible(posterior, recipe_for(data, scale, changes or {}))
    threads = threads or max(1, torch.get_num_threads() // max(1, min(jobs, members)))
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    plan = Plan(dataset, posterior, members, scale, recipe, seed, threads, fingerprint(data), device)
    plan = start_or_continue(out, plan)
    if (out / FILE).exists():
        shutil.rmtree(out / "training", ignore_errors=True)
        return dict(posterior_record(out).training)
    with thread_count(plan.threads), board(out / "tensorboard") as draw:
        lines = past_metrics(plan, out)

        def write_and_report(event: dict[str, Any]) -> None:
            if "record" in event:
                lines.append({"member": event["member"], **event["record"]})
                write_metrics(out, lines)
                draw(event["member"], event["record"])
            report(event)

        train_members(plan, out, data, jobs, write_and_report, spread)
        lines[:] = past_metrics(plan, out)  # in order, and with what a killed worker did not live to report
        finished, diverged = trained(plan, out)
        result = finish(plan, finished, data, out / "training" / "sampler.safetensors")
        record = {**plan.to_json(), "diverged": diverged, "test": evaluate(result, held_out(dataset))}
        write_metrics(out, [*lines, {"test": record["test"], "diverged": diverged}])
        save_posterior(
            result,
            out,
            architecture=architectures(plan, diverged),
            kind=plan.posterior,
            classes=data.classes,
            input_shape=data.shape,
            training=record,
        )
        shutil.rmtree(out / "training", ignore_errors=True)
        return record


def possible(posterior: str, recipe: Recipe) -> Recipe:
    """The recipe as this kind of posterior needs it; what would fail after training fails now."""
    if posterior in LIBRARIES:
        require(LIBRARIES[posterior], LIBRARIES[posterior])
    if posterior == "mc-dropout":
        recipe = with_dropout(recipe)
        MCDropout(network_for(recipe, 0).eval(), 1)
    return recipe


def labelled(data: Dataset) -> Dataset:
    """Training needs labels of at least two classes."""
    if data.labels is None or len(data.classes) < 2:
        raise OptionError(f"{data.name} has no labels of two or more classes, so that nothing can be trained on it.")
    return data


def held_out(dataset: str) -> Dataset | None:
    """The test images, if the dataset tells them from the training images."""
    try:
        data = load(dataset, "test")
    except DataNotFoundError:
        return None
    return data if data.split == "test" and data.labels is not None else None


def trained(plan: Plan, out: Path) -> tuple[list[Trained], dict[str, str]]:
    """Every network that was trained to its end, and why the others were not."""
    diverged = {i: diverged_note(out, i) for i in range(plan.runs) if diverged_note(out, i).exists()}
    reasons = {str(i): json.loads(note.read_text())["message"] for i, note in diverged.items()}
    if len(reasons) == plan.runs:
        raise DivergedError(
            f"No network is left: {next(iter(reasons.values()))} Then use another folder, or delete {out}."
        )
    found = []
    for index in (index for index in range(plan.runs) if str(index) not in reasons):
        network = network_for(plan.recipe_of(index), plan.seed_of(index))
        progress = checkpoints.restore(checkpoint_of(out, index), network)
        found.append((network.eval().to(device_here(plan)), progress.kept))
    return found, reasons


def device_here(plan: Plan) -> str:
    """The networks may have been trained on another machine's GPU."""
    return plan.device if torch.cuda.is_available() or not plan.device.startswith("cuda") else "cpu"


def architectures(plan: Plan, diverged: Mapping[str, str]) -> Any:
    """What the networks are built from; one for each only where they differ."""
    kept = [index for index in range(plan.runs) if str(index) not in diverged]
    named = [{"name": r.architecture, "options": dict(r.options)} for r in map(plan.recipe_of, kept)]
    return named[0] if all(one == named[0] for one in named) else named


@torch.no_grad()
def evaluate(posterior: Posterior, data: Dataset | None) -> dict[str, Any] | None:
    """Accuracy of each network and of their mean prediction, and its negative log likelihood."""
    if data is None or data.labels is None:
        return None
    logits = torch.stack([predict(network, data) for network in posterior])
    probs = logits.double().softmax(-1).mean(0)
    right = [round(float((each.argmax(-1) == data.labels).float().mean()), 5) for each in (*logits, probs)]
    nll = float(F.nll_loss(probs.clamp_min(1e-12).log(), data.labels))
    return {"images": len(data), "members": right[:-1], "accuracy": right[-1], "nll": round(nll, 5)}
