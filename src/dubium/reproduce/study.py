"""What every measure gets besides its job: scale, folders, and where the work is done."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dubium.evaluation.methods import LabelledMethod, parse_method
from dubium.evaluation.protocols.evaluation import Evaluation, StepListener, ignore_step
from dubium.executor import Executor, in_turn
from dubium.option_text import parse_options, split_method
from dubium.reproduce.job import Job
from dubium.reproduce.networks import open_data, open_networks, open_vae

BLUR_PATH = "blur-path"


@dataclass(frozen=True)
class Study:
    """Where and how jobs are measured. `folder` belongs to one scale."""

    scale: str
    folder: Path
    executor: Executor = in_turn
    on_step: StepListener = ignore_step

    @property
    def networks_folder(self) -> Path:
        return self.folder / "networks"


def open_methods(study: Study, job: Job, channels: int) -> tuple[LabelledMethod, ...]:
    """The job's methods; CLUE and its kin get the dataset's VAE."""
    return tuple(open_method(study, job.dataset, text, channels) for text in dict.fromkeys(job.methods))


def open_method(study: Study, dataset: str, text: str, channels: int) -> LabelledMethod:
    """One method under its text, which does not name the VAE's folder."""
    name, pairs = split_method(text)
    if "clue" not in name:
        return parse_method(text, channels)
    vae = open_vae(dataset, study.scale, study.networks_folder)
    return LabelledMethod(text, name, {**parse_options(pairs, name), "vae": vae})


def prepare_evaluation(study: Study, job: Job, folder: Path, **changes: Any) -> tuple[Evaluation, dict[str, Any]]:
    """The job's posterior, images and methods as the protocols take them, and what is known of the networks."""
    posterior, about = open_networks(
        job.dataset, job.networks, study.scale, study.networks_folder, study.executor, study.on_step
    )
    data = open_data(job.dataset, "test", study.scale)
    evaluation = Evaluation(
        posterior,
        data,
        open_methods(study, job, data.shape[0]),
        tuple(job.options.get("kinds", ("epistemic",))),
        folder,
        f"{job.networks} of {job.dataset}",
        other_data=open_data(job.dataset, "train", study.scale),
        on_step=study.on_step,
        executor=study.executor,
        **changes,
    )
    return evaluation, about
