"""Calls in a process of their own, with a limit on time, and what became of them."""

import json
import os
import resource
import signal
import sys
import warnings
from dataclasses import dataclass

from dubium.errors import DubiumError

GIB = 2**30
PATIENCE = 600  # seconds for a call that waits instead of computing; on a busy machine others wait too


@dataclass(frozen=True)
class Outcome:
    """How a call ended.

    Args:
        error: the class of the exception; "" if there was none, "hang" or "crash" if the process had to be ended.
        is_ours: whether the exception is one of `dubium.errors`.
        growth: bytes by which the process grew at most.
    """

    error: str
    is_ours: bool
    message: str
    growth: int


def call_apart(call, seconds=30):
    """Run `call()` in a forked process, for as many seconds of the processor's time."""
    receive, send = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # newer Pythons warn of forks of processes with threads
        child = os.fork()
    if child == 0:
        os.close(receive)
        signal.setitimer(signal.ITIMER_PROF, seconds)
        signal.alarm(PATIENCE)
        before, error, is_ours, message = resident_bytes(), "", False, ""
        try:
            call()
        except BaseException as found:
            error, is_ours, message = type(found).__name__, isinstance(found, DubiumError), str(found)
        growth = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before
        os.write(send, json.dumps([error, is_ours, message[:2000], max(0, growth)]).encode())
        os._exit(0)
    os.close(send)
    with os.fdopen(receive, "rb") as file:
        content = file.read()
    _, status = os.waitpid(child, 0)
    if content:
        return Outcome(*json.loads(content))
    ended = os.WTERMSIG(status)
    return Outcome("hang" if ended in (signal.SIGALRM, signal.SIGPROF) else "crash", False, f"status {status}", 0)


def resident_bytes():
    """What the process has in memory now."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def assert_refused(call, name, *, seconds=30, most=GIB):
    """The call ends in time with an error of ours that names the file, and without much memory."""
    found = call_apart(call, seconds)
    assert found.is_ours, found
    assert name in found.message, found
    assert found.growth < most, found


IS_LINUX = sys.platform == "linux"
