"""What storing costs: a run over CIFAR-10 against a bare loop in memory, and whether memory stays flat.

    DUBIUM_MODELS=FOLDER DUBIUM_DATA=FOLDER python -m benchmarks.dataset [IMAGES [EXPLAINED [REPEATS]]]

Both score IMAGES test images (10,000) and explain the EXPLAINED most uncertain (500) with the ResNet-20 ensemble, in
turn, REPEATS times. Prints a JSON line; `ratio` is the run's throughput over the loop's, `resident` the megabytes in
use after the first tenth and at the end of each stage.
"""

import json
import sys
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter, process_time

import torch

import dubium
from benchmarks._measure import machine
from dubium.data import load
from dubium.posteriors import load_posterior
from dubium.report import write_page
from dubium.run import Settings, explain_dataset, open_work
from dubium.run.sources import DatasetImages

ENSEMBLE, BATCH = "cifar10-resnet20", 32


def bare(images: int, explained: int) -> None:
    """The same work, with nothing written and nothing kept."""
    posterior, data = load_posterior(ENSEMBLE), load("cifar-10", "test")
    starts = range(0, images, BATCH)
    parts = [dubium.uncertainty(posterior, data.batch(slice(i, min(i + BATCH, images)))) for i in starts]
    scores = torch.cat([part.scores["epistemic"] for part in parts])
    top = scores.argsort(descending=True)[:explained]
    for indices in top.split(BATCH):
        dubium.explain(posterior, data.batch(indices))


def stored(images: int, explained: int) -> dict[str, object]:
    """The run, its memory, and the time its page takes."""
    seen: dict[str, list[float]] = {}

    def watch(stage: str, done: float, total: int) -> None:
        marks = seen.setdefault(stage, [])
        if not marks and done >= total / 10:
            marks.append(resident())
        if done >= total - 1e-6:
            marks[1:] = [resident()]

    with TemporaryDirectory() as folder:
        settings = Settings({"run": ENSEMBLE}, {"dataset": "cifar-10:test"}, top=explained, batch=BATCH)
        source = DatasetImages(load("cifar-10", "test").subset(slice(0, images)))
        explain_dataset(open_work(settings, source=source), folder, progress=watch)
        size = sum(file.stat().st_size for file in Path(folder).rglob("*.parquet"))
        begin = perf_counter()
        write_page(folder)
        return {"resident": seen, "parquet_mb": round(size / 1e6, 1), "page_s": round(perf_counter() - begin, 1)}


def resident() -> float:
    """Megabytes of this process in memory."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return round(pages * 4096 / 1e6, 1)


def main(images: int = 10_000, explained: int = 500, repeats: int = 1) -> None:
    bare(64, 2)  # warm up
    times: dict[str, list[tuple[float, float]]] = {"bare": [], "stored": []}
    facts: dict[str, object] = {}
    for _ in range(repeats):
        for name in times:
            wall, used = perf_counter(), process_time()
            facts |= (stored(images, explained) if name == "stored" else bare(images, explained)) or {}
            times[name].append((perf_counter() - wall, process_time() - used))
    page = float(facts["page_s"])
    seconds = {name: median(wall for wall, _ in pairs) for name, pairs in times.items()}
    cpu = {name: median(used for _, used in pairs) for name, pairs in times.items()}
    print(
        json.dumps(
            {
                "images": images, "explained": explained, "repeats": repeats,
                "ratio": round(seconds["bare"] / (seconds["stored"] - page), 3),
                "ratio_cpu": round(cpu["bare"] / (cpu["stored"] - page), 3),
                "seconds": {name: round(value, 1) for name, value in seconds.items()},
                "cpu_seconds": {name: round(value, 1) for name, value in cpu.items()}, **facts, **machine(),
            }
        )
    )  # fmt: skip


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
