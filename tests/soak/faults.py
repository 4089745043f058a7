"""Faults that a command meets, one trial each: afterwards the same command must end with an undisturbed run's bytes."""

import random
import resource
import shutil
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from tests.soak.commands import contents, difference, run, start

USERS = (0, 2)  # exit codes of a run that met a fault: it ended all the same, or said what it was


@dataclass(frozen=True)
class Bench:
    """Where trials are made, and what an undisturbed run of a command leaves and takes."""

    folder: Path
    place: dict[str, str]
    name: str
    expected: dict[str, bytes]
    seconds: float

    def out(self):
        """A folder for one trial, empty."""
        folder = self.folder / "trial" / self.name
        shutil.rmtree(folder, ignore_errors=True)
        return folder


def make_bench(folder, place, name):
    """Run the command twice; it must agree with itself."""
    folder, found = Path(folder), []
    for turn in ("first", "second"):
        out = folder / "whole" / turn / name  # a page names its folder
        shutil.rmtree(out, ignore_errors=True)
        code, said, seconds = run(name, place, out)
        assert code == 0, said
        found.append(contents(out))
    assert difference(*found) is None, difference(*found)
    return Bench(folder, place, name, found[0], seconds)


def finish(bench, out, *, spare=(), **how):
    """What is wrong with the folder after the same command was run to its end; None if nothing is.

    Args:
        spare: files that may be missing.
    """
    code, said, _ = run(bench.name, bench.place, out, **how)
    if code:
        return f"exit code {code} after the fault: {said[-400:]}"
    found = contents(out)
    spared = {name: bench.expected[name] for name in spare if name not in found and name in bench.expected}
    left = difference(bench.expected, {**found, **spared})
    return None if left is None else f"other bytes: {left}"


def kill(bench, rng):
    """Kill the run at a random moment, up to three times, and let it end."""
    out, hits = bench.out(), 0
    for _ in range(rng.choice((1, 1, 2, 3))):
        running = start(bench.name, bench.place, out)
        time.sleep(rng.uniform(0, 1.05) * bench.seconds)
        running.kill()
        hits += running.wait() == -9
    return finish(bench, out), {"kills": hits}


def fill_disk(bench, rng):
    """Let no file become larger than a random size."""
    out, size = bench.out(), int(10 ** rng.uniform(2, 5))
    code, said, _ = run(
        bench.name, bench.place, out, before=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
    )
    if code not in USERS or "Traceback" in said:
        return f"exit code {code} with files of at most {size} bytes: {said[-400:]}", {}
    left = [path.name for path in out.rglob("*.part")] if out.exists() else []
    return f"left behind: {left}" if left else finish(bench, out), {"refused": code == 2}


def small_disk(bench, rng):
    """Run on a disk of a random size, and go on where there is room."""
    disk, kilobytes = bench.folder / "disk", rng.randint(8, 400)
    disk.mkdir(exist_ok=True)
    if not mount(disk, f"size={kilobytes}k"):
        return None, {"not possible here": 1}
    try:
        code, said, _ = run(bench.name, bench.place, disk / bench.name, log=bench.folder / "words.log")
        if code not in USERS or "Traceback" in said:
            return f"exit code {code} on {kilobytes} kB: {said[-400:]}", {}
        subprocess.run(["mount", "-o", "remount,size=64m", str(disk)], check=True)
        return finish(bench, disk / bench.name, log=bench.folder / "words.log"), {"refused": code == 2}
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def read_only(bench, _rng):
    """Run on a folder that cannot be written."""
    disk = bench.folder / "disk"
    disk.mkdir(exist_ok=True)
    if not mount(disk, "ro"):
        return None, {"not possible here": 1}
    try:
        code, said, _ = run(bench.name, bench.place, disk / bench.name, log=bench.folder / "words.log")
    finally:
        subprocess.run(["umount", str(disk)], check=True)
    return (None if code == 2 and "Read-only file system" in said else f"exit code {code}: {said[-400:]}"), {}


def mount(folder, options):
    """Whether a small disk could be made."""
    command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
    return bool(shutil.which("mount")) and subprocess.run(command, capture_output=True).returncode == 0


def vanish(bench, rng):
    """Delete a random file of the folder while the run is at work.

    `reproduce` does not make maps again of which a finished result was made already: they may stay away.
    """
    out = bench.out()
    running = start(bench.name, bench.place, out)
    time.sleep(rng.uniform(0.05, 0.95) * bench.seconds)
    files = [path for path in out.rglob("*") if path.is_file() and may_vanish(bench.name, path.relative_to(out))]
    chosen = rng.choice(files) if files else None
    if chosen is not None:
        chosen.unlink(missing_ok=True)
    code = running.wait()
    if code not in USERS or "Traceback" in running.said():
        return f"exit code {code}: {running.said()[-400:]}", {}
    is_spare = chosen is not None and bench.name == "reproduce" and "evaluations" in chosen.parts
    spare = [str(chosen.relative_to(out))] if is_spare else []
    return finish(bench, out, spare=spare), {"refused": code == 2, "vanished": bool(files)}


def may_vanish(name, path):
    """Files that the same command makes again: not the settings, by which a folder is known, nor a saved posterior."""
    if path.name in (".dubium-lock", "settings.json", "run.json", "training.json"):
        return False
    return name != "train" or path.parts[0] == "training"


def race(bench, rng):
    """Start two runs on one folder at nearly the same time."""
    out = bench.out()
    first = start(bench.name, bench.place, out)
    time.sleep(rng.uniform(0, 0.5) * bench.seconds)
    second = start(bench.name, bench.place, out, log=bench.folder / "words.log")
    codes, said = (first.wait(), second.wait()), first.said() + second.said()
    if sorted(codes) not in ([0, 0], [0, 2]) or (2 in codes and "in use by process" not in said):
        return f"exit codes {codes}: {said[-400:]}", {}
    return finish(bench, out), {"refused": 2 in codes}


FAULTS = {
    "kill": kill,
    "full": fill_disk,
    "small-disk": small_disk,
    "read-only": read_only,
    "vanish": vanish,
    "race": race,
}


def try_fault(fault, bench, number):
    """What went wrong, or None, and what is to be counted."""
    return FAULTS[fault](bench, random.Random(f"{fault}/{bench.name}/{number}"))
