"""Timing that can be trusted on a noisy machine: interleaved repeats, medians, ratios within one run."""

import platform
from collections.abc import Callable, Mapping
from statistics import median
from time import perf_counter

import torch
from torch import Tensor, nn

BATCHES = (40, 80, 160, 640)
TURN = 0.1  # seconds


def machine() -> dict[str, object]:
    return {"machine": platform.machine(), "threads": torch.get_num_threads(), "torch": torch.__version__}


def turns(
    functions: Mapping[str, Callable[[], object]],
    repeats: int = 7,
    warm_up: int = 1,
    at_least: float = TURN,
    clock: Callable[[], float] = perf_counter,
) -> dict[str, list[float]]:
    """The times of each function; they take turns, so that a busy moment hits all of them.

    A short call is made again and again in its turn, for `at_least` so many seconds, as in a loop of its own: else it
    would mostly wait for the memory that the others have left behind. `clock=process_time` counts this process alone,
    for a machine that others use, too.
    """
    times: dict[str, list[float]] = {name: [] for name in functions}
    for turn in range(warm_up + repeats):
        for name, function in functions.items():
            start, calls, taken = clock(), 0, 0.0
            while taken < at_least:
                function()
                calls, taken = calls + 1, clock() - start
            if turn >= warm_up:
                times[name].append(taken / calls)
    return times


def seconds(functions: Mapping[str, Callable[[], object]], repeats: int = 7) -> dict[str, float]:
    """The median time of each function."""
    return {name: median(values) for name, values in turns(functions, repeats).items()}


def forwards(network: nn.Module, image: Tensor, batches: tuple[int, ...] = BATCHES) -> dict[str, Callable[[], object]]:
    """Plain forward passes, by batch size."""

    def run(x: Tensor) -> Tensor:
        with torch.no_grad():
            return network(x)

    return {f"forward {n}": (lambda n=n: run(image[None].expand(n, -1, -1, -1).contiguous())) for n in batches}


def unit(times: Mapping[str, float]) -> float:
    """Seconds of one forward pass of one image at the best batch size."""
    return min(value / int(name.split()[1]) for name, value in times.items() if name.startswith("forward"))
