"""The section of docs/trust.md that says what the last run of `make fuzz` found; `make soak` writes another."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.fuzz.worker import GOOD

END = "<!-- until here -->\n"
HEAD = "| reader | files | refused | read, the same | read, otherwise | breakages | most memory | longest | commit |\n"


def write_section(page: Path, command: str, text: str) -> None:
    """Replace what stands between the marks of a command."""
    begin = f"<!-- written by {command} -->\n"
    before, mark, rest = page.read_text().partition(begin)
    assert mark, f"{page} has no mark {begin}"
    page.write_text(f"{before}{begin}\n{text}\n{END}{rest.partition(END)[2]}")


def fuzz_table(tallies: Mapping[str, Mapping[str, Any]]) -> str:
    """A table with a row for each reader, and a line in words."""
    lines = [HEAD, "|---|" + "--:|" * 7 + "---|\n"]
    for name, tally in tallies.items():
        counts = [tally["outcomes"].get(outcome, 0) for outcome in GOOD]
        bad = tally["files"] - sum(counts)
        cells = [f"{number:,}" for number in (tally["files"], *counts, bad)]
        lines.append(
            f"| {name} | {' | '.join(cells)} | {tally['growth'] / 2**20:.0f} MiB | {tally['seconds']:.2f} s "
            f"| {tally['commit']} |\n"
        )
    files = sum(tally["files"] for tally in tallies.values())
    good = sum(tally["outcomes"].get(outcome, 0) for tally in tallies.values() for outcome in GOOD)
    return "".join(lines) + f"\n{files:,} files in all, {files - good:,} breakages.\n"
