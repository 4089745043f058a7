"""Time and memory of `explain`, beside its unit and its peers: python -m benchmarks.suite [--quick] [--fresh].

Appends a JSON line per cell to benchmarks/results/performance.jsonl as it comes, targets first, and leaves out cells
that are there already for the same commit of src, processor and threads; then writes docs/performance.md. A cell whose
call would take longer than --budget seconds is listed as skipped, with the estimate. About 20 minutes on two quiet
cores. --quick measures a handful of small cells and writes everything to build/ instead.
"""

import argparse
import json
import os
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from time import perf_counter
from typing import Any

import torch

from benchmarks import performance
from benchmarks.suite import cells
from benchmarks.suite.cells import Cell, Fraction
from benchmarks.suite.lines import read
from benchmarks.suite.measure import available, compare, measure, peer_memory, processor, profile, speed

ROOT = Path(__file__).parents[2]
GUESS = 2.0  # units a call takes, until one was measured
Lines = list[dict[str, object]]


@dataclass(frozen=True)
class Job:
    """Something to measure: the settings that name its lines, what it costs in calls of `explain`, and how to do it."""

    settings: dict[str, object]
    cell: Cell
    calls: float
    do: Callable[[], Lines]
    least: float = 0  # seconds
    skippable: bool = False


@dataclass
class Clock:
    """Seconds of a forward pass by network, as far as known."""

    threads: int
    units: dict[str, float] = field(default_factory=dict)
    ratios: dict[str, float] = field(default_factory=dict)

    def call(self, cell: Cell) -> float:
        """Seconds that `explain` will take: linear in S, K, B and pixels."""
        name = cell.network
        if name not in self.units:
            self.units[name] = alone(speed, Cell(name, S=1), self.threads)
        return 0.01 + cell.rows * cell.scale * self.units[name] * self.ratios.get(name, GUESS)

    def job(self, job: Job, budget: float) -> float:
        """Seconds that a job will take, roughly."""
        call = self.call(job.cell)
        return 0 if job.skippable and call > budget else 1 + max(job.least, call * job.calls)

    def learn(self, cell: Cell, line: dict[str, Any]) -> None:
        if "ratio" in line and cell.B > 1:
            self.units[cell.network] = line["unit_us"] / 1e6 / cell.scale
            self.ratios[cell.network] = line["ratio"]


def alone(function: Callable[..., Any], *arguments: object) -> Any:
    """In a fresh process, which a server forks that has imported everything and run nothing."""
    context = get_context("forkserver")
    context.set_forkserver_preload(["benchmarks.suite.measure"])
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        return pool.submit(function, *arguments).result()


def jobs(quick: bool, threads: int) -> Iterator[Job]:
    """In order of importance."""
    if quick:
        yield from (explained(cell, threads, 0.5) for cell in (*cells.QUICK["targets"], *cells.QUICK["cells"]))
        yield from (compared(cell, part, threads) for cell, part in cells.QUICK["peers"])
        yield from (profiled(cell, threads) for cell in cells.QUICK["profiles"])
        return
    yield from (explained(cell, threads, 45) for cell in cells.TARGETS)
    yield from (profiled(cell, threads) for cell in cells.PROFILES)
    yield from (compared(cell, part, threads) for cell, part in cells.FRACTIONS)
    yield from (explained(cell, threads, 8) for cell in cells.others())


def explained(cell: Cell, threads: int, seconds: float) -> Job:
    settings = {"part": "explain"} | cell.about()
    # the first call, and others for that long
    return Job(settings, cell, 1.5, lambda: [alone(measure, cell, threads, seconds)], 0.5 * seconds, skippable=True)


def compared(cell: Cell, part: Fraction, threads: int) -> Job:
    repeats = 3 if cell.network == "mnist-cnn" or cell.B == 1 else 1

    def do() -> Lines:
        lines: Lines = alone(compare, cell, part, threads, repeats)
        for line in lines:
            if "skipped" not in line:
                line["peak_mib"] = alone(peer_memory, cell, line["peer"], threads)
        return lines

    classwise = part.members * part.classes / (cell.S * cell.K)
    guess = 1 + (3 + 10) * classwise + 150 / cell.K * part.images / cell.B  # loops; Integrated Gradients
    return Job({"part": "peers"} | cell.about(), cell, (1 + repeats) * guess, do)


def profiled(cell: Cell, threads: int) -> Job:
    return Job({"part": "profile"} | cell.about(), cell, 5, lambda: [alone(profile, cell, threads)])


def commit() -> str:
    """The last one that changed the library; a plus says that it was changed since."""

    def git(*arguments: str) -> str:
        return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True).stdout.strip()

    last = git("log", "-1", "--format=%h", "--", "src") or "unknown"
    return last + ("+" if git("diff", "HEAD", "--", "src") else "")


def run(todo: list[Job], results: Path, same: dict[str, object], clock: Clock, budget: float) -> None:
    """Measure what is not in the file yet."""
    names = (*todo[0].settings, *same)

    def key(line: dict[str, object]) -> list[object]:
        return [line.get(name) for name in names]

    done = [key(line) for line in read(results)] if results.exists() else []
    left = [job for job in todo if key(job.settings | same) not in done]
    print(f"{len(todo)} to measure, {len(todo) - len(left)} of them in {results.name} already", flush=True)
    for number, job in enumerate(left):
        minutes = sum(clock.job(other, budget) for other in left[number:]) / 60
        print(f"[{number + 1}/{len(left)}, about {minutes:.0f} min left] {describe(job)}:", end=" ", flush=True)
        start, call = perf_counter(), clock.call(job.cell)
        lines: Lines = [{"skipped": f"about {call:.0f} s a call"}] if job.skippable and call > budget else job.do()
        with results.open("a") as file:
            for line in lines:
                clock.learn(job.cell, line)
                file.write(json.dumps(job.settings | rounded(line) | same) + "\n")
        print(f"{brief(lines)} ({perf_counter() - start:.0f} s)", flush=True)


def describe(job: Job) -> str:
    cell = job.cell
    return f"{job.settings['part']} {cell.network} K={cell.K} S={cell.S} B={cell.B} {cell.side} px"


def brief(lines: Lines) -> str:
    names = ("ratio", "slower", "peak_mib", "skipped")
    return "; ".join(" ".join(f"{n} {rounded(line)[n]}" for n in names if n in line) for line in lines)


def rounded(value: Any) -> Any:
    """Four digits: more would be noise."""
    if isinstance(value, float):
        return float(f"{value:.4g}")
    if isinstance(value, dict):
        return {name: rounded(item) for name, item in value.items()}
    return [rounded(item) for item in value] if isinstance(value, list) else value


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a handful of small cells, into build/")
    parser.add_argument("--fresh", action="store_true", help="measure everything anew")
    parser.add_argument("--budget", type=float, default=60, help="seconds that one call may take (60)")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    arguments = parser.parse_args()
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # the profiler would report its start and stop
    docs = ROOT / "build" if arguments.quick else ROOT / "docs"
    results = ROOT / "build/performance.jsonl" if arguments.quick else performance.RESULTS
    results.parent.mkdir(exist_ok=True)
    if arguments.fresh:
        results.unlink(missing_ok=True)
    for name, peer in available().items():
        if isinstance(peer, str):
            print(f"{name}: {peer}. It is left out; pip install 'dubium[bench]' brings it.", flush=True)
    same = {"commit": commit(), "cpu": processor(), "threads": arguments.threads, "torch": torch.__version__}
    todo = list(jobs(arguments.quick, arguments.threads))
    run(todo, results, same, Clock(arguments.threads), arguments.budget)
    print(performance.write(results, docs))


if __name__ == "__main__":
    main()
