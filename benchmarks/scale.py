"""Throughput against workers, and what ImageNet would cost.

    python -m benchmarks.scale workers [IMAGES [REPEATS]]
    python -m benchmarks.scale imagenet [REPEATS]

`workers`: the embedded ensemble explains IMAGES digits (512) in this process and on Ray clusters of one and of two
workers, a thread each, in turn; `ratio` is the throughput over that of this process, with workers already started.
`cpu_ratio` is the processor time of this process over that of all processes of the cluster: what Ray itself costs,
whatever else the machine is doing.

`imagenet`: seconds that one core takes for an image of 224 x 224 and one network (ResNet-18), and what follows for
1.28 million images, five networks and 1,000 classes. All classes take `rest + 1000 * a_class`: both are read off two
networks with few classes, since a class costs the same in each. `classes=20` is measured as it is.
"""

import json
import logging
import os
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter

import torch
from torch import nn

import dubium
from benchmarks._measure import machine, seconds
from dubium.data.dataset import Dataset
from dubium.executor import Executor, in_turn
from dubium.models import resnet18
from dubium.run import Settings, explain_dataset, open_work, ray_cluster
from dubium.run.sources import DatasetImages

IMAGES, NETWORKS, CLASSES, FEW = 1_281_167, 5, 1000, 20
HEADS = (8, 32)  # classes of the two networks that the cost of a class is read off
# Assumptions, not measurements: prices an hour in dollars, and float32 operations a second that a GPU sustains.
CORE, GPU, GPU_SPEED = 0.04, 2.0, 10e12
FORWARD = 3.6e9  # operations of ResNet-18 on one image, a multiplication and an addition being two


def workers(images: int = 512, repeats: int = 3) -> None:
    digits = dubium.data.load("demo")
    rows = torch.arange(images) % len(digits)
    assert digits.labels is not None
    many = Dataset(digits.images[rows], digits.labels[rows], digits.classes, digits.name, digits.split)
    settings = Settings({"run": "demo"}, {"dataset": "demo"}, batch=16, shard=16, threads=1)
    few, work = (open_work(settings, source=DatasetImages(data)) for data in (digits, many))
    times: dict[int, list[tuple[float, float]]] = {0: [], 1: [], 2: []}

    def time_run(executor: Executor) -> tuple[float, float]:
        with TemporaryDirectory() as folder:
            explain_dataset(few, Path(folder) / "few", engine=executor)  # a warm-up: workers start and import torch
            start, used = perf_counter(), processor_time()
            explain_dataset(work, Path(folder) / "many", engine=executor)
            return perf_counter() - start, processor_time() - used

    for _ in range(repeats):
        times[0].append(time_run(in_turn))
        for count in (1, 2):
            with started(count) as executor:
                times[count].append(time_run(executor))
    middle = {count: [median(values) for values in zip(*taken, strict=True)] for count, taken in times.items()}
    for count, (wall, used) in middle.items():
        each = {"workers": count or "in this process", "seconds": round(wall, 2), "cpu_seconds": round(used, 2)}
        ratios = {"ratio": round(middle[0][0] / wall, 3), "cpu_ratio": round(middle[0][1] / used, 3)}
        print(
            json.dumps({**each, **ratios, "images_per_second": round(images / wall, 2), "images": images, **machine()})
        )


def processor_time() -> float:
    """Seconds that this process and those it started have used."""
    parents, used = {}, {}
    for file in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it may have ended meanwhile
            values = file.read_text().rpartition(")")[2].split()
            parents[int(file.parent.name)] = int(values[1])
            used[int(file.parent.name)] = (int(values[11]) + int(values[12])) / os.sysconf("SC_CLK_TCK")
    mine, more = {os.getpid()}, {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in more}:
        mine |= more
    return sum(used[pid] for pid in mine)


def started(count: int):
    """A cluster of so many workers."""
    import ray

    ray.shutdown()
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    ray.init("local", num_cpus=count, include_dashboard=False, logging_level=logging.ERROR)
    return ray_cluster()


def imagenet(repeats: int = 3) -> None:
    torch.set_num_threads(1)
    x = torch.rand(2, 3, 224, 224)
    pairs = {classes: [imagenet_resnet18(classes, seed) for seed in range(2)] for classes in (*HEADS, CLASSES)}
    functions = {str(head): partial(dubium.explain, pairs[head], x) for head in HEADS}
    functions["few"] = partial(dubium.explain, pairs[CLASSES], x, classes=FEW)
    functions["forward"] = partial(dubium.uncertainty, pairs[CLASSES], x)
    taken = {name: value / len(x) / 2 for name, value in seconds(functions, repeats).items()}
    a_class = (taken[str(HEADS[1])] - taken[str(HEADS[0])]) / (HEADS[1] - HEADS[0])
    rest = max(0.0, taken[str(HEADS[0])] - HEADS[0] * a_class)
    measured = {"forward": taken["forward"], "a_class": a_class, "rest": rest}
    print(json.dumps({f"{name}_seconds": round(value, 4) for name, value in measured.items()} | machine()))
    for name, one in (("all", rest + CLASSES * a_class), (FEW, taken["few"]), (0, taken["forward"])):
        print(json.dumps({"classes": name, **estimate(one, taken["forward"])}))


def imagenet_resnet18(classes: int, seed: int) -> nn.Module:
    """The stem that images of 224 x 224 need: a quarter of their height and width before the first block."""
    torch.manual_seed(seed)
    network = resnet18(classes=classes)
    network.conv1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False)
    network.relu = nn.Sequential(nn.ReLU(), nn.MaxPool2d(3, 2, 1))
    return network.eval()


def estimate(one: float, forward: float) -> dict[str, object]:
    """From seconds for one image and network on one core to the whole of ImageNet."""
    core_hours = one * NETWORKS * IMAGES / 3600
    gpu_hours = one / forward * FORWARD / GPU_SPEED * NETWORKS * IMAGES / 3600  # as many forwards as a core's time buys
    return {
        "seconds_per_image_and_network": round(one, 3),
        "forwards": round(one / forward, 1),
        "core_hours": round(core_hours),
        "days_on_1000_cores": round(core_hours / 24_000, 2),
        "dollars_on_cores": round(core_hours * CORE),
        "gpu_hours_if": round(gpu_hours),
        "dollars_on_gpus_if": round(gpu_hours * GPU),
        "assumed": {"core_hour": CORE, "gpu_hour": GPU, "gpu_operations_per_second": GPU_SPEED},
    }


if __name__ == "__main__":
    {"workers": workers, "imagenet": imagenet}[sys.argv[1]](*map(int, sys.argv[2:]))
