"""The commands that are tried, how they are started, and what they leave. To add one, add its line to `COMMANDS`."""

import gc
import os
import re
import signal
import time
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from tests import piles

COMMANDS = {
    "train": "train --dataset {images} --scale smoke --epochs 6 --members 3 --threads 1 --out {out}",
    "explain": "explain {run} --dataset {images} --top 24 --batch 8 --threads 1 --out {out}",
    "evaluate": (
        "evaluate anomaly {run} --dataset {images} --scale smoke --images 12 --candidates 24 "
        "--methods grad,ua-backprop --threads 1 --out {out}"
    ),
    "reproduce": "reproduce random --scale smoke --dataset mnist --threads 1 --out {out}",
}
TIMED = ("metrics.jsonl", ".dubium-lock")  # seconds of each epoch; who owned the folder last
SECONDS = re.compile(rb'"seconds": [\d.]+|\d+\.\d min')  # that `reproduce` writes beside its numbers, and on its page
IMPORTED = (
    *("dubium.cli", "dubium.evaluation.protocols", "dubium.report.protocols", "dubium.reproduce.page"),
    *("dubium.reproduce.runner", "dubium.run", "dubium.training"),
)
LARGE = ("torch._dynamo", "pandas", "pydantic", "matplotlib.figure", "matplotlib.backends.backend_agg", "scipy.stats")


@dataclass(frozen=True)
class Running:
    """A command in a process of its own, forked from this one so that nothing is imported again."""

    pid: int
    log: Path

    def kill(self):
        """End it at once, with everything that it started."""
        for end in (os.killpg, os.kill):
            try:
                end(self.pid, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                continue
            return

    def wait(self):
        """Its exit code; negative for a signal."""
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    def said(self):
        return " ".join(self.log.read_text(errors="replace").split())


def prepare(folder):
    """What the commands work on: a posterior and images, made once."""
    folder = Path(folder)
    run, images = folder / "run", folder / "images.npz"
    if not (run / "posterior.json").exists():
        piles.posterior(run)
    if not images.exists():
        piles.arrays(folder / "new.npz", 240)
        (folder / "new.npz").replace(images)
    return {"run": str(run), "images": str(images)}


def import_everything():
    """Import what commands import, so that a fork begins with its work; nothing is computed, or forks would hang."""
    for name in IMPORTED:
        import_module(name)
    for name in LARGE:
        if find_spec(name.partition(".")[0]):
            import_module(name)


def start(name, place, out, *, before=None, log=None):
    """Start a command; `before` is called in its process first, `log` is where its words go."""
    log = Path(log or f"{out}.log")
    log.parent.mkdir(parents=True, exist_ok=True)
    words = COMMANDS[name].format(**place, out=out).split()
    gc.freeze()
    pid = os.fork()
    if pid:
        return Running(pid, log)
    code = 70
    try:
        os.setsid()
        handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(handle, 1)
        os.dup2(handle, 2)
        import sys

        from dubium.cli import app

        sys.argv = ["dubium", *words]
        os.environ.update(DUBIUM_DATA="", XDG_CACHE_HOME=str(log.parent))  # no dataset is at hand: images are drawn
        if before is not None:
            before()
        app()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    finally:
        os._exit(code)


def run(name, place, out, **how):
    """Exit code, words and seconds of a command."""
    begin = time.monotonic()
    running = start(name, place, out, **how)
    code = running.wait()
    return code, running.said(), time.monotonic() - begin


def contents(folder):
    """Every file by name with its bytes, without timings; TensorBoard's files, if it is here, have a time as name."""
    folder = Path(folder)
    files = (path for path in sorted(folder.rglob("*")) if path.is_file() and path.name not in TIMED)
    files = (path for path in files if path.parent.name != "tensorboard")
    return {str(path.relative_to(folder)): SECONDS.sub(b"", path.read_bytes()) for path in files}


def difference(expected, found):
    """Which files differ, or None."""
    names = sorted(name for name in expected.keys() | found.keys() if expected.get(name) != found.get(name))
    return ", ".join(names) or None
