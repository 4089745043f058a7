"""`python -m tests.soak [PART ...] [--trials N]`: trials of faults, counted into benchmarks/results/soak.json.

Parts are FAULT:COMMAND (`kill:train`, `race:explain`, ...), `calls`, `threads` and `server`; without any, all. A part
that was stopped goes on: the trials that are counted are not made again. At the end, docs/trust.md gets the table.
`--trials N` makes N kills, one trial of each other fault, and a tenth of the calls.
"""

import json
import os
import sys
import tempfile
import time
from functools import cache
from pathlib import Path

import torch

from dubium.files import write_json
from tests.fuzz.page import write_section
from tests.fuzz.parts import commits_until_now
from tests.soak.calls import grow, thread_errors
from tests.soak.commands import COMMANDS, import_everything, prepare
from tests.soak.faults import FAULTS, make_bench, try_fault
from tests.soak.page import soak_table
from tests.soak.server import try_server

DEFAULT, PAGE = Path("benchmarks/results/soak.json"), Path("docs/trust.md")
RESULTS = Path(os.environ.get("DUBIUM_SOAK", DEFAULT))
TRIALS = {"kill": 50, "full": 20, "small-disk": 10, "read-only": 1, "vanish": 20, "race": 20}
CALLS, THREADS = 2000, 4
MOST = 16 * 2**20  # bytes that so many calls may add
PARTS = [*(f"{fault}:{name}" for fault in FAULTS for name in COMMANDS), "calls", "threads", "server"]


def read_results():
    return json.loads(RESULTS.read_text()) if RESULTS.exists() else {}


def count(part, failure, counts):
    """Add one trial to the results, on disk at once."""
    results = read_results()
    row = results.setdefault(part, {"trials": 0, "survived": 0, "failures": []})
    row["trials"] += 1
    row["survived"] += failure is None
    row["commit"] = commits_until_now(row.get("commit"))
    if failure is not None:
        row["failures"].append(f"trial {row['trials'] - 1}: {failure}")
    for name, value in counts.items():
        row[name] = row.get(name, 0) + int(value)
    write_json(RESULTS, dict(sorted(results.items())))
    print(f"{time.strftime('%H:%M:%S')} {part} {row['trials']}: {failure or 'as undisturbed'}", flush=True)


def run_part(part, folder, trials):
    """Make the trials of a part that are not counted yet."""
    done = read_results().get(part, {}).get("trials", 0)
    fault, _, name = part.partition(":")
    if not name and not done:
        run_calls(part, folder, CALLS // 10 if trials else CALLS)
    wanted = 0 if not name else TRIALS[fault] if not trials else trials if fault == "kill" else 1
    for number in range(done, wanted):
        count(part, *try_fault(fault, find_bench(folder, name), number))


@cache
def find_bench(folder, name):
    """What an undisturbed run of a command leaves, made once."""
    return make_bench(folder, prepare(folder), name)


def run_calls(part, folder, calls):
    """Make the calls of a part without a command."""
    if part == "calls":
        added = grow(calls)
        count(part, None if added <= MOST else f"{added} bytes more", {"calls": calls, "bytes added": added})
    elif part == "threads":
        wrong = thread_errors(THREADS, calls // 20)
        count(part, f"other maps: {wrong[:5]}" if wrong else None, {"calls": THREADS * (calls // 20)})
    else:
        count(part, *try_server(folder, calls // 10, calls))


def main(words):
    trials = int(words.pop(words.index("--trials") + 1)) if "--trials" in words else None
    named = [word for word in words if word != "--trials"] or PARTS
    unknown = [part for part in named if part not in PARTS]
    if unknown:
        sys.exit(f"No part called {', '.join(unknown)}. There are {', '.join(PARTS)}.")
    torch.set_num_threads(1)
    import_everything()
    with tempfile.TemporaryDirectory(prefix="dubium-soak-") as folder:
        for part in sorted(named, key=lambda part: ":" not in part):  # calls last: a fork after them would hang
            run_part(part, Path(folder), trials)
    if RESULTS == DEFAULT:
        write_section(PAGE, "make soak", soak_table(read_results()))
    failed = {part: row["failures"] for part, row in read_results().items() if row["failures"]}
    print(json.dumps(failed, indent=1) if failed else "All trials ended as an undisturbed run does.")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main(sys.argv[1:])
