"""What to do, on the page: a count for each advice with its rule, and the labels that are probably wrong."""

from collections.abc import Callable, Sequence
from html import escape

from dubium.advice import CHECK_LABEL, NOTHING
from dubium.report.exports.review import confidence_of, review_rows, rows_by_advice
from dubium.report.outlines import percent
from dubium.run.store import Results, Row

LISTED = 50  # labels on the page
WORDS = "By the scores alone; the rule is in the text of each. Lists for a labelling team: dubium export OUT --to csv."


def what_to_do_section(results: Results, name: Callable[[int], str]) -> str:
    """The section; nothing where the networks are sure and right of every image."""
    rows, count = review_rows(results), len(results)
    if not rows:
        return ""
    parts = [(advice.title, advice.reason, len(found)) for advice, found in rows_by_advice(rows)]
    if count > len(rows):
        parts.append((NOTHING.title, NOTHING.reason, count - len(rows)))
    items = "".join(
        f"<li><b>{escape(title)}: {number:,} image{'s' * (number != 1)}.</b> {escape(reason.capitalize())}.</li>"
        for title, reason, number in parts
    )
    suspects = next((found for advice, found in rows_by_advice(rows) if advice is CHECK_LABEL), [])
    return (
        f'<h2 id="what-to-do">What to do</h2><p class="lead">{WORDS}</p><ul class="todo">{items}</ul>'
        f"{suspects_table(suspects, name)}"
    )


def suspects_table(rows: Sequence[Row], name: Callable[[int], str]) -> str:
    """Sure and wrong: what the label says, what the networks say."""
    if not rows:
        return ""
    lines = "".join(
        f"<tr><td>{escape(row.path or f'#{row.id}')}</td><td>{escape(name(row.label or 0))}</td>"
        f"<td>{escape(name(row.prediction))}</td><td>{percent(confidence_of(row))}</td></tr>"
        for row in rows[:LISTED]
    )
    more = f"<p>… and {len(rows) - LISTED:,} more.</p>" if len(rows) > LISTED else ""
    head = "<tr><th>image</th><th>label</th><th>networks say</th><th>sure</th></tr>"
    summary = f"{len(rows):,} label{'s' * (len(rows) != 1)} to check, the surest first"
    return f"<details><summary>{summary}</summary><table>{head}{lines}</table>{more}</details>"
