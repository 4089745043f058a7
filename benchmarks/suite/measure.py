"""One cell in a process of its own: a process's high-water mark of memory never falls."""

import os
import resource
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter

import torch
from torch import Tensor, nn

import dubium
from benchmarks._measure import forwards, machine, turns, unit
from benchmarks.suite.cells import Cell, Fraction
from benchmarks.suite.peers import PEERS, Peer
from benchmarks.suite.profile import shares

MOST = 15  # repeats


def started(threads: int) -> dict[str, object]:
    """What the numbers depend on beside the cell. The load shows whether the machine had other things to do."""
    torch.set_num_threads(threads)
    warnings.simplefilter("ignore")  # one network has no epistemic uncertainty; that is not the point here
    return machine() | {"cpu": processor(), "load": round(os.getloadavg()[0], 1)}


def processor() -> str:
    """The name of the processor, where Linux tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return "unknown"
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), "unknown")


def speed(cell: Cell, threads: int) -> float:
    """Seconds of one forward pass, roughly: enough to plan with."""
    started(threads)
    networks, x = cell.build()
    return unit({name: min(times) for name, times in turns(forwards(networks[0], x[0], (40,)), 2).items()})


def measure(cell: Cell, threads: int, seconds: float) -> dict[str, object]:
    """Time, peak memory and unit. `seconds` is what the repeats may take; a call that takes longer is made once."""
    about = started(threads)
    networks, x = cell.build()
    run = partial(dubium.explain, networks, x, memory=cell.limit)
    peak, first = watched(run, networks, x)
    plain = forwards(networks[0], x[0], cell.forward_batches)
    once = sum(values[0] for values in turns(plain, 1).values())
    repeats = int(min(MOST, seconds / (first + once)))
    times = turns(plain | ({"explain": run} if repeats else {}), max(1, repeats), warm_up=0)
    medians = {name: median(values) for name, values in times.items()}
    calls = times.get("explain", [first])
    one = unit(medians)
    return {
        "seconds": median(calls), "range": [min(calls), max(calls)], "repeats": len(calls), "unit_us": 1e6 * one,
        "ratio": median(calls) / (cell.rows * one), "peak_mib": peak / 2**20, **about,
    }  # fmt: skip


def watched(run: Callable[[], object], networks: list[nn.Module], x: Tensor) -> tuple[int, float]:
    """Bytes by which a first call raises the high-water mark, and its seconds."""
    explain_in_little(networks[:1], x[:1])  # what torch itself needs for its kernels
    before, start = highest(), perf_counter()
    run()
    return highest() - before, perf_counter() - start


def highest() -> int:
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def compare(cell: Cell, part: Fraction, threads: int, repeats: int) -> list[dict[str, object]]:
    """`explain` and all peers that can be imported, in turns; one line each."""
    about = started(threads)
    networks, x = cell.build()
    peers, lines = available(), []
    runs = {name: peer.part(networks, x, part, cell.K) for name, peer in peers.items() if isinstance(peer, Peer)}
    run = partial(dubium.explain, networks, x)
    times = turns({"explain": run} | runs, repeats, at_least=2)  # theirs are long, and leave much memory behind
    ours = median(times["explain"])
    for name, peer in peers.items():
        if isinstance(peer, str):
            lines.append({"peer": name, "skipped": peer} | about)
            continue
        share = peer.share(cell, part)
        lines.append(
            {
                "peer": name, "seconds": median(times[name]) / share, "explain_seconds": ours, "repeats": repeats,
                "slower": median(times[name]) / share / ours, "measured": peer.says(cell, part), **about,
            }
        )  # fmt: skip
    return lines


def available() -> dict[str, Peer | str]:
    """Peers by name, or why one cannot be had."""
    found: dict[str, Peer | str] = {}
    for name, load in PEERS.items():
        try:
            found[name] = load()
        except (ImportError, RuntimeError, OSError) as error:  # an extension of another torch raises all three
            found[name] = f"cannot be imported ({type(error).__name__})"  # its text may name folders
    return found


def peer_memory(cell: Cell, name: str, threads: int) -> float:
    """Mebibytes by which a peer raises the high-water mark, for one member and class: it frees them after each."""
    started(threads)
    networks, x = cell.build()
    peer = PEERS[name]()
    peer.least(networks[:1], x[:1])()
    before = highest()
    peer.least(networks, x)()
    return (highest() - before) / 2**20


def profile(cell: Cell, threads: int) -> dict[str, object]:
    about = started(threads)
    networks, x = cell.build()
    return {"shares": shares(partial(dubium.explain, networks, x))} | about


def explain_in_little(networks: list[nn.Module], x: Tensor) -> None:
    """Explain within about as little memory as the images allow."""
    limit = 2**20
    while True:
        try:
            dubium.explain(networks, x, memory=limit)
            return
        except dubium.errors.OptionError:
            limit *= 2
