"""Train the VAEs of the CLUE methods."""

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from dubium.choices import SCALES
from dubium.data import Dataset, load
from dubium.data.fit import Preprocessing
from dubium.errors import OptionError, lookup
from dubium.executor import thread_count
from dubium.fingerprint import dataset_fingerprint
from dubium.folder_lock import own_folder
from dubium.models import VAE, load_vae, save_vae
from dubium.models.saved_vae import read_vae_record
from dubium.training.checkpoint import read_checkpoint
from dubium.training.loop import check_architecture_options, fit, network_for
from dubium.training.members import OnEvent
from dubium.training.metrics import write_metrics
from dubium.training.plan import Plan, preprocessing_to, start_or_continue
from dubium.training.recipes import VAE_RECIPES
from dubium.training.train import skipped_files

SMOKE_IMAGES = 256


def train_vae(
    dataset: str,
    out: Path | str,
    *,
    scale: str = "paper",
    seed: int = 0,
    threads: int | None = None,
    changes: Mapping[str, Any] | None = None,
    input_shape: Sequence[int] | None = None,
    report: OnEvent | None = None,
) -> dict[str, Any]:
    """Train a VAE on a dataset's training images and save it as the folder `out`, which `load_vae` reads.

    Grey images get the dense VAE, colour images the convolutional one. Killed at any moment, the same call continues
    from the last whole epoch and ends with the same weights.

    Args:
        scale: "paper" and "cpu" are the same; "smoke" is one epoch on a few images.
        changes: values of the recipe to replace; those of `options` are added to its options.
        input_shape: (C, H, W) that images are brought to, as `evaluate` does it; those of a folder may then differ in
            size. As they are by default.

    Returns:
        The training record: settings, the loss in nats per test image, and `skipped` as for `train`.
    """
    out, report = Path(out), report or (lambda _event: None)
    plan, data = plan_vae(dataset, scale=scale, seed=seed, threads=threads, changes=changes, input_shape=input_shape)
    with own_folder(out):
        return run_vae_plan(start_or_continue(out, plan), out, data, report, preprocessing_to(input_shape))


def plan_vae(
    dataset: str,
    *,
    scale: str = "paper",
    seed: int,
    threads: int | None,
    changes: Mapping[str, Any] | None,
    input_shape: Sequence[int] | None = None,
) -> tuple[Plan, Dataset]:
    """What `train_vae` is about to do, after its checks, and the training images."""
    lookup("scale", dict.fromkeys(SCALES), scale)
    data = load(dataset, "train", skip=True, preprocessing=preprocessing_to(input_shape))
    channels, height, width = data.shape
    if height != width:
        raise OptionError(
            f"The images of {dataset} are {height} x {width}; the VAEs are made for square ones. --input-shape "
            f"{channels},{height},{height} brings them to that (input_shape= in Python)."
        )
    changes = dict(changes or {})
    base = VAE_RECIPES[changes.pop("architecture", None) or ("vae-dense" if channels == 1 else "vae-conv")]
    options = {**base.options, "channels": channels, "size": height, **changes.pop("options", {})}
    base = base.changed(epochs=1, images=SMOKE_IMAGES) if scale == "smoke" else base
    recipe = base.changed(options=options, **changes)
    check_architecture_options(recipe)
    threads = threads or torch.get_num_threads()
    return Plan(dataset, "vae", 1, scale, recipe, seed, threads, dataset_fingerprint(data)), data


def run_vae_plan(
    plan: Plan, out: Path, data: Dataset, report: OnEvent, preprocessing: Preprocessing | None = None
) -> dict[str, Any]:
    """Train the VAE if it is not trained yet, and save it; returns the training record."""
    recipe, seed = plan.recipe, plan.seed
    if (out / "vae.json").exists():
        load_vae(out)  # which finds damage to the weights
        return dict(read_vae_record(out)["training"])
    with thread_count(plan.threads):
        vae = network_for(recipe, seed)
        assert isinstance(vae, VAE)
        checkpoint = out / "training" / "vae.safetensors"
        lines = list(read_checkpoint(checkpoint)[1]["history"]) if checkpoint.exists() else []

        def write_and_report(record: dict[str, Any]) -> None:
            lines.append(record)
            write_metrics(out, lines)
            report({"member": 0, "record": record})

        fit(
            vae,
            data,
            recipe,
            seed=seed,
            objective=evidence_bound,
            checkpoint=checkpoint,
            on_step=lambda figures: report({"member": 0, **figures}),
            on_record=write_and_report,
        )
        test = load(plan.dataset, "test", skip=True, preprocessing=preprocessing)
        record = {**plan.to_json(), "test_loss": mean_loss(vae, test), **skipped_files(data, test)}
    save_vae(vae, out, architecture=recipe.architecture, options=recipe.options, training=record)
    write_metrics(out, [*lines, {"test_loss": record["test_loss"]}])
    shutil.rmtree(out / "training", ignore_errors=True)
    return record


def evidence_bound(network: nn.Module, x: Tensor, _labels: Tensor) -> tuple[Tensor, Tensor]:
    """The negative evidence lower bound in nats per image: binary cross-entropy of the pixels and divergence."""
    image, mean, logvar = network(x)
    pixels = F.binary_cross_entropy(image, x, reduction="sum")
    divergence = -0.5 * (1 + logvar - mean.square() - logvar.exp()).sum()
    return (pixels + divergence) / len(x), torch.zeros((), device=x.device)


@torch.no_grad()
def mean_loss(vae: VAE, data: Dataset) -> float:
    """`evidence_bound` over all images of a dataset, in nats per image."""
    rows = [slice(start, start + 500) for start in range(0, len(data), 500)]
    losses = [evidence_bound(vae, data.batch(r), torch.empty(0))[0] * len(data.images[r]) for r in rows]
    return round(float(sum(losses)) / len(data), 4)
