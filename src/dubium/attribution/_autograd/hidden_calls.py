"""Calls that torch's function modes do not see: of a `torch.autograd.Function`, of torch.jit, of `torch.vmap`."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import jit

OnCall = Callable[[Any, Sequence[Any], dict[str, Any]], Any]
"""Takes a function, its arguments and those by name, and returns what the function does."""

FUNCTION_BASE: Any = torch.autograd.Function.__mro__[1]
"""The base class of `torch.autograd.Function`. Its `apply` is replaced, so that aliases (`swish = Swish.apply`) are
caught too."""

SCRIPTS: Any = jit.ScriptFunction

BATCHING = torch.vmap.__globals__
"""The globals of torch's module in which functions that `torch.vmap` has made look up `vmap_impl`, which runs them."""


TURN = threading.RLock()
"""What is replaced is torch's own, and there once for all threads."""


@contextmanager
def show_hidden_calls(on_call: OnCall) -> Iterator[None]:
    """Within the block, `on_call` is given such calls of this thread; another thread waits for its turn."""
    with TURN:
        yield from replace_entries(on_call)


def replace_entries(on_call: OnCall) -> Iterator[None]:
    before = vars(FUNCTION_BASE).get("apply")  # another block's, if this one is inside of it
    thread, run_script, run_batched = threading.get_ident(), SCRIPTS.__call__, BATCHING.get("vmap_impl")

    def report(function: Any, *args: Any, **kwargs: Any) -> Any:
        return on_call(function, args, kwargs) if threading.get_ident() == thread else function(*args, **kwargs)

    def apply(function: Any, *args: Any, **kwargs: Any) -> Any:
        return report(super(FUNCTION_BASE, function).apply, *args, **kwargs)

    def call(script: Any, *args: Any, **kwargs: Any) -> Any:
        return report(partial(run_script, script), *args, **kwargs)

    FUNCTION_BASE.apply = classmethod(apply)
    SCRIPTS.__call__ = call
    BATCHING["vmap_impl"] = run_batched and partial(report, run_batched)
    try:
        yield
    finally:
        del FUNCTION_BASE.apply
        if before is not None:
            FUNCTION_BASE.apply = before
        SCRIPTS.__call__ = run_script
        BATCHING["vmap_impl"] = run_batched
