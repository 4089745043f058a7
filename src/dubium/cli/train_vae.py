"""`dubium train-vae`."""

from pathlib import Path
from typing import Annotated

import typer

from dubium.choices import SCALES
from dubium.cli._estimate import EstimateOnly, print_estimate
from dubium.cli._options import one_of
from dubium.cli._settings import parse_numbers
from dubium.cli.train import exit_if_skipped


def train_vae(
    dataset: Annotated[str, typer.Option(help="A dataset's name, a folder of images, or an array file.")],
    out: Annotated[Path | None, typer.Option(help="The VAE's folder; runs/vae-DATASET by default.")] = None,
    latent: Annotated[int | None, typer.Option(help="Numbers in a code; 2 for grey, 128 for colour images.")] = None,
    hidden: Annotated[str | None, typer.Option(help="Widths of a dense VAE: 512,256.")] = None,
    scale: Annotated[
        str,
        typer.Option(help="smoke is one epoch on a few images; cpu and paper are alike.", **one_of("scale", SCALES)),
    ] = "paper",
    epochs: int | None = None,
    batch_size: int | None = None,
    lr: float | None = None,
    weight_decay: float | None = None,
    images: Annotated[int | None, typer.Option(help="Train on so many images only.")] = None,
    input_shape: Annotated[
        str | None,
        typer.Option(metavar="C,H,W", help="Bring images to this shape; those of a folder may differ in size."),
    ] = None,
    seed: int = 0,
    threads: int | None = None,
    estimate: EstimateOnly = False,
) -> None:
    """Train the VAE that clue, delta-clue and clue-path need; the same command goes on after an interruption."""
    from dubium.cli._progress import training_bars
    from dubium.training import train_vae as train_a_vae
    from dubium.training.estimate import estimate_training
    from dubium.training.vae import evidence_bound, plan_vae

    options = {"latent": latent, "hidden": parse_numbers(hidden, int)}
    changes = {
        "options": {name: value for name, value in options.items() if value is not None},
        "epochs": epochs, "batch_size": batch_size, "lr": lr, "weight_decay": weight_decay, "images": images,
    }  # fmt: skip
    shape = parse_numbers(input_shape, int)
    folder = out or Path("runs") / f"vae-{Path(dataset).stem}"
    if estimate:
        planned = plan_vae(dataset, scale=scale, seed=seed, threads=threads, changes=changes, input_shape=shape)
        print_estimate(estimate_training(*planned, objective=evidence_bound))
        return
    with training_bars() as report:
        record = train_a_vae(
            dataset, folder, scale=scale, seed=seed, threads=threads, changes=changes, input_shape=shape, report=report
        )
    print(f"{folder}: {record['test_loss']:.2f} nats per test image")
    exit_if_skipped(record)
