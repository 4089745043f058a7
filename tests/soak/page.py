"""The section of docs/trust.md that says what the last run of `make soak` found."""

from tests.soak.commands import COMMANDS
from tests.soak.faults import FAULTS

HEAD = f"| fault | {' | '.join(f'`{name}`' for name in COMMANDS)} |\n|---|{'---|' * len(COMMANDS)}\n"
WORDS = ("trials", "survived", "failures", "commit")  # of a row, that are not counted
OTHERS = {"calls": "calls one after the other", "threads": "calls from 4 threads", "server": "the explorer"}


def soak_table(results):
    """Trials that ended as an undisturbed run, of all, by fault and command; then the parts without commands."""
    rows = [
        f"| {fault} | {' | '.join(cell(results.get(f'{fault}:{name}')) for name in COMMANDS)} |" for fault in FAULTS
    ]
    lines = [f"- {words}: {cell(results.get(part))}" for part, words in OTHERS.items()]
    commits: dict[str, list[str]] = {}
    for part, row in results.items():
        commits.setdefault(row["commit"], []).append(f"`{part}`")
    lines += ["", "Commits:", "", *(f"- {commit}: {', '.join(parts)}" for commit, parts in commits.items())]
    return HEAD + "\n".join(rows) + "\n\n" + "\n".join(lines) + "\n"


def cell(row):
    """Such as `50 of 50 (83 kills)`."""
    if row is None:
        return "not tried"
    counted = {name: value for name, value in row.items() if name not in WORDS}
    words = ", ".join(f"{value:,} {name}" for name, value in counted.items())
    return f"{row['survived']} of {row['trials']}" + f" ({words})" * bool(words)
