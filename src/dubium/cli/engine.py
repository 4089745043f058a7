"""`--engine` and `--address`: where the work of a command is done."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import torch
import typer

from dubium.errors import OptionError, lookup
from dubium.executor import Spread, in_turn
from dubium.run import ray_cluster
from dubium.run.ray import gpus

ENGINES = ("local", "ray")
Engine = Annotated[
    str, typer.Option(rich_help_panel="Running", help="local, or ray: on every core of this machine or of a cluster.")
]
Address = Annotated[
    str | None,
    typer.Option(
        metavar="auto|HOST:PORT",
        rich_help_panel="Running",
        help="The Ray cluster to join; one is started here if not given.",
    ),
]


@contextmanager
def spread_over(engine: str, address: str | None, threads: int | None) -> Iterator[Spread]:
    """What does the jobs of a command."""
    lookup("engine", dict.fromkeys(ENGINES), engine)
    if engine == "ray":
        with ray_cluster(address, threads=threads or 1) as spread:
            yield spread
        return
    if address is not None:
        raise OptionError(f"--address is {address!r}, which means something with --engine ray only.")
    yield in_turn


def threads_for(engine: str, threads: int | None) -> int | None:
    """By default a job on a cluster has one thread: several jobs at a time are faster than several threads."""
    return threads or (1 if engine == "ray" else None)


def device_for(engine: str, device: str | None) -> str | None:
    """A GPU where a cluster has any and nothing else is asked for; in this process, as the command says."""
    if engine == "local" and device and device.startswith("cuda") and not torch.cuda.is_available():
        raise OptionError(f"--device is {device}, but torch sees no such device here. Leave it out, or give cpu.")
    return device or (None if engine == "local" else "cuda" if gpus() else "cpu")
