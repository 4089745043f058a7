"""What a run will take, from its first images: nothing is written."""

from time import perf_counter
from typing import Any

import torch
from torch import Tensor

from dubium.errors import FileFormatError, OptionError
from dubium.estimate import Estimate
from dubium.executor import thread_count
from dubium.run.job import explain_batch, make_row, read_input
from dubium.run.sources import FileImages
from dubium.run.work import Work

SCORED, EXPLAINED = 8, 2  # images that are tried for the estimate
ROW_BYTES = 300  # of a row beside its arrays: path, scores, advice
PARTS = 0.85  # of an array's bytes that compression leaves


def estimate_run(work: Work) -> Estimate:
    """Score and explain the first images that can be read, twice: the first time torch warms up."""
    settings, count = work.settings, len(work.source)
    first, facts = first_inputs(work, SCORED)
    x = torch.stack(first).to(settings.device, work.dtype)
    top = count if settings.top is None else min(settings.top, count)
    explained = len(settings.only) if settings.only is not None else top
    with thread_count(settings.threads or torch.get_num_threads()):
        found, scoring = timed_batch(work, "score", x)
        explaining = 0.0
        if explained:
            found, explaining = timed_batch(work, "explain", x[:EXPLAINED])
    row = make_row(found, 0, facts)
    arrays = sum(array.nbytes for array in (*row.stored_maps().values(), *(row.signed or {}).values()))
    numbers = row.probs.nbytes + row.members.nbytes + ROW_BYTES
    size = count * numbers + explained * (PARTS * arrays + len(row.thumbnail or b""))
    scored = count if explained < count else 0
    seconds = scored * scoring / len(x) + explained * explaining / len(x[:EXPLAINED])
    passes = count * len(work.posterior)
    named = "files" if isinstance(work.source, FileImages) else "images"  # some of them may not be readable
    task = f"{count:,} {named} to score ({passes:,} forward passes), {explained:,} to explain"
    return Estimate(task, count, passes, explained, seconds, round(size))


def first_inputs(work: Work, count: int) -> tuple[list[Tensor], dict[str, Any]]:
    """The first readable images of one shape, and what is known of the first."""
    found: list[Tensor] = []
    about: dict[str, Any] = {}
    for index in range(len(work.source)):
        try:
            x, facts = read_input(work, index, with_thumbnail=True)
        except (FileFormatError, OSError):
            continue
        about = about or facts
        if not found or x.shape == found[0].shape:
            found.append(x)
        if len(found) == count:
            break
    if not found:
        raise OptionError("None of the images can be read.")
    return found, about


def timed_batch(work: Work, action: str, x: Tensor) -> tuple[Any, float]:
    """The result, and the seconds of a second call."""
    explain_batch(work, action, x, lambda _images: None, 0.0)
    start = perf_counter()
    found = explain_batch(work, action, x, lambda _images: None, 0.0)
    return found, perf_counter() - start
