"""One job: score or explain some images, and write one shard. A job is plain data; all else it needs is its `Work`."""

import io
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from time import monotonic
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float
from PIL import Image
from torch import Tensor, nn

from dubium._explain import explain, uncertainty
from dubium.advice import advise
from dubium.class_names import check_name_count
from dubium.data.fit import place_map, to_size
from dubium.errors import FileFormatError, ImagesError, OptionError
from dubium.executor import EventListener
from dubium.explanation import Explanation
from dubium.figures import picture
from dubium.kinds import KINDS
from dubium.output_checks import AGREEMENT
from dubium.run.networks import PosteriorOnDevice
from dubium.run.row import Row, region_rows
from dubium.run.shard import ShardWriter, open_shard
from dubium.run.signed import signed_row, signed_shard
from dubium.run.work import Work
from dubium.types import Images

THUMBNAIL = 256  # pixels, the longer side
EVENT_EVERY = 0.1  # seconds; an event may be a message to another machine
ImageProgress = Callable[[float], None]
"""Called with how many images are done, which may be a fraction of one."""


@dataclass(frozen=True)
class ShardJob:
    """Score or explain the images at `indices` of a source, into one file."""

    action: Literal["score", "explain"]
    indices: tuple[int, ...]
    file: str


def run_job(work: Work, job: ShardJob, listener: EventListener) -> None:
    """Write the shard, which appears when all of it is done; events are (file, images done of this job)."""
    last = monotonic()

    def progress(images: float) -> None:
        nonlocal last
        if monotonic() - last > EVENT_EVERY:
            last = monotonic()
            listener((job.file, images))

    with ExitStack() as files, warnings.catch_warnings():
        for said in ("The posterior has one network", AGREEMENT):  # once, by `agreement_note`
            warnings.filterwarnings("ignore", message=said)
        shard, signed = files.enter_context(open_shard(job.file, work.about)), None
        for start in range(0, len(job.indices), work.settings.batch):
            for row in batch_rows(work, job, start, shard, progress):
                shard.add(row)
                if row.signed:  # this file is whole before the shard is, which says that the job is done
                    signed = signed or files.enter_context(open_shard(signed_shard(job.file), work.about))
                    signed.add(signed_row(row))
    listener((job.file, float(len(job.indices))))


def batch_rows(work: Work, job: ShardJob, start: int, shard: ShardWriter, progress: ImageProgress) -> list[Row]:
    """Results of the batch that begins at `start`, in the order of the images; unreadable images are noted.

    Images of one shape are explained together.
    """
    groups: dict[torch.Size, list[tuple[Tensor, dict[str, Any]]]] = {}
    indices = job.indices[start : start + work.settings.batch]
    for index in indices:
        try:
            x, facts = read_input(work, index, with_thumbnail=job.action == "explain")
        except (FileFormatError, OSError) as error:
            shard.skip(work.source.name(index), str(error))
        else:
            groups.setdefault(x.shape, []).append((x, facts))
    rows: dict[int, Row] = {}
    for group in groups.values():
        inputs = torch.stack([x for x, _ in group]).to(work.settings.device, work.dtype)
        if start == 0 and not rows and job.action == "explain" and work.about["classes"] is not None:
            check_names(work, explain_batch(work, "score", inputs[:1], progress, 0.0))  # before maps take their time
        explanation = explain_batch(work, job.action, inputs, progress, float(start + len(rows)))
        check_names(work, explanation)
        check_label_numbers([facts for _, facts in group], explanation.probs.shape[1])
        for position, (_, facts) in enumerate(group):
            rows[facts["id"]] = make_row(explanation, position, facts)
        progress(float(start + len(rows)))
    return [rows[index] for index in indices if index in rows]


def check_names(work: Work, explanation: Explanation) -> None:
    """Refuse names of classes that are not as many as the networks' classes."""
    if work.about["classes"] is not None:
        check_name_count(work.about["classes"], explanation.probs.shape[1])


def check_label_numbers(facts: Sequence[Mapping[str, Any]], classes: int) -> None:
    """Refuse labels that are no numbers of the networks' classes: each would be taken for a wrong one."""
    for one in facts:
        if (one["label"] or 0) >= classes:
            raise OptionError(
                f"Image {one['id']} has the label {one['label']}; the networks have {classes} classes, whose numbers "
                f"are 0 to {classes - 1}. Give labels that are numbers of the networks' classes, or images alone."
            )


def read_input(work: Work, index: int, *, with_thumbnail: bool) -> tuple[Float[Tensor, "C H W"], dict[str, Any]]:
    """An image as the networks take it, and what is known of it before they see it: the first columns of its row."""
    item = work.source.read(index)
    if not item.image.isfinite().all():
        raise ImagesError(f"Image {item.path or item.id} has NaN or infinity. Remove or repair it first.")
    height, width = item.image.shape[1:]
    x = work.preprocessing.network_input(item.image)
    return x, {
        "id": item.id, "path": item.path, "label": item.label, "image_height": height, "image_width": width,
        "seen": work.preprocessing.seen_box((height, width)),
        "thumbnail": thumbnail_png(item.image) if with_thumbnail else None,
    }  # fmt: skip


def explain_batch(work: Work, action: str, x: Images, progress: ImageProgress, before: float) -> Explanation:
    """Scores, and maps if the action is to explain; `before` counts the images of the job that are done already."""
    settings, posterior, options = work.settings, work.posterior, dict(work.options)
    output = settings.posterior.get("output")
    if settings.device != "cpu":
        posterior = PosteriorOnDevice(posterior, settings.device)
        options = {n: v.to(settings.device) if isinstance(v, nn.Module) else v for n, v in options.items()}
    if action == "score":
        return uncertainty(posterior, x, output=output, memory=settings.memory)
    return explain(
        posterior, x, method=settings.method, kinds=[kind for kind in KINDS if kind in settings.kinds],
        output=output, memory=settings.memory, seed=settings.seed,
        progress=lambda done, steps: progress(before + len(x) * done / steps),
        **options,
    )  # fmt: skip


def thumbnail_png(image: Float[Tensor, "C H W"]) -> bytes:
    """A PNG of at most `THUMBNAIL` pixels a side; smaller images are kept pixel by pixel."""
    height, width = image.shape[1:]
    scale = min(1, THUMBNAIL / max(height, width))
    small = to_size(image, (max(1, round(scale * height)), max(1, round(scale * width))))
    array = (picture(small) * 255).round().astype(np.uint8)
    stream = io.BytesIO()
    Image.fromarray(array[..., 0] if len(image) == 1 else array).save(stream, "PNG")
    return stream.getvalue()


def make_row(explanation: Explanation, position: int, facts: dict[str, Any]) -> Row:
    """One image's results: all three scores, and maps at the networks' size, or the image's where that is coarser."""
    scores: dict[str, Any] = {kind: float(score[position]) for kind, score in explanation.all_scores.items()}
    prediction = int(explanation.probs[position].argmax())
    confidence = float(explanation.probs[position, prediction])
    size, box = (facts["image_height"], facts["image_width"]), facts["seen"]
    maps = {kind: by_image[position] for kind, by_image in explanation.maps.items()}
    signed = {
        kind: by_image[position] for kind, by_image in explanation.extras.get("signed", {}).items() if kind in maps
    }
    if explanation.input_shape[2] * explanation.input_shape[3] > size[0] * size[1]:
        maps, signed = ({kind: place_map(found[kind], size, box) for kind in found} for found in (maps, signed))
        box = 0, 0, *size
    height, width = next((tuple(values.shape) for values in maps.values()), size)
    stored: dict[str, Any] = dict.fromkeys(f"map_{kind}" for kind in KINDS)
    stored |= {f"map_{kind}": values.float().numpy(force=True) for kind, values in maps.items()}
    regions = [row for kind, values in maps.items() for row in region_rows(values, kind, size, box)]
    advice = advise(confidence, prediction, facts["label"], total=scores["total"], epistemic=scores["epistemic"])
    return Row(
        **{**facts, "seen": box},
        prediction=prediction,
        probs=explanation.probs[position].float().numpy(force=True),
        members=explanation.members[:, position].float().numpy(force=True),
        **scores,
        **stored,
        height=height,
        width=width,
        regions=tuple(regions) or None,
        advice=advice.name,
        signed={kind: values.float().numpy(force=True) for kind, values in signed.items()} or None,
    )
