"""Activation checkpoints (`torch.utils.checkpoint`): parts of a forward pass that the backward pass computes again."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any

from torch.utils import checkpoint

IS_OFF: ContextVar[bool] = ContextVar("is_off", default=False)

GENERATOR = "_checkpoint_without_reentrant_generator"
"""What torch runs before the function of a checkpoint that is not reentrant, up to `yield`, and after it."""


@contextmanager
def without_checkpoints() -> Iterator[None]:
    """Within, a checkpoint calls its function and keeps what autograd needs of it: nothing is computed again."""
    let_checkpoints_ask()
    token = IS_OFF.set(True)
    try:
        yield
    finally:
        IS_OFF.reset(token)


@cache
def let_checkpoints_ask() -> None:
    """Let torch's checkpoints ask `IS_OFF`, once for the whole process."""
    reentrant: Any = checkpoint.CheckpointFunction
    around_function = getattr(checkpoint, GENERATOR)

    def apply(own_class: Any, function: Any, preserves_random_state: bool, *args: Any) -> Any:
        if IS_OFF.get():
            return function(*args)
        return super(reentrant, own_class).apply(function, preserves_random_state, *args)

    def generate(*args: Any, **kwargs: Any) -> Iterator[None]:
        if IS_OFF.get():
            yield
        else:
            yield from around_function(*args, **kwargs)

    reentrant.apply = classmethod(apply)
    setattr(checkpoint, GENERATOR, generate)
