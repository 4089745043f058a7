"""Where the time goes: the profiler's operators, in a few classes."""

import re
from collections.abc import Callable
from time import perf_counter

from torch.profiler import ProfilerActivity
from torch.profiler import profile as profiler

REST, PYTHON = "other operators", "Python, outside operators"
CLASSES = {  # the first pattern that is found in an operator's name
    "convolution backward": r"conv\w*_backward|conv_transpose|slow_conv\w*_backward",
    "convolution forward": r"conv",
    "pooling": r"pool",
    "upsampling": r"upsample|interpolate|grid_sample",
    "matrix products": r"mm$|mv$|matmul|linear|einsum|dot$",
    "reductions and softmax": r"sum|mean|amax|amin|aminmax|max$|min$|norm_scalar|softmax|logsumexp|argmax",
    "normalisation": r"batch_norm|native_norm|layer_norm|group_norm",
    "element by element": r"mul|add|sub|div|abs|relu|threshold|neg|exp|log|where|sqrt|clamp|sign|::(gt|lt|ge|le|eq|ne)",
    "memory: copies, fills, indexing": r"copy|clone|contiguous|cat$|stack|fill|zero|empty|index|select|slice|view|"
    r"reshape|expand|permute|transpose|as_strided|resize|to$|_to_copy|narrow|squeeze|gather|scatter|split|flatten|detach",
}


def shares(run: Callable[[], object], repeats: int = 3) -> dict[str, float]:
    """The part of the time that each class of operators takes, largest first; they add up to 1."""
    run()
    with profiler(activities=[ProfilerActivity.CPU]) as found:
        start = perf_counter()
        for _ in range(repeats):
            run()
        wall = perf_counter() - start
    times: dict[str, float] = {}
    for event in found.key_averages():
        name = kind(event.key)
        times[name] = times.get(name, 0.0) + event.self_cpu_time_total / 1e6
    times[PYTHON] = max(0.0, wall - sum(times.values()))
    whole = sum(times.values())
    return {name: time / whole for name, time in sorted(times.items(), key=lambda item: -item[1])}


def kind(operator: str) -> str:
    """The class of an operator such as `aten::convolution_backward`."""
    return next((name for name, pattern in CLASSES.items() if re.search(pattern, operator)), REST)
