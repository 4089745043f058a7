"""`dubium train`."""

from pathlib import Path
from typing import Annotated, Any

import typer

from dubium.choices import DATASETS, SCALES
from dubium.cli._engine import Address, EngineName, device_for, executor_for, threads_for
from dubium.cli._estimate import EstimateOnly, print_estimate
from dubium.cli._options import one_of
from dubium.cli._settings import parse_numbers
from dubium.cli._tables import exit_with_skipped
from dubium.errors import OptionError
from dubium.option_text import parse_options
from dubium.posterior_kinds import POSTERIOR_KINDS

RECIPE = "Recipe"


def train(
    dataset: Annotated[str, typer.Option(help=f"{', '.join(DATASETS)}, or a folder of images, or an .npz file.")],
    out: Annotated[Path | None, typer.Option(help="The run's folder; runs/DATASET-KIND-SCALE by default.")] = None,
    kind: Annotated[
        str,
        typer.Option(help=f"Of posterior: {', '.join(POSTERIOR_KINDS)}.", **one_of("kind", list(POSTERIOR_KINDS))),
    ] = "ensemble",
    posterior: Annotated[
        str | None, typer.Option(hidden=True, help="The old name of --kind.", **one_of("kind", list(POSTERIOR_KINDS)))
    ] = None,
    members: Annotated[int, typer.Option(help="Networks in the posterior, trained or drawn.")] = 5,
    scale: Annotated[str, typer.Option(help=f"{', '.join(SCALES)}.", **one_of("scale", SCALES))] = "cpu",
    seed: int = 0,
    jobs: Annotated[int, typer.Option(help="Members trained at a time, each in a process of its own.")] = 1,
    threads: Annotated[int | None, typer.Option(help="Threads a process; by default the cores over the jobs.")] = None,
    device: Annotated[str | None, typer.Option(help="cpu or cuda; cuda by default where there is one.")] = None,
    engine: EngineName = "local",
    address: Address = None,
    estimate: EstimateOnly = False,
    architecture: Annotated[str | None, typer.Option(rich_help_panel=RECIPE)] = None,
    option: Annotated[
        list[str] | None, typer.Option(help="An option of the architecture, as name=value.", rich_help_panel=RECIPE)
    ] = None,
    epochs: Annotated[int | None, typer.Option(rich_help_panel=RECIPE)] = None,
    batch_size: Annotated[int | None, typer.Option(rich_help_panel=RECIPE)] = None,
    optimizer: Annotated[str | None, typer.Option(help="sgd or adam.", rich_help_panel=RECIPE)] = None,
    lr: Annotated[float | None, typer.Option(help="Learning rate at the start.", rich_help_panel=RECIPE)] = None,
    momentum: Annotated[float | None, typer.Option(rich_help_panel=RECIPE)] = None,
    weight_decay: Annotated[float | None, typer.Option(rich_help_panel=RECIPE)] = None,
    milestones: Annotated[
        str | None, typer.Option(help="Epochs after which the learning rate falls: 30,60,90.", rich_help_panel=RECIPE)
    ] = None,
    gamma: Annotated[float | None, typer.Option(help="What it is multiplied with.", rich_help_panel=RECIPE)] = None,
    cycles: Annotated[
        int | None, typer.Option(help="Cosine cycles instead; 0 for none.", rich_help_panel=RECIPE)
    ] = None,
    tail: Annotated[int | None, typer.Option(help="Last epochs at --tail-lr.", rich_help_panel=RECIPE)] = None,
    tail_lr: Annotated[float | None, typer.Option(rich_help_panel=RECIPE)] = None,
    crop: Annotated[int | None, typer.Option(help="Random crops: pixels of padding.", rich_help_panel=RECIPE)] = None,
    flip: Annotated[bool | None, typer.Option(help="Random mirror images.", rich_help_panel=RECIPE)] = None,
    images: Annotated[int | None, typer.Option(help="Train on so many images only.", rich_help_panel=RECIPE)] = None,
    input_shape: Annotated[
        str | None,
        typer.Option(
            metavar="C,H,W",
            help="Bring images to this shape; those of a folder may differ in size.",
            rich_help_panel=RECIPE,
        ),
    ] = None,
    mean: Annotated[
        str | None, typer.Option(help="Of the channels: .5,.4,.3, or one for all.", rich_help_panel=RECIPE)
    ] = None,
    std: Annotated[str | None, typer.Option(help="Of the channels.", rich_help_panel=RECIPE)] = None,
) -> None:
    """Train a posterior; the same command goes on where an interrupted one stopped."""
    if posterior is not None:
        typer.echo("dubium: --posterior is now called --kind here; elsewhere it names networks of yours.", err=True)
        kind = posterior
    changes = {
        "architecture": architecture, "options": parse_options(option or ()), "epochs": epochs,
        "batch_size": batch_size, "optimizer": optimizer, "lr": lr, "momentum": momentum, "weight_decay": weight_decay,
        "milestones": parse_numbers(milestones, int), "gamma": gamma, "cycles": cycles, "tail": tail,
        "tail_lr": tail_lr, "crop": crop, "flip": flip, "images": images, "mean": parse_numbers(mean, float),
        "std": parse_numbers(std, float),
    }  # fmt: skip
    if out is not None:
        from dubium.run.sources import refuse_dataset_folder

        refuse_dataset_folder(out, dataset)
    folder = out or Path("runs") / f"{Path(dataset).stem}-{kind}-{scale}"
    if jobs > 1 and engine != "local":
        raise OptionError(f"--jobs {jobs} is for --engine local; a cluster trains as many members as it has cores for.")
    threads = threads_for(engine, threads)
    from dubium.cli._progress import training_bars
    from dubium.training import train as train_posterior
    from dubium.training.estimate import estimate_training
    from dubium.training.train import plan_training

    settings: dict[str, Any] = {
        "posterior": kind, "members": members, "scale": scale, "seed": seed, "jobs": jobs, "threads": threads,
        "changes": changes, "input_shape": parse_numbers(input_shape, int),
    }  # fmt: skip
    if estimate:
        here = device_for("local", device)
        print_estimate(estimate_training(*plan_training(dataset, **settings, device=here), jobs=jobs))
        return
    with executor_for(engine, address, threads) as executor, training_bars() as report:
        there = device_for(engine, device)  # a cluster must have been joined to be asked for its GPUs
        record = train_posterior(dataset, folder, **settings, device=there, report=report, spread=executor)
    print(f"{folder}: {describe_training(record)}")
    exit_if_skipped(record)


def exit_if_skipped(record: dict[str, Any]) -> None:
    """Name the files of a folder that could not be read, if any, and exit with 1."""
    if record.get("skipped"):
        exit_with_skipped([{"reason": reason} for reason in record["skipped"]], quiet=False)


def describe_training(record: dict[str, Any]) -> str:
    """What a training record says, in a line."""
    left_out = f", {len(record['diverged'])} left out" if record["diverged"] else ""
    if record["test"] is None:
        return f"{record['posterior']} of {record['members']}{left_out}; no test images"
    test = record["test"]
    each = f"{min(test['members']):.2%} to {max(test['members']):.2%} each"
    words = f"{test['accuracy']:.2%} of {test['images']} test images together, {each}{left_out}"
    if test["accuracy"] > test.get("guess", 0):
        return words
    return f"{words}. Nothing was learnt: always the most frequent class is as good. Try more --epochs or another --lr"
