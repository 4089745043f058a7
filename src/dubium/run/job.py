"""One job: some images, one shard. A job is plain data; what it needs besides is a `Work`."""

import io
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float
from PIL import Image
from torch import Tensor, nn

from dubium._explain import explain, uncertainty
from dubium.data.fit import from_size, to_channels, to_size
from dubium.errors import FileFormatError, OptionError
from dubium.explanation import Explanation
from dubium.figures import picture
from dubium.run.settings import map_kinds
from dubium.run.shard import Shard, shard
from dubium.run.sources import Item
from dubium.run.store import Row
from dubium.run.work import Work
from dubium.types import KINDS, Images, Posterior

THUMBNAIL = 256  # pixels, the longer side
Tick = Callable[[float], None]
"""Called with how many images were done since the last call."""


@dataclass(frozen=True)
class Job:
    """Score or explain some images of a source, into one file."""

    action: Literal["score", "explain"]
    indices: tuple[int, ...]
    file: str


@dataclass(frozen=True)
class Done:
    """What came of a job."""

    file: str
    rows: int
    skipped: int


@dataclass(frozen=True)
class Prepared:
    """An image without its pixels, and with what the network sees of it."""

    item: Item
    x: Float[Tensor, "C H W"]
    size: tuple[int, int]
    thumbnail: bytes | None


def run_job(work: Work, job: Job, tick: Tick) -> Done:
    """Do a job; its file appears when all of it is done."""
    rows = 0
    with shard(job.file, work.about) as out, warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The posterior has one network")
        for indices in chunks(job.indices, work.settings.batch):
            found = {row.id: row for row in results(work, job, indices, out, tick)}
            for index in indices:
                if index in found:
                    out.add(found[index])
            rows += len(found)
    return Done(job.file, rows, len(out.skipped))


def results(work: Work, job: Job, indices: Sequence[int], out: Shard, tick: Tick) -> Iterator[Row]:
    """Rows of a batch, images of one shape at a time."""
    shapes: dict[torch.Size, list[Prepared]] = {}
    for index in indices:
        try:
            prepared = prepare(work, index, thumbnails=job.action == "explain")
        except (FileFormatError, OSError) as error:
            out.skip(work.source.name(index), str(error))
            tick(1.0)
        else:
            shapes.setdefault(prepared.x.shape, []).append(prepared)
    for group in shapes.values():
        x = torch.stack([prepared.x for prepared in group]).to(work.settings.device, work.dtype)
        explanation = explained(work, x, tick) if job.action == "explain" else scored(work, x, tick)
        names, classes = work.about["classes"], explanation.probs.shape[1]
        if names is not None and len(names) != classes:
            raise OptionError(f"There are {len(names)} names of classes for {classes} classes; give one for each.")
        for place, prepared in enumerate(group):
            yield as_row(explanation, place, prepared, work.settings.fit)


def chunks(indices: Sequence[int], size: int) -> Iterator[tuple[int, ...]]:
    """`size` at a time."""
    return (tuple(indices[start : start + size]) for start in range(0, len(indices), size))


def explained(work: Work, x: Images, tick: Tick) -> Explanation:
    settings, last = work.settings, [0.0]

    def progress(done: int, steps: int) -> None:
        tick(len(x) * (done / steps) - last[0])
        last[0] = len(x) * (done / steps)

    result = explain(
        on_device(work), x, method=settings.method, kinds=map_kinds(settings),  # type: ignore[arg-type]
        memory=settings.memory, seed=settings.seed, progress=progress, **options_on_device(work),
    )  # fmt: skip
    tick(len(x) - last[0])
    if len(result.scores) == len(KINDS):
        return result
    return replace(result, scores=uncertainty(on_device(work), x, memory=settings.memory).scores)


def scored(work: Work, x: Images, tick: Tick) -> Explanation:
    result = uncertainty(on_device(work), x, memory=work.settings.memory)
    tick(float(len(x)))
    return result


def on_device(work: Work) -> Posterior:
    """The networks where the settings want them."""
    device = work.settings.device
    return work.posterior if device == "cpu" else Moved(work.posterior, device)


def options_on_device(work: Work) -> dict[str, Any]:
    """The method's options, with what is a network among them moved too."""
    device = work.settings.device
    return {n: value.to(device) if isinstance(value, nn.Module) else value for n, value in work.options.items()}


@dataclass(frozen=True)
class Moved:
    """A posterior's networks on another device; those that are there already cost nothing."""

    posterior: Posterior
    device: str

    def __len__(self) -> int:
        return len(self.posterior)

    def __iter__(self) -> Iterator[nn.Module]:
        return (network.to(self.device) for network in self.posterior)


def prepare(work: Work, index: int, *, thumbnails: bool) -> Prepared:
    """Read an image and bring it to the networks' shape."""
    item = work.source.read(index)
    channels, height, width = work.shape
    size = item.image.shape[1], item.image.shape[2]
    x = to_channels(item.image, channels or len(item.image))
    x = to_size(x, (height or size[0], width or size[1]), work.settings.fit)
    small = thumbnail(item.image) if thumbnails else None
    return Prepared(Item(item.id, item.path, item.label, item.image[:, :0, :0]), x, size, small)


def thumbnail(image: Float[Tensor, "C H W"]) -> bytes:
    """A PNG of at most `THUMBNAIL` pixels a side; smaller images are kept pixel by pixel."""
    height, width = image.shape[1:]
    scale = min(1, THUMBNAIL / max(height, width))
    small = to_size(image, (max(1, round(scale * height)), max(1, round(scale * width))))
    array = (picture(small) * 255).round().astype(np.uint8)
    stream = io.BytesIO()
    Image.fromarray(array[..., 0] if len(image) == 1 else array).save(stream, "PNG")
    return stream.getvalue()


def as_row(explanation: Explanation, place: int, prepared: Prepared, fit: str) -> Row:
    """One image's results, its maps at its own size."""

    def array(tensor: Tensor) -> "np.ndarray[tuple[int, ...], np.dtype[np.float32]]":
        return tensor.detach().float().cpu().numpy()

    scores = {kind: float(explanation.scores[kind][place]) for kind in KINDS}
    maps = {f"map_{kind}": None for kind in KINDS} | {
        f"map_{kind}": array(from_size(maps[place], prepared.size, fit)) for kind, maps in explanation.maps.items()
    }
    return Row(
        id=prepared.item.id, path=prepared.item.path, label=prepared.item.label,
        prediction=int(explanation.probs[place].argmax()), probs=array(explanation.probs[place]),
        members=array(explanation.members[:, place]), **scores, **maps,  # type: ignore[arg-type]
        height=prepared.size[0], width=prepared.size[1], thumbnail=prepared.thumbnail,
    )  # fmt: skip
