"""TensorBoard, where it is installed."""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def tensorboard_writer(folder: Path) -> Iterator[Callable[[int, dict[str, Any]], None]]:
    """A function `(member, record)` that writes an epoch's figures to event files, or does nothing."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what it says about its own dependencies is not the user's to mend
            from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        yield lambda _member, _record: None
        return
    writer: Any = SummaryWriter(str(folder))

    def write(member: int, record: dict[str, Any]) -> None:
        for name in ("loss", "accuracy", "lr"):
            writer.add_scalar(f"{name}/member-{member}", record[name], record["epoch"])
        writer.flush()

    try:
        yield write
    finally:
        writer.close()
