"""The gallery of a page: its cards, what they can be sorted and filtered by, and what colours and bars mean."""

from collections.abc import Mapping, Sequence

from dubium.figures import OPACITY
from dubium.types import KINDS

TOTAL = '<label><input type="checkbox" id="total"> total too</label>'
OUTLINES = '<label><input type="checkbox" id="outlines" checked> regions</label>'
FADE = (
    '<label class="needs-script">opacity <input type="range" id="opacity" min="0" max="1" step="0.05" '
    f'value="{OPACITY}"></label>'
)
MISTAKES = '<label><input type="checkbox" id="mistakes"> mistakes only</label>'
SCALE = '<span class="scale">less <i></i> more doubt comes from here</span>'
CONTRAST_SCALE = '<span class="scale two">contrast: aleatoric <i></i> epistemic</span>'
CONTRAST = (
    "The contrast shows where one kind has more of its doubt than the other, and how much of the two maps is the same "
    "picture."
)
CLICK = '<span class="needs-script"> Click a map to see it large, beside its image.</span>'
LARGER = (
    '<dialog id="larger" aria-label="The image beside its map"><form method="dialog"><button>close</button></form>'
    "<div></div></dialog>"
)


def gallery_section(cards: Sequence[str], explained: int, most: float, first: str, words: str = "") -> str:
    """The section of all cards.

    Args:
        cards: those on the page.
        explained: how many there are in all.
        most: the score that fills a bar.
        first: the kind that ranks them.
        words: about smoothing.
    """
    if not cards:
        return ""
    options = "".join(f'<option value="{value}">{label}</option>' for value, label in sort_orders(first).items())
    sort = f'<label class="needs-script">sort by <select id="sort">{options}</select></label>'
    limit = f" {words}" * bool(words)
    limit += f" The first {len(cards)} of {explained:,} are on this page." if explained > len(cards) else ""
    lead = (
        f"Bright pixels raise the doubt. Each map has a scale of its own; a full bar is {most:.2f} nats. {CONTRAST} "
        f"Beside the maps: the mean probability of a class as a bar, each network's as a tick.{limit}"
    )
    return gallery_html(cards, lead, sort)


def gallery_html(cards: Sequence[str], lead: str, sort: str = "") -> str:
    """Title, controls and cards. Without a script the maps are as they are; with one they fade and come large."""
    mistakes = MISTAKES if any(text.startswith('<article class="card wrong"') for text in cards) else ""
    return (
        f'<h2 id="gallery">Image by image</h2><p class="lead">{lead}{CLICK}</p>'
        f'<div class="controls">{sort}{mistakes}{TOTAL}{OUTLINES}{FADE}{SCALE}{CONTRAST_SCALE}</div>'
        f'<div class="gallery">{"".join(cards)}</div>{LARGER}'
    )


def sort_orders(first: str) -> Mapping[str, str]:
    """What the gallery can be sorted by: value and label."""
    kinds = [first, *(kind for kind in KINDS if kind != first)]
    return {f"{kind}:-1": f"most {kind} uncertainty" for kind in kinds} | {
        "confidence:1": "least confident",
        "confidence:-1": "most confident",
        "id:1": "original order",
    }
