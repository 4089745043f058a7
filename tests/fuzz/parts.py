"""Some files of a reader in worker processes; a new one is started after a hang or a crash only."""

import json
import os
import selectors
import subprocess
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from tests.fuzz.worker import GOOD

Tally = dict[str, Any]
"""{"files", "next": the number of the next file, "outcomes": {name: count}, "growth": most bytes, "seconds": most,
"breakages": the first few lines, "commit": of which the code was}."""

PATIENCE = 300  # seconds without a line: much, since the run is a guest on a busy machine
BEGINNING = 1200  # seconds until the first line, for which much is imported
KEPT = 20  # breakages that are written down


def tally_of(tallies: Mapping[str, Tally], name: str) -> Tally:
    """What is known of a reader; nothing, at first."""
    found = tallies.get(name) or {"files": 0, "outcomes": {}, "growth": 0, "seconds": 0.0, "breakages": []}
    return {"next": found["files"], **found}


def run_part(name: str, before: Tally, count: int) -> Tally:
    """The tally after `count` more files."""
    tally = {**before, "outcomes": dict(before["outcomes"]), "breakages": [*before["breakages"]]}
    stop = tally["files"] + count
    while tally["files"] < stop:
        for line in worker_lines(name, tally["next"], tally["next"] + stop - tally["files"]):
            add_line(tally, line)
    tally["outcomes"] = dict(sorted(tally["outcomes"].items()))
    tally["commit"] = commits_until_now(before.get("commit"))
    return tally


def commits_until_now(before: str | None) -> str:
    """The commit that the code is of, after the one that a run began with; "unknown" where there is none."""
    found = subprocess.run(["git", "rev-parse", "--short=7", "HEAD"], capture_output=True, text=True)
    now = found.stdout.strip() or "unknown"
    return now if before in (None, now) else f"{before.partition(' to ')[0]} to {now}"


def add_line(tally: Tally, line: Mapping[str, Any]) -> None:
    """Count one file."""
    tally["files"], tally["next"] = tally["files"] + 1, line["index"] + 1
    tally["outcomes"][line["outcome"]] = tally["outcomes"].get(line["outcome"], 0) + 1
    tally["growth"], tally["seconds"] = max(tally["growth"], line["growth"]), max(tally["seconds"], line["seconds"])
    if line["outcome"] not in GOOD and len(tally["breakages"]) < KEPT:
        tally["breakages"].append(dict(line))


def worker_lines(name: str, start: int, stop: int) -> Iterator[dict[str, Any]]:
    """The lines of one worker; the last is ours if it hangs or dies."""
    command = [sys.executable, "-m", "tests.fuzz.worker", name, str(start), str(stop)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment) as worker:
        assert worker.stdout is not None
        assert worker.stderr is not None
        os.set_blocking(worker.stderr.fileno(), False)
        done, waiting, told = start, selectors.DefaultSelector(), b""
        waiting.register(worker.stdout, selectors.EVENT_READ)
        while done < stop:
            if not waiting.select(BEGINNING if done == start else PATIENCE):
                worker.kill()
                yield {"index": done, "outcome": "hang", "growth": 0, "seconds": float(PATIENCE), "message": ""}
                return
            told = (told + (worker.stderr.read() or b""))[-2000:]
            found = worker.stdout.readline()
            if not found:
                if done == start and b"Traceback" in told:
                    raise RuntimeError(f"The worker of {name} did not begin: {told.decode(errors='replace')}")
                text = f"exit code {worker.wait()}: {told.decode(errors='replace')[-200:]}"
                yield {"index": done, "outcome": "crash", "growth": 0, "seconds": 0.0, "message": text}
                return
            line = json.loads(found)
            done = line["index"] + 1
            yield line
