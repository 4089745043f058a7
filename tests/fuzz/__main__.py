"""Damage files by the thousand, read them, and write what became of them to docs/trust.md.

    python -m tests.fuzz [--files 10000] [--part 500] [--again] [--case INDEX] [reader ...]

Goes on where it stopped: benchmarks/results/fuzz.json says how many files of each reader were tried. In turn, each
reader gets a part, so that an early end leaves all of them tried alike. `--again` forgets earlier results.
"""

import argparse
import json
from pathlib import Path

from dubium.files import write_json
from tests.fuzz.page import fuzz_table, write_section
from tests.fuzz.parts import Tally, run_part, tally_of
from tests.fuzz.worker import READERS
from tests.fuzz.worker import main as run_worker

RESULTS, PAGE = Path("benchmarks/results/fuzz.json"), Path("docs/trust.md")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("readers", nargs="*", help="only readers whose name contains one of these")
    parser.add_argument("--files", type=int, default=10_000, help="of each reader, in all")
    parser.add_argument("--part", type=int, default=500, help="files of a reader before the next one's turn")
    parser.add_argument("--again", action="store_true", help="forget what was tried before")
    parser.add_argument("--case", type=int, help="try this one file of the readers, and show what becomes of it")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    chosen = [n for n in READERS if not options.readers or any(word in n for word in options.readers)]
    if options.case is not None:
        for name in chosen:
            run_worker(name, options.case, options.case + 1)
        return
    tallies: dict[str, Tally] = json.loads(options.out.read_text()) if options.out.exists() else {}
    if options.again:
        tallies = {name: found for name, found in tallies.items() if name not in chosen}
    while waiting := [name for name in chosen if tally_of(tallies, name)["files"] < options.files]:
        for name in waiting:
            before = tally_of(tallies, name)
            tallies[name] = run_part(name, before, min(options.part, options.files - before["files"]))
            write_json(options.out, {name: tallies[name] for name in READERS if name in tallies})
            print(name, json.dumps(tallies[name]["outcomes"]), flush=True)
    if options.out == RESULTS:
        write_section(PAGE, "make fuzz", fuzz_table(json.loads(RESULTS.read_text())))


if __name__ == "__main__":
    main()
