"""A whole dataset: score every image, explain the most uncertain ones, and go on where an earlier call stopped."""

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

from dubium.checks import check_progress
from dubium.data.folder import refuse_image_folder
from dubium.errors import FileFormatError, OptionError
from dubium.executor import Executor, in_turn
from dubium.files import check_recorded, check_same_settings, write_json
from dubium.folder_lock import own_folder
from dubium.path_checks import PAGE, PICTURES, RUN, refuse_evaluation_folder, refuse_own_files
from dubium.reading import read_json
from dubium.run.job import ShardJob, run_job
from dubium.run.settings import Settings
from dubium.run.shard import check_shard, open_shard, read_about, read_rows
from dubium.run.shard_checks import is_settings
from dubium.run.signed import FOLDER as SIGNED
from dubium.run.signed import signed_shard
from dubium.run.sources import FileImages, image_places
from dubium.run.store import EXPLAINED, FOLDER, SCORED, Results, open_results
from dubium.run.work import Work

FILE = RUN
SCORES = "scores"  # a folder beside the results, until the most uncertain images are explained
RESULTS = (FOLDER, SCORES, SIGNED)
MOST_NAMED = 3  # files in a message
DRAWN = f"{PICTURES}/[0-9][0-9][0-9][0-9]-*.png"  # pictures of the results, by `--png`
SCORED_ROWS = 16  # a shard of scores has so many times the rows of one with maps
CLAIM = ("settings", "posterior", "images", "method", "classes", "network attributes", "network code")
"""What decides the bytes of the results."""
MAPS_ALONE = ("method", "options", "kinds", "top", "only", "seed")  # settings that decide no score
NAMED = CLAIM[:3]  # a run.json has at least these
StageProgress = Callable[[str, float | int, int], None]
"""Called with a stage ("score", "explain"), images done, images in all."""
STAGE_PROGRESS = ("stage", "images done", "images in all")


def explain_dataset(
    work: Work,
    out: Path | str,
    *,
    fresh: bool = False,
    engine: Executor = in_turn,
    progress: StageProgress | None = None,
) -> Results:
    """Fill `out/results`; shards that are there already are kept, if they come from the same settings.

    Args:
        fresh: delete earlier results first, whatever made them.
        engine: where the jobs run; `ray_cluster` gives another.
        progress: called with ("score" or "explain", images done, images in all).
    """
    check_progress(progress, *STAGE_PROGRESS)
    if isinstance(work.source, FileImages):
        refuse_image_folder(out, work.source.named)
    with own_folder(out):
        claim = claim_folder(Path(out), work, fresh)
        fill_folder(work, Path(out), claim, engine, progress)
        results = open_results(out)
        if not len(results) and (skipped := results.skipped()):
            delete_results(Path(out))
            raise FileFormatError(nothing_read([item["reason"] for item in skipped]))
        return results


def fill_folder(work: Work, out: Path, claim: dict[str, Any], engine: Executor, progress: StageProgress | None) -> None:
    """Run the jobs that no earlier call has finished."""
    settings, signed = work.settings, shard_count(out / SIGNED)
    results, scores = out / FOLDER, out / SCORES
    if claim["shards"] == shard_count(results) > 0 and claim.get("signed") in (None, signed):
        return
    has_signs = bool(claim.get("signed") or signed)
    everything = range(len(work.source))
    if settings.only is None and settings.top is None:
        run_jobs(work, "explain", everything, results, engine, progress, with_signs=has_signs)
    else:
        run_jobs(work, "score", everything, scores, engine, progress)
        files = tuple(sorted(scores.glob("*.parquet")))
        ranks = Results(scores, (), files, {}).ranks(settings.kinds[0], settings.top or 0)
        chosen = settings.only or tuple(ranks)
        run_jobs(work, "explain", chosen, results, engine, progress, with_signs=has_signs)
        for file in files:
            copy_other_rows(file, results / file.name, set(chosen), work.about)
        shutil.rmtree(scores)
    counts = {"shards": shard_count(results), "signed": shard_count(out / SIGNED) or None}
    write_json(out / FILE, {**claim, **counts})


def shard_count(folder: Path) -> int:
    """How many shards there are; `run.json` says how many a finished run has."""
    return len(list(folder.glob("*.parquet")))


def claim_folder(out: Path, work: Work, fresh: bool) -> dict[str, Any]:
    """Make the folder this run's, or refuse one with results of another; returns what its `run.json` says.

    Scores that are the same for this run are kept: the other one stopped before its first map, as at a mistake in its
    method's options.
    """
    refuse_evaluation_folder(out)
    here, there = {name: work.about[name] for name in CLAIM}, read_claim(out)
    has_maps, is_ranked = shard_count(out / FOLDER) > 0, work.settings.top is not None
    if not there and not has_maps and not shard_count(out / SCORES):
        refuse_own_files(out, (RUN, PAGE, DRAWN))
    keeps_scores = not fresh and not has_maps and is_ranked and scoring_part(here) == scoring_part(there)
    if not fresh and not keeps_scores and (has_maps or shard_count(out / SCORES) > 0):
        advice = changed_files_text(work, there)
        advice += "Choose another folder, or delete those results with --fresh (fresh=True in Python)."
        if not there:
            raise FileFormatError(f"{out} has results, but {FILE}, which says of what, is missing or damaged. {advice}")
        check_recorded(out, there, here, advice=advice)
        names = [name for name in CLAIM if name != "method" or same_method(there, here)]
        check_same_settings(out, *({name: one.get(name) for name in names} for one in (there, here)), advice=advice)
        return there
    delete_shards(out, [FOLDER, SIGNED] if keeps_scores else RESULTS)
    for picture in out.glob(DRAWN):  # of the results that were here
        picture.unlink()
    claim = {"shards": None, **here}
    write_json(out / FILE, claim)
    return claim


def changed_files_text(work: Work, there: Mapping[str, Any]) -> str:
    """By what image files are compared, where a folder's results are of others with the same names; "" elsewhere."""
    is_named_alike = there.get("settings", {}).get("images") == work.settings.images
    if not isinstance(work.source, FileImages) or not is_named_alike or there["images"] == work.about["images"]:
        return ""
    return (
        "Image files are the same by their names, sizes and times of change, not by their pixels (cp -p and rsync -t "
        "keep the times). "
    )


def with_recorded_names(images: Mapping[str, Any], out: Path | str) -> Mapping[str, Any]:
    """`images` of `Settings`, spelt as the folder's run has them where both name the same files and folders."""
    there = read_claim(Path(out)).get("settings", {}).get("images")
    is_whole = is_settings({"images": there}) and there.keys() == images.keys()
    return there if is_whole and image_places(there) == image_places(images) else images


def same_method(there: Mapping[str, Any], here: Mapping[str, Any]) -> bool:
    """Whether the settings name one method; if not, versions of its parts say nothing more."""
    return bool(there["settings"].get("method") == here["settings"].get("method"))


def scoring_part(claim: Mapping[str, Any]) -> Any:
    """What decides the scores, as JSON has it."""
    settings = {name: value for name, value in claim.get("settings", {}).items() if name not in MAPS_ALONE}
    return json.loads(json.dumps([settings, *(claim.get(name) for name in CLAIM[1:] if name != "method")]))


def delete_shards(out: Path, folders: Sequence[str] = RESULTS) -> None:
    for folder in (out / name for name in folders):
        for file in (*folder.glob(f"{EXPLAINED}-*.parquet"), *folder.glob(f"{SCORED}-*.parquet")):
            file.unlink()


def delete_results(out: Path) -> None:
    """Leave the folder to whoever comes next; files of others stay."""
    delete_shards(out)
    (out / FILE).unlink(missing_ok=True)
    for folder in (out / name for name in RESULTS):
        with suppress(OSError):
            folder.rmdir()


def nothing_read(reasons: Sequence[str]) -> str:
    """What to say where no image could be read."""
    if len(reasons) == 1:
        return f"The image could not be read, so that there are no results: {reasons[0]}"
    more = f" And {len(reasons) - MOST_NAMED:,} more." if len(reasons) > MOST_NAMED else ""
    shown = " ".join(reasons[:MOST_NAMED])
    return f"None of {len(reasons):,} images could be read, so that there are no results: {shown}{more}"


def refuse_other_run(out: Path, settings: Settings) -> None:
    """Refuse a folder with results of other networks or images."""
    there = read_claim(out).get("settings", {})
    if there and (there.get("posterior"), there.get("images")) != (settings.posterior, settings.images):
        raise OptionError(
            f"{out} has results of other networks or images, which would be replaced. Choose another folder."
        )


def read_claim(out: Path) -> dict[str, Any]:
    """The run that a folder belongs to; empty if there is none, or if its file is damaged."""
    try:
        content = read_json(out / FILE)
    except (FileNotFoundError, FileFormatError):
        return {}
    is_whole = isinstance(content, dict) and all(isinstance(content.get(name), dict) for name in NAMED)
    return {"shards": None, **content} if is_whole else {}


def run_jobs(
    work: Work,
    action: Literal["score", "explain"],
    indices: Sequence[int],
    folder: Path,
    engine: Executor,
    progress: StageProgress | None,
    *,
    with_signs: bool = False,
) -> None:
    """Score or explain images into shards, but for those that are there; `with_signs` if each has signed maps too."""
    stem = EXPLAINED if action == "explain" else SCORED
    size = work.settings.shard * (1 if action == "explain" else SCORED_ROWS)
    parts = (tuple(indices[start : start + size]) for start in range(0, len(indices), size))
    jobs = [ShardJob(action, part, str(folder / f"{stem}-{n:05}.parquet")) for n, part in enumerate(parts)]
    done = {job: [Path(job.file), *([signed_shard(job.file)] if with_signs else ())] for job in jobs}
    done = {job: files for job, files in done.items() if all(file.exists() for file in files)}
    images = {job.file: float(len(job.indices)) if job in done else 0.0 for job in jobs}

    def show_progress(event: tuple[str, float]) -> None:
        file, done = event
        images[file] = done  # fewer than before if a worker died and the job was begun again
        if progress:
            progress(action, sum(images.values()), len(indices))

    if not jobs:
        return
    show_progress((jobs[0].file, images[jobs[0].file]))
    for file in (file for files in done.values() for file in files):
        check_shard(file)
    missing = [job for job in jobs if job not in done]
    threads, device = work.settings.threads or 1, work.settings.device
    for _ in engine(run_job, work, missing, show_progress, threads=threads, device=device):
        pass
    if progress:
        progress(action, len(indices), len(indices))  # the last event of a worker may be missing


def copy_other_rows(source: Path, to: Path, explained: set[int], about: Any) -> None:
    """A shard of scores without the rows of images that were explained."""
    if to.exists():
        return
    with open_shard(to, about) as shard:
        for row in read_rows(source):
            if row.id not in explained:
                shard.add(row)
        for item in read_about(source)["skipped"]:
            shard.skip(item["path"], item["reason"])
