"""`--engine`, `--address` and `--device`: where the work of a command is done."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from dubium.choices import ENGINES
from dubium.cli._options import one_of
from dubium.errors import OptionError

if TYPE_CHECKING:
    from dubium.executor import Executor

EngineName = Annotated[
    str,
    typer.Option(
        rich_help_panel="Running", **one_of("engine", ENGINES),
        help="local, or ray: on every core of this machine or of a cluster.",
    ),
]  # fmt: skip
Address = Annotated[
    str | None,
    typer.Option(
        metavar="auto|HOST:PORT",
        rich_help_panel="Running",
        help="The Ray cluster to join; one is started here if not given.",
    ),
]


@contextmanager
def executor_for(engine: str, address: str | None, threads: int | None) -> "Iterator[Executor]":
    """The executor that `--engine` names; a cluster that was started for it ends with the block."""
    if engine == "ray":
        from dubium.run.ray import ray_cluster

        with ray_cluster(address, threads=threads or 1) as executor:
            yield executor
        return
    if address is not None:
        raise OptionError(f"--address is {address!r}, which means something with --engine ray only.")
    from dubium.executor import in_turn

    yield in_turn


def threads_for(engine: str, threads: int | None) -> int | None:
    """Threads of a job: on a cluster one by default, since several jobs at a time are faster than several threads."""
    return threads or (1 if engine == "ray" else None)


def device_for(engine: str, device: str | None) -> str | None:
    """The device that was asked for, or a GPU where a cluster has any; None leaves the choice to the command."""
    if engine == "ray":
        from dubium.run.ray import has_gpus

        return device or ("cuda" if has_gpus() else "cpu")
    if device and device.startswith("cuda"):
        import torch

        if not torch.cuda.is_available():
            raise OptionError(f"--device is {device}, but torch sees no such device here. Leave it out, or give cpu.")
    return device
