"""Calls that torch's function modes do not see: of a `torch.autograd.Function`, a function of torch.jit, `torch.vmap`."""

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import torch
from torch import jit

See = Callable[[Any, Sequence[Any], dict[str, Any]], Any]
"""Takes a function, its arguments and those by name, and returns what the function does."""


def show_hidden_calls(see: See) -> Callable[[], None]:
    """From here on, `see` is given such calls of this thread; the function returned ends it.

    They are taken where torch itself looks for them: the class below `torch.autograd.Function`, of which
    `swish = Swish.apply` is a method, too, and what functions made by `torch.vmap` call.
    """
    thread = threading.get_ident()

    def call(function: Any, *args: Any, **kwargs: Any) -> Any:
        return see(function, args, kwargs) if threading.get_ident() == thread else function(*args, **kwargs)

    functions, batching = torch.autograd.Function.__mro__[1], torch.vmap.__globals__
    run_script, run_batched = jit.ScriptFunction.__call__, batching.get("vmap_impl")

    def apply(function: Any, *args: Any, **kwargs: Any) -> Any:
        return call(super(functions, function).apply, *args, **kwargs)  # type: ignore[misc]

    def run(script: Any, *args: Any, **kwargs: Any) -> Any:
        return call(partial(run_script, script), *args, **kwargs)

    def hide_again() -> None:
        with suppress(AttributeError):
            del functions.apply  # type: ignore[attr-defined]
        jit.ScriptFunction.__call__ = run_script
        if run_batched is not None:
            batching["vmap_impl"] = run_batched

    functions.apply = classmethod(apply)  # type: ignore[attr-defined]
    jit.ScriptFunction.__call__ = run
    if run_batched is not None:
        batching["vmap_impl"] = partial(call, run_batched)
    return hide_again
