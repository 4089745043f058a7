"""What to do, on the page: a count for each advice with its rule, and the labels that are probably wrong."""

import shlex
from collections.abc import Callable, Sequence
from html import escape

from dubium.advice import ADVICE, CHECK_LABEL, NOTHING, Advice
from dubium.figures import percent
from dubium.run.row import Row
from dubium.run.store import Results

LISTED = 50  # labels on the page
WORDS = "By the scores alone; the rule is in the text of each. A list for a labelling team to work through:"


def what_to_do_section(results: Results, name: Callable[[int], str]) -> str:
    """The section; nothing where the networks are sure and right of every image."""
    rows = review_rows(results)
    if not rows:
        return ""
    counts = {advice: len(found) for advice, found in rows.items()}
    if (rest := len(results) - sum(counts.values())) > 0:
        counts[NOTHING] = rest
    items = "".join(
        f"<li><b>{escape(advice.title)}: {count:,} image{'s' * (count != 1)}.</b> "
        f"{escape(advice.reason.capitalize())}.</li>"
        for advice, count in counts.items()
    )
    suspects = suspects_table(rows[CHECK_LABEL], name) if CHECK_LABEL in rows else ""
    folder = results.folder.resolve().name
    command = f"dubium export {shlex.quote(folder)} --to csv"
    where = f"in the folder that holds {escape(folder)}"
    lead = f'<p class="lead">{WORDS} <code>{escape(command)}</code>, {where}.</p>'
    return f'<h2 id="what-to-do">What to do</h2>{lead}<ul class="todo">{items}</ul>{suspects}'


def review_rows(results: Results) -> dict[Advice, list[Row]]:
    """Images with something to do, without maps, in the order in which a labelling team goes through them.

    Labels to check come first. In each list, what is plainest comes first: by confidence, or by the score that the
    advice is about.
    """
    found: dict[Advice, list[Row]] = {advice: [] for advice in ADVICE.values() if advice is not NOTHING}
    for row in results.rows(pictures=False):
        found.get(row.full_advice(), []).append(row)
    strengths = {"check-label": "confidence", "look": "aleatoric", "collect": "epistemic"}
    for advice, rows in found.items():
        rows.sort(key=lambda row: (-getattr(row, strengths[advice.name]), row.id))
    return {advice: rows for advice, rows in found.items() if rows}


def suspects_table(rows: Sequence[Row], name: Callable[[int], str]) -> str:
    """Sure and wrong: what the label says, what the networks say."""
    lines = "".join(
        f"<tr><td>{escape(row.path or f'#{row.id}')}</td><td>{escape(name(row.label or 0))}</td>"
        f"<td>{escape(name(row.prediction))}</td><td>{percent(row.confidence)}</td></tr>"
        for row in rows[:LISTED]
    )
    more = f"<p>… and {len(rows) - LISTED:,} more.</p>" if len(rows) > LISTED else ""
    head = "<tr><th>image</th><th>label</th><th>networks say</th><th>sure</th></tr>"
    summary = f"{len(rows):,} label{'s' * (len(rows) != 1)} to check, the surest first"
    return f"<details><summary>{summary}</summary><table>{head}{lines}</table>{more}</details>"
