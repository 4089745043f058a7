"""Recurrent causes of doubt on the page: each group by its numbers and its examples."""

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from html import escape

import numpy as np

from dubium.checks import count_text
from dubium.errors import MissingExtraError
from dubium.figures import percent
from dubium.report.pictures import img_element, place_of_most, row_overlay
from dubium.run.groups import DRAWS, Group, Groups, find_groups
from dubium.run.row import Row
from dubium.run.store import Results

EXAMPLES = 6  # pictures of a group
SHOWN = 12  # groups on the page
UNSTABLE = 0.6
"""The Jaccard index below which a group is said to be unstable (Hennig, 2007, calls such a cluster doubtful)."""

Namer = Callable[[int], str]


def causes_section(results: Results, kind: str, name: Namer, linked: Collection[int] = ()) -> str:
    """The section; nothing where no images are alike, and how to have it where SciPy is missing.

    Args:
        linked: images that have a card on the page, which their examples lead to.
    """
    try:
        found = find_groups(results, kind)
    except MissingExtraError:
        return "<p>Groups of images that are doubtful for the same reason need SciPy: pip install 'dubium[groups]'.</p>"
    if not found.groups:
        return ""
    shown = found.groups[:SHOWN]
    wanted = {index for group in shown for index in group.ids}
    rows = {row.id: row for row in results.rows(results.explained) if row.id in wanted}
    panels = "".join(group_panel(group, rows, kind, name, linked) for group in shown)
    return (
        f'<h2 id="causes">Recurrent causes of doubt</h2><p class="lead">{escape(causes_lead(found))}</p>'
        f'<div class="plots">{panels}</div>'
    )


def causes_lead(found: Groups) -> str:
    """What the groups are, and how far to trust them."""
    count, others, was = len(found.groups), found.others, "were" if found.sure != 1 else "was"
    text = f"{count} group{'s' * (count != 1)} of images that are doubtful between the same two classes, at the same "
    text += "place: where a group has more of its doubt than the other images have. "
    text += "The most doubtful group is first. "
    text += f"{others:,} image{'s are' if others != 1 else ' is'} in no group. " if others else ""
    text += f"{count_text(found.sure, 'image')} that the networks are sure of {was} left out. " if found.sure else ""
    text += (
        f"Stability, when images are drawn again: {found.stability:.2f} (1: always the same groups, 0: as by chance; "
    )
    text += f"adjusted Rand index over {DRAWS} draws)."
    return text + (f" The first {SHOWN} are shown." if count > SHOWN else "")


def example_html(row: Row, kind: str, is_linked: bool) -> str:
    """One of a group's images under its map, which leads to its card where the page has one."""
    element = img_element(row_overlay(row, kind), f"{kind.capitalize()} map of image {row.id}")
    return f'<a href="#image-{row.id}">{element}</a>' if is_linked else element


def group_panel(group: Group, rows: Mapping[int, Row], kind: str, name: Namer, linked: Collection[int]) -> str:
    """One group: its name, its numbers, its advice, and the images nearest to its middle."""
    members = [rows[index] for index in group.ids]
    elements = "".join(example_html(row, kind, row.id in linked) for row in members[:EXAMPLES])
    advice, votes = Counter(row.full_advice() for row in members).most_common(1)[0]
    words = f"{votes} of {len(members)}: {advice.title[0].lower()}{advice.title[1:]}"
    return (
        f'<section class="panel"><h3>{escape(group_name(group, name))}</h3>'
        f"<p>{escape(group_numbers(group, members, kind))} {escape(words)}.</p>"
        f'<div class="examples">{elements}</div></section>'
    )


def group_name(group: Group, name: Namer) -> str:
    """As in "14 images: 4 or 9, top centre"."""
    first, second = group.classes
    return f"{len(group.ids)} images: {name(first)} or {name(second)}, {group_place(group)}"


def group_place(group: Group) -> str:
    return place_of_most(np.asarray(group.excess, np.float32))


def group_numbers(group: Group, members: list[Row], kind: str) -> str:
    """Mean probabilities, mean scores, and how well the group is found again."""
    scores = np.mean([row.scores()[kind] for row in members])
    right = [row.label == row.prediction for row in members if row.label is not None]
    text = f"On average {percent(group.chances[0])} and {percent(group.chances[1])}, {group.score:.2f} nats"
    text += f" ({scores:.2f} {kind})" if kind != "total" else ""
    text += f", {sum(right)} of {len(right)} right" if right else ""
    stable = f"stability {percent(group.stability)}" + (" (unstable)" if group.stability < UNSTABLE else "")
    return f"{text}; {stable}."
