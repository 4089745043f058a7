"""A run over a dataset: score every image, explain the most uncertain ones, and go on where it stopped."""

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dubium.errors import OptionError
from dubium.files import write_json
from dubium.run.job import Job, chunks
from dubium.run.local import Engine, run_local
from dubium.run.shard import shard
from dubium.run.store import EXPLAINED, FOLDER, SCORED, Results, open_results, read_about, read_rows
from dubium.run.work import Work

FILE = "run.json"
SCORED_ROWS = 16  # a shard of scores has so many times the rows of one with maps
Progress = Callable[[str, float, int], None]
"""Called with a stage ("score", "explain"), images done, images in all."""


@dataclass(frozen=True)
class Outcome:
    """What a run left in its folder."""

    folder: Path
    images: int
    explained: int
    skipped: list[dict[str, str]]


def run(
    work: Work, out: Path | str, *, fresh: bool = False, engine: Engine = run_local, progress: Progress | None = None
) -> Outcome:
    """Fill `out/results`; shards that are there already are kept, if they come from the same settings.

    Args:
        fresh: delete earlier results first, whatever made them.
    """
    if Path(out).exists() and not Path(out).is_dir():
        raise OptionError(f"{out} is a file; give a folder for the results.")
    out, settings = Path(out), work.settings
    claim(out, work, fresh)
    results = out / FOLDER
    if claimed(out)["shards"] == shards(results) > 0:
        return outcome(out)
    everything = range(len(work.source))
    if settings.only is None and settings.top is None:
        do(work, jobs("explain", everything, results, EXPLAINED, settings.shard), engine, progress)
    else:
        do(work, jobs("score", everything, out / "scores", SCORED, SCORED_ROWS * settings.shard), engine, progress)
        chosen = settings.only or ranked(out / "scores", settings.kinds[0], settings.top or 0)
        do(work, jobs("explain", chosen, results, EXPLAINED, settings.shard), engine, progress)
        for file in sorted((out / "scores").glob("*.parquet")):
            without(file, set(chosen), results / file.name, work)
        shutil.rmtree(out / "scores")
    write_json(out / FILE, {**claimed(out), "shards": shards(results)})
    return outcome(out)


def shards(folder: Path) -> int:
    """How many there are; `run.json` says how many a finished run has."""
    return len(list(folder.glob("*.parquet")))


def outcome(out: Path | str) -> Outcome:
    """What a folder holds."""
    found = open_results(out)
    return Outcome(Path(out), len(found), found.explained_count(), found.skipped())


def claim(out: Path, work: Work, fresh: bool) -> None:
    """Make the folder this run's, or find that it is another's."""
    mine = {name: work.about[name] for name in ("settings", "posterior", "images")}
    theirs = claimed(out)
    begun = shards(out / FOLDER) + shards(out / "scores") > 0
    if theirs and begun and not fresh:
        differing = [
            f"{part}.{name} is {theirs[part].get(name)!r} there, {mine[part].get(name)!r} here"
            for part in mine
            for name in {**mine[part], **theirs[part]}
            if json.loads(json.dumps(mine[part].get(name))) != theirs[part].get(name)
        ]
        if differing:
            raise OptionError(
                f"{out} has results of another run: {'; '.join(differing)}. Choose another folder, or delete those "
                "results with --fresh."
            )
        return
    for folder in (out / FOLDER, out / "scores"):
        for file in (*folder.glob(f"{EXPLAINED}-*.parquet"), *folder.glob(f"{SCORED}-*.parquet")):
            file.unlink()
    write_json(out / FILE, {**mine, "shards": None})


def claimed(out: Path) -> dict[str, Any]:
    """The run that a folder belongs to, if any."""
    try:
        content = json.loads((out / FILE).read_bytes())
    except (FileNotFoundError, ValueError):
        return {}
    whole = isinstance(content, dict) and all(
        isinstance(content.get(k), dict) for k in ("settings", "posterior", "images")
    )
    return {"shards": None, **content} if whole else {}


def jobs(action: Any, indices: Sequence[int], folder: Path, stem: str, size: int) -> list[Job]:
    parts = chunks(indices, size)
    return [Job(action, part, str(folder / f"{stem}-{n:05}.parquet")) for n, part in enumerate(parts)]


def do(work: Work, todo: Sequence[Job], engine: Engine, progress: Progress | None) -> None:
    """Run the jobs whose files are not there."""
    waiting = [job for job in todo if not Path(job.file).exists()]
    total = sum(len(job.indices) for job in todo)
    done = total - sum(len(job.indices) for job in waiting)
    state = [float(done)]

    def tick(images: float) -> None:
        state[0] += images
        if progress:
            progress(todo[0].action, state[0], total)

    if todo:
        tick(0.0)
    for _ in engine(work, waiting, tick):
        pass
    if todo:
        tick(total - state[0])  # a worker that died, or a late report, may have left it a little off


def ranked(folder: Path, kind: str, count: int) -> tuple[int, ...]:
    """The most uncertain images, most uncertain first; ties in the order of the source."""
    scores = Results(folder, (), tuple(sorted(folder.glob("*.parquet"))), {})
    return tuple(scores.ranked(kind, count))


def without(file: Path, explained: set[int], to: Path, work: Work) -> None:
    """A shard of scores without the rows that were explained."""
    if to.exists():
        return
    with shard(to, work.about) as out:
        for row in read_rows(file):
            if row.id not in explained:
                out.add(row)
        for item in read_about(file)["skipped"]:
            out.skip(item["path"], item["reason"])
