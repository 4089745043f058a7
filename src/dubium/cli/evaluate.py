"""`dubium evaluate PROTOCOL RUN`: a command for each of `dubium.protocols.PROTOCOLS`, with its own options."""

import re
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dubium.choices import DEMO
from dubium.cli._evaluation import evaluate_all_and_print, evaluate_and_print
from dubium.cli._evaluation_options import SharedOptions, with_shared_options
from dubium.cli._options import ManyWeights
from dubium.cli._settings import parse_numbers, split_words
from dubium.errors import OptionError
from dubium.protocols import TOGETHER

if TYPE_CHECKING:
    from torch import Tensor

app = typer.Typer(no_args_is_help=True, help="Judge attribution methods; a killed evaluation goes on where it stopped.")


def check_count(text: str) -> int:
    """A number of images; elsewhere `--images` names files."""
    if not re.fullmatch(r"[1-9]\d*", text):
        raise OptionError(
            f"--images is {text!r}; here it is how many images, a whole number above 0. A folder of images is named by "
            "--dataset."
        )
    return int(text)


ImageCount = Annotated[
    int | None,
    typer.Option(parser=check_count, metavar="INTEGER", help="How many images; by default as the scale says."),
]
Patches = Annotated[str | None, typer.Option(help="Dataset the patches come from; its training images.")]
Candidates = Annotated[int | None, typer.Option(min=1, help="Choose them from so many only.")]


@app.command(cls=ManyWeights)
@with_shared_options
def blurring(
    shared: SharedOptions,
    images: ImageCount = None,
    candidates: Candidates = None,
    fractions: Annotated[str | None, typer.Option(help="Of the pixels to blur: .02,.05.")] = None,
    step: Annotated[float | None, typer.Option(help="Between two sigmas, from 0 to 20.")] = None,
    search: Annotated[str, typer.Option(help="Sigma for the 'ranked' pixels, or for the 'whole' image.")] = "ranked",
) -> None:
    """How much uncertainty goes when the pixels that are blamed for it are blurred: MURR and AUC-URR."""
    evaluate_and_print(
        "blurring",
        shared,
        images=images,
        candidates=candidates,
        fractions=parse_numbers(fractions, float),
        step=step,
        search=search,
    )


@app.command(cls=ManyWeights)
@with_shared_options
def removal(
    shared: SharedOptions,
    images: ImageCount = None,
    candidates: Candidates = None,
    remove: Annotated[list[str] | None, typer.Option(help="Of blur, mean, linear; all of them by default.")] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="In which all pixels go; 100 by default.")] = None,
) -> None:
    """What becomes of uncertainty and prediction when pixels go, most or least relevant first: SRG, accuracy."""
    ways = split_words(remove) or None
    evaluate_and_print("removal", shared, images=images, candidates=candidates, remove=ways, steps=steps)


@app.command(cls=ManyWeights)
@with_shared_options
def anomaly(
    shared: SharedOptions,
    images: ImageCount = None,
    candidates: Candidates = None,
    box: Annotated[int | None, typer.Option(min=1, help="Side of the patch in pixels.")] = None,
    patches: Patches = None,
    masks: Annotated[Path | None, typer.Option(help="A .npy of (N, H, W): compare maps with these instead.")] = None,
) -> None:
    """Whether a planted patch, or a mask of yours, is where the uncertainty is blamed on: IoU and ADA."""
    if masks is not None:
        evaluate_and_print("masks", shared, masks=read_masks(masks), images=images)
    else:
        source = None if patches == DEMO else patches
        evaluate_and_print("anomaly", shared, images=images, candidates=candidates, box=box, patches=source)


@app.command("masks", hidden=True, context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def masks_elsewhere() -> None:
    """A protocol of its own in Python only."""
    raise OptionError(
        "Masks are an option of anomaly: `dubium evaluate anomaly RUN --dataset DATA --masks masks.npy --out FOLDER`, "
        "with an array (N, H, W) in masks.npy. In Python it is protocol='masks', masks=array."
    )


@app.command(cls=ManyWeights)
@partial(with_shared_options, run=False)
def causes(
    shared: SharedOptions,
    images: Annotated[int | None, typer.Option(min=1, help="Of each set whose scores react; 1,000 by default.")] = None,
    candidates: Candidates = None,
    members: Annotated[int | None, typer.Option(min=2, help="How many networks are trained.")] = None,
    epochs: Annotated[int | None, typer.Option(min=1, help="Of each training; by default as the scale says.")] = None,
    run: Annotated[str | None, typer.Argument(hidden=True)] = None,
) -> None:
    """Whether each kind's map finds its own cause: a mark that made labels ambiguous, and something never seen."""
    if run is not None:
        raise OptionError(
            f"causes trains networks of its own, since they must have learned the mark: it takes no posterior. Leave "
            f"{run!r} out; --dataset names the images."
        )
    evaluate_and_print("causes", shared, images=images, candidates=candidates, members=members, epochs=epochs)


@app.command(cls=ManyWeights)
@with_shared_options
def mitigation(
    shared: SharedOptions,
    images: Annotated[int | None, typer.Option(min=2, help="Training images; by default as the scale says.")] = None,
    seeds: Annotated[int | None, typer.Option(min=1, help="How often each arm is trained.")] = None,
    epochs: Annotated[int | None, typer.Option(min=1, help="Of each training; the recipe's by default.")] = None,
    alpha: Annotated[float, typer.Option(help="Strength of the attention.")] = 0.2,
    normalisation: Annotated[str, typer.Option(help="softmax or unit.")] = "softmax",
    space: Annotated[str, typer.Option(help="latent, input or input-added.")] = "latent",
    explainer: Annotated[
        str, typer.Option(help="Maps of an ensemble trained on the same few images ('subset'), or of RUN ('run').")
    ] = "subset",
) -> None:
    """Whether training with uncertainty maps as attention makes better networks: accuracy, NLL, ECE."""
    evaluate_and_print(
        "mitigation",
        shared,
        images=images,
        seeds=seeds,
        epochs=epochs,
        alpha=alpha,
        normalisation=normalisation,
        space=space,
        explainer=explainer,
    )


@app.command(cls=ManyWeights)
@with_shared_options
def sanity(
    shared: SharedOptions,
    images: ImageCount = None,
    candidates: Candidates = None,
    draws: Annotated[int | None, typer.Option(min=1, help="Of the posterior, to compare.")] = None,
    checks: Annotated[str | None, typer.Option(help="Of top, bottom, repeat, kinds, curves; all by default.")] = None,
    stages: Annotated[str | None, typer.Option(help="Parts of the layers that lose their weights: .25,.5,1.")] = None,
    redraws: Annotated[int | None, typer.Option(min=1, help="Draws of random weights, averaged.")] = None,
) -> None:
    """Whether maps change when weights are randomised, repeat themselves, tell kinds apart, and speak of few pixels."""
    evaluate_and_print(
        "sanity",
        shared,
        images=images,
        candidates=candidates,
        draws=draws,
        checks=tuple(split_words([checks])) if checks else None,
        stages=parse_numbers(stages, float),
        redraws=redraws,
    )


@app.command("all", cls=ManyWeights)
@with_shared_options
def all_protocols(
    shared: SharedOptions,
    protocols: Annotated[str | None, typer.Option(help=f"Of {', '.join(TOGETHER)}; all of them by default.")] = None,
    images: Annotated[
        int | None,
        typer.Option(
            parser=check_count, metavar="INTEGER", help="How many images, but for causes; else as the scale says."
        ),
    ] = None,
    patches: Patches = None,
) -> None:
    """All protocols with one set of maps for each method, and one table over them: ranks, and what is significant."""
    changes: dict[str, dict[str, Any]] = {name: {} for name in TOGETHER}
    if images is not None:
        changes |= {name: {"images": images} for name in TOGETHER if name != "causes"}
    if patches not in (None, DEMO):
        changes["anomaly"] |= {"patches": patches}
    evaluate_all_and_print(shared, split_words([protocols]) if protocols else None, changes)


def read_masks(path: Path) -> "Tensor":
    """Masks (N, H, W) of a .npy file; a value other than 0 is inside."""
    import torch

    from dubium.data.npy import read_npy_file

    array = read_npy_file(path)
    if array.ndim != 3 or array.dtype.kind not in "biuf":
        raise OptionError(f"{path} has shape {array.shape} and type {array.dtype}; masks are numbers (N, H, W).")
    return torch.from_numpy(array != 0)
