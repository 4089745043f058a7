"""Measure all architectures, or those whose key contains a word, and write docs/networks.md.

    python -m tests.zoo [--again] [word ...]

Goes on where it stopped: an architecture that has a line in benchmarks/results/zoo.jsonl is not measured again.
"""

import argparse
import gc
import json
import warnings
from pathlib import Path

import torch

from tests.posteriors.third_party import declare_torchvision_operators
from tests.zoo.architectures import zoo
from tests.zoo.measure import measure
from tests.zoo.page import Line, write_page

RESULTS, PAGE = Path("benchmarks/results/zoo.jsonl"), Path("docs/networks.md")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.zoo", description=__doc__)
    parser.add_argument("words", nargs="*", help="measure those whose key contains one of these")
    parser.add_argument("--again", action="store_true", help="measure also those that have a line")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(1)
    operators = declare_torchvision_operators()  # live as long as this object
    done = set() if options.again else {line["key"] for line in latest_lines(options.out)}
    chosen = [
        entry
        for key, entry in zoo().items()
        if key not in done and (not options.words or any(word in key for word in options.words))
    ]
    for entry in chosen:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found = measure(entry, options.repeats)
        except Exception as error:  # while the network is built, or runs by itself
            found = {"key": entry.key, "not built": f"{type(error).__name__}: {error}"[:400]}
        with options.out.open("a") as file:
            file.write(json.dumps(found) + "\n")
        print(json.dumps(found), flush=True)
        gc.collect()
    del operators
    if options.out == RESULTS:
        PAGE.write_text(write_page(latest_lines(RESULTS)))


def latest_lines(file: Path) -> list[Line]:
    """One line for each architecture of the zoo: the last that was written."""
    lines = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    by_key = {line["key"]: line for line in lines}
    return [by_key[key] for key in zoo() if key in by_key]


if __name__ == "__main__":
    main()
