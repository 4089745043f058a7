"""`dubium evaluate blurring | anomaly | mitigation | sanity RUN`."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dubium.cli._engine import Address, EngineName
from dubium.cli._options import parse_numbers
from dubium.errors import FileFormatError, OptionError, lookup

if TYPE_CHECKING:
    from torch import Tensor

app = typer.Typer(no_args_is_help=True, help="Judge attribution methods; a killed evaluation goes on where it stopped.")

Run = Annotated[str, typer.Argument(help="A posterior's folder, its name under DUBIUM_MODELS, or 'demo'.")]
Out = Annotated[Path, typer.Option(help="Where to write summary.json, tables and figures.")]
Data = Annotated[str | None, typer.Option(help="NAME, NAME:split, or a path; for 'demo', its own digits by default.")]
Methods = Annotated[
    str | None, typer.Option(help="Such as ua-backprop,ua-backprop:rescale=none,clue:vae=FOLDER; 'random' comes along.")
]
Kinds = Annotated[str, typer.Option(help="Of epistemic, aleatoric, total.")]
Images = Annotated[int | None, typer.Option(min=1, help="How many images; by default as the scale says.")]
Candidates = Annotated[int | None, typer.Option(min=1, help="Choose them from so many only.")]
Scale = Annotated[str, typer.Option(help="smoke, cpu or paper.")]
Seed = Annotated[int, typer.Option(help="Of everything that is drawn.")]
Threads = Annotated[int | None, typer.Option(min=1, help="Threads; the last digits depend on them.")]


@app.command()
def blurring(
    run: Run,
    out: Out,
    dataset: Data = None,
    methods: Methods = None,
    kinds: Kinds = "epistemic",
    images: Images = None,
    candidates: Candidates = None,
    scale: Scale = "cpu",
    fractions: Annotated[str | None, typer.Option(help="Of the pixels to blur: .02,.05.")] = None,
    step: Annotated[float | None, typer.Option(help="Between two sigmas, from 0 to 20.")] = None,
    search: Annotated[str, typer.Option(help="Sigma for the 'ranked' pixels, or for the 'whole' image.")] = "ranked",
    seed: Seed = 0,
    threads: Threads = None,
    engine: EngineName = "local",
    address: Address = None,
) -> None:
    """How much uncertainty goes when the pixels that are blamed for it are blurred: MURR and AUC-URR."""
    from dubium.cli.evaluation import loaded_job, show, watched
    from dubium.evaluation.protocols import blurring as blurring_protocol

    lookup("search", dict.fromkeys(("ranked", "whole")), search)
    with watched(threads, engine, address) as running:
        job = loaded_job(run, dataset, methods, kinds, scale, out, seed, running)
        changes = given(
            images=images, candidates=candidates, step=step, search=search, fractions=parse_numbers(fractions, float)
        )
        options = replace(blurring_protocol.options_for(scale, job.data), **changes)
        summary = blurring_protocol.evaluate_blurring(job, options)
    show(summary, out)


@app.command()
def anomaly(
    run: Run,
    out: Out,
    dataset: Data = None,
    methods: Methods = None,
    kinds: Kinds = "epistemic",
    images: Images = None,
    candidates: Candidates = None,
    scale: Scale = "cpu",
    box: Annotated[int | None, typer.Option(min=1, help="Side of the patch in pixels.")] = None,
    patches: Annotated[str | None, typer.Option(help="Dataset the patches come from; its training images.")] = None,
    masks: Annotated[Path | None, typer.Option(help="A .npy of (N, H, W): compare maps with these instead.")] = None,
    seed: Seed = 0,
    threads: Threads = None,
    engine: EngineName = "local",
    address: Address = None,
) -> None:
    """Whether a planted patch, or a mask of yours, is where the uncertainty is blamed on: IoU and ADA."""
    from dubium.cli.evaluation import loaded_job, other_split, show, watched
    from dubium.evaluation.protocols import anomaly as anomaly_protocol

    with watched(threads, engine, address) as running:
        job = loaded_job(run, dataset, methods, kinds, scale, out, seed, running)
        if masks is not None:
            count = images or len(job.data)
            job = replace(job, data=job.data.subset(slice(count)))
            summary = anomaly_protocol.evaluate_masks(job, read_masks(masks)[:count])
        else:
            options = replace(
                anomaly_protocol.options_for(scale), **given(images=images, candidates=candidates, box=box)
            )
            summary = anomaly_protocol.evaluate_anomaly(job, options, other_split(job.data, patches))
    show(summary, out)


@app.command()
def mitigation(
    run: Run,
    out: Out,
    dataset: Data = None,
    methods: Methods = None,
    kinds: Kinds = "epistemic",
    images: Annotated[int | None, typer.Option(min=2, help="Training images; by default as the scale says.")] = None,
    scale: Scale = "cpu",
    seeds: Annotated[int | None, typer.Option(min=1, help="How often each arm is trained.")] = None,
    epochs: Annotated[int | None, typer.Option(min=1, help="Of each training; the recipe's by default.")] = None,
    alpha: Annotated[float, typer.Option(help="Strength of the attention.")] = 0.2,
    normalisation: Annotated[str, typer.Option(help="softmax or unit.")] = "softmax",
    space: Annotated[str, typer.Option(help="latent, input or input-added.")] = "latent",
    explainer: Annotated[
        str, typer.Option(help="Maps of an ensemble trained on the same few images ('subset'), or of RUN ('run').")
    ] = "subset",
    seed: Seed = 0,
    threads: Threads = None,
    engine: EngineName = "local",
    address: Address = None,
) -> None:
    """Whether training with uncertainty maps as attention makes better networks: accuracy, NLL, ECE."""
    from dubium.cli.evaluation import loaded_job, other_split, show, watched
    from dubium.evaluation.mitigation import Attention
    from dubium.evaluation.protocols import mitigation as mitigation_protocol

    lookup("explainer", dict.fromkeys(("subset", "run")), explainer)
    with watched(threads, engine, address) as running:
        job = loaded_job(run, dataset, methods, kinds, scale, out, seed, running, split="train")
        options = mitigation_protocol.options_for(scale, job.data)
        recipe = options.recipe
        if epochs is not None:
            fallen = tuple(round(epochs * at / recipe.epochs) for at in recipe.milestones)
            recipe = recipe.changed(epochs=epochs, milestones=fallen)
        how = Attention(alpha, normalisation, space)  # type: ignore[arg-type]  # checked where used
        changes = given(images=images, seeds=seeds)
        options = replace(options, recipe=recipe, how=how, explainer=explainer, **changes)
        summary = mitigation_protocol.evaluate_mitigation(job, options, other_split(job.data, None))
    show(summary, out)


@app.command()
def sanity(
    run: Run,
    out: Out,
    dataset: Data = None,
    methods: Methods = None,
    kinds: Kinds = "epistemic",
    images: Images = None,
    candidates: Candidates = None,
    scale: Scale = "cpu",
    draws: Annotated[int | None, typer.Option(min=1, help="Of the posterior, to compare.")] = None,
    seed: Seed = 0,
    threads: Threads = None,
    engine: EngineName = "local",
    address: Address = None,
) -> None:
    """Whether maps change when weights are randomised, repeat themselves, and speak of few pixels."""
    from dubium.cli.evaluation import loaded_job, show, watched
    from dubium.evaluation.protocols import sanity as sanity_protocol

    with watched(threads, engine, address) as running:
        job = loaded_job(run, dataset, methods, kinds, scale, out, seed, running)
        options = replace(
            sanity_protocol.options_for(scale), **given(images=images, candidates=candidates, draws=draws)
        )
        summary = sanity_protocol.evaluate_sanity(job, options)
    show(summary, out)


def given(**values: Any) -> dict[str, Any]:
    """Those options that the user gave."""
    return {name: value for name, value in values.items() if value is not None}


def read_masks(path: Path) -> "Tensor":
    """Masks of zeros and others, one an image."""
    import numpy as np
    import torch

    try:
        array = np.load(path, allow_pickle=False)
    except (OSError, ValueError) as error:
        raise FileFormatError(f"{path} is not a .npy file of masks ({error}).") from error
    if not isinstance(array, np.ndarray) or array.ndim != 3:
        raise OptionError(f"{path} has shape {getattr(array, 'shape', None)}; masks are (N, H, W).")
    return torch.from_numpy(array != 0)
