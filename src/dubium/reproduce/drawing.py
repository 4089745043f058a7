"""What draws the paper's figures again: a matplotlib figure for each job."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dubium.evaluation.methods import explain_maps
from dubium.evaluation.metrics.scoring import scorer
from dubium.evaluation.protocols import run_protocol
from dubium.evaluation.protocols.anomaly import read_anomaly_examples
from dubium.evaluation.protocols.blurring import read_blurring_examples
from dubium.evaluation.protocols.evaluation import Evaluation
from dubium.evaluation.protocols.mitigation import MitigationExamples
from dubium.evaluation.shards import ShardStore
from dubium.figures import overlay, picture
from dubium.kinds import KINDS
from dubium.ranking import most_uncertain
from dubium.report.protocols.anomaly import boxes_figure
from dubium.report.protocols.blurring import blurring_stages_figure
from dubium.report.protocols.mitigation import attention_figure
from dubium.reproduce.job import AttentionArm, Job
from dubium.reproduce.mitigation import arm_evaluation, arm_maps, arm_settings, members_for, training_options
from dubium.reproduce.networks import open_data
from dubium.reproduce.study import Study, prepare_evaluation
from dubium.training.attention import attention_weights
from dubium.types import Images

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHOWN = 6  # training images with their attention
CANDIDATES = 500  # images of which the most uncertain are shown


def draw_methods(study: Study, job: Job) -> "Figure":
    """The most uncertain images, and the map of each method."""
    evaluation, x = uncertain_images(study, job)
    columns = [
        (method.method, explain_maps(evaluation.posterior, x, method, ("epistemic",))) for method in evaluation.methods
    ]
    return map_grid(x, [(label, maps["epistemic"]) for label, maps in columns])


def draw_kinds(study: Study, job: Job) -> "Figure":
    """The same images, and UA-Backprop's map of each kind of uncertainty, then those of `auto`."""
    evaluation, x = uncertain_images(study, job)
    columns = []
    for method in evaluation.methods:
        maps = explain_maps(evaluation.posterior, x, method, KINDS)
        columns += [(f"{method.method}\n{kind}", maps[kind]) for kind in KINDS]
    return map_grid(x, columns)


def draw_blurring(study: Study, job: Job) -> "Figure":
    """UA-Backprop's highest pixels blurred, more and more of them."""
    evaluation = open_figure_evaluation(study, job)
    summary = run_protocol("blurring", evaluation, scale=study.scale, **job.options["protocol"])
    examples = read_blurring_examples(ShardStore(evaluation.out), summary["settings"])
    return blurring_stages_figure(examples[job.methods[0]])


def draw_anomaly(study: Study, job: Job) -> "Figure":
    """Planted patches, and the boxes that each method finds."""
    evaluation = open_figure_evaluation(study, job)
    summary = run_protocol("anomaly", evaluation, scale=study.scale, **job.options["protocol"])
    return boxes_figure(read_anomaly_examples(ShardStore(evaluation.out), summary["settings"]))


def draw_attention(study: Study, job: Job) -> "Figure":
    """Attention of training images: as the paper normalises it, and divided by its highest value."""
    train = open_data(job.dataset, "train", study.scale)
    arms = tuple(AttentionArm(text, text) for text in job.methods)
    shown = replace(job, arms=arms, options=job.options["protocol"])
    options = training_options(study, shown, train)
    evaluation = arm_evaluation(study, shown, train.sample(options.images), figure_folder(study, job))
    store = ShardStore.open(evaluation.out, arm_settings(shown, evaluation, options, {}))
    maps = arm_maps(evaluation, store, options.recipe, members_for(shown), SHOWN)
    x = evaluation.data.batch(slice(SHOWN))
    attention = {
        f"{label}@{way}": attention_weights(found["epistemic"], way)
        for label, found in maps.items()
        for way in ("softmax", "unit")
    }
    return attention_figure(MitigationExamples(x, attention))


def open_figure_evaluation(study: Study, job: Job) -> Evaluation:
    """An evaluation in a folder of the figure's own."""
    return prepare_evaluation(study, job, figure_folder(study, job))[0]


def figure_folder(study: Study, job: Job) -> Path:
    return study.folder / "evaluations" / f"{job.name}-{job.shared_digest(study.scale, {})}"


def uncertain_images(study: Study, job: Job) -> tuple[Evaluation, Images]:
    """Some of the most uncertain test images; `skip` leaves out as many of the first."""
    evaluation = open_figure_evaluation(study, job)
    candidates = evaluation.data.batch(slice(CANDIDATES))
    skip, count = job.options.get("skip", 0), job.options["images"]
    scores = scorer(evaluation.posterior)(candidates)
    return evaluation, candidates[most_uncertain(scores, skip + count)[skip:]]


def map_grid(x: Images, columns: list[tuple[str, Any]]) -> "Figure":
    """A row for each image: the image, then its maps."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(1.15 * (1 + len(columns)), 1.2 * len(x) + 0.35), layout="constrained")
    axes = figure.subplots(len(x), 1 + len(columns), squeeze=False)
    for row, image in enumerate(x):
        axes[row][0].imshow(picture(image), interpolation="nearest")
        for axis, (label, maps) in zip(axes[row][1:], columns, strict=True):
            axis.imshow(overlay(image, maps[row]), interpolation="nearest")
            if row == 0:
                axis.set_title(label, fontsize=6)
    for axis in axes.flat:
        axis.axis("off")
    return figure
