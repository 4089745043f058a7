"""The gallery of a page: a card per image with its maps, its scores and the votes, and the controls above them."""

from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import Any

import numpy as np

from dubium.advice import NOTHING
from dubium.figures import OPACITY, data_url, percent, picture
from dubium.report.pictures import (
    contrast_colours,
    contrast_of_kinds,
    drawn_maps,
    img_element,
    map_element,
    maps_row,
    networks_maps,
    outlines_svg,
    place_of_most,
    row_image,
    size_words,
    stage_html,
)
from dubium.run.row import Row, regions_of_row
from dubium.run.signed import lowering_row
from dubium.run.store import shown_path
from dubium.types import KINDS

Namer = Callable[[int], str]
ImageKey = tuple[int, str | None]
NAMED = 3  # regions that are named in words
LEAST = 0.01  # share of a region that is named beside others
ROUNDING = 1e-6  # of shares that are stored as float32
MOST_CLASSES = 5
TOTAL = '<label><input type="checkbox" id="total"> total too</label>'
OUTLINES = '<label><input type="checkbox" id="outlines" checked> regions</label>'
FADE = (
    '<label class="needs-script">opacity <input type="range" id="opacity" min="0" max="1" step="0.05" '
    f'value="{OPACITY}"></label>'
)
MISTAKES = '<label><input type="checkbox" id="mistakes"> mistakes only</label>'
SCALE = '<span class="scale">less <i></i> more doubt</span>'
CONTRAST_SCALE = '<span class="scale two">contrast: aleatoric <i></i> epistemic</span>'
CONTRAST = (
    "The contrast shows where one kind has more of its doubt than the other, and how much of the two maps is the same "
    "picture."
)
MANY = 40  # cards from which on those that nobody looks at are not laid out
CLICK = '<span class="needs-script"> Click a map to see it large, beside its image.</span>'
LARGER = (
    '<dialog id="larger" aria-label="The image beside its map"><form method="dialog"><button>close</button></form>'
    "<div></div></dialog>"
)


def gallery_section(cards: Sequence[str], explained: int, full_bar: float, ranking: str, words: str = "") -> str:
    """The section of all cards.

    Args:
        cards: those on the page.
        explained: how many there are in all.
        full_bar: the score that fills a bar, in nats.
        ranking: the kind that ranks them.
        words: about smoothing.
    """
    if not cards:
        return ""
    orders = {
        f"{kind}:-1": f"most {kind} uncertainty" for kind in (ranking, *(kind for kind in KINDS if kind != ranking))
    }
    orders |= {"confidence:1": "least confident", "confidence:-1": "most confident", "id:1": "original order"}
    options = "".join(f'<option value="{value}">{label}</option>' for value, label in orders.items())
    sort = f'<label class="needs-script">sort by <select id="sort">{options}</select></label>'
    limit = f" {words}" * bool(words)
    limit += f" The first {len(cards)} of {explained:,} are on this page." if explained > len(cards) else ""
    lead = (
        f"Bright pixels raise the doubt. Each map has a scale of its own; a full bar is {full_bar:.2f} nats. "
        f"{CONTRAST} Beside the maps: the mean probability of a class as a bar, each network's as a tick.{limit}"
    )
    return gallery_html(cards, lead, sort)


def gallery_html(cards: Sequence[str], lead: str, sort: str = "") -> str:
    """Title, controls and cards. Without a script the maps are as they are; with one they fade and come large."""
    mistakes = MISTAKES if any(text.startswith('<article class="card wrong"') for text in cards) else ""
    return (
        f'<h2 id="gallery">Image by image</h2><p class="lead">{lead}{CLICK}</p>'
        f'<div class="controls">{sort}{mistakes}{TOTAL}{OUTLINES}{FADE}{SCALE}{CONTRAST_SCALE}</div>'
        f'<div class="gallery{" many" * (len(cards) > MANY)}">{"".join(cards)}</div>{LARGER}'
    )


def image_key(row: Row) -> ImageKey:
    """What an image has in common in two runs: its path, or, where it has none, its index in the dataset."""
    return (-1 if row.path else row.id), row.path


def image_card(
    row: Row,
    name: Namer,
    full_bar: float,
    images: Mapping[str, Any],
    *,
    smooth: float = 0.0,
    methods: Mapping[str, Row] | None = None,
) -> str:
    """The card of one image.

    Args:
        images: of the run's settings, which name the folders.
        full_bar: the score that fills a bar, in nats.
        smooth: blur the maps by so many pixels.
        methods: the same image under several methods, by name, instead of the row's maps alone.
    """
    numbers = {**row.scores(), "confidence": row.confidence, "id": row.id}
    data = " ".join(f'data-{key}="{value:.6g}"' for key, value in numbers.items())
    titles = [(f'<p class="method">{escape(method)}</p>', found) for method, found in (methods or {}).items()]
    maps = "".join(title + maps_html(found, smooth) for title, found in titles or [("", row)])
    words = votes_html(row, name) + scores_html(row.scores(), full_bar) + card_notes_html(row, methods or {"": row})
    return card_html(row, prediction_html(row, name), maps, words, images, data)


def card_html(row: Row, title: str, maps: str, words: str, images: Mapping[str, Any], data: str = "") -> str:
    """A card around the maps of an image and what is said about it; its id is what an address can end with.

    Below the title it says where the image comes from, its path in the folder or its number, as a link to send.
    """
    wrong = " wrong" * (row.label is not None and row.label != row.prediction)
    origin = "" if row.path is None else f' title="{escape(row.path)}"'
    text = f"#{row.id}" if row.path is None else escape(shown_path(row.path, images))
    return (
        f'<article class="card{wrong}" id="image-{row.id}" style="--image:url({data_url(picture(row_image(row)))})" '
        f'{data}><header><h3>{title}</h3><small{origin}><a href="#image-{row.id}">{text}</a></small></header>'
        f'<div class="shown">{maps}</div><div class="told">{words}</div></article>'
    )


def prediction_html(row: Row, name: Namer) -> str:
    """The predicted class with its mean probability, and whether it is the label."""
    says = f"{escape(name(row.prediction))}, {percent(row.confidence)}"
    if row.label is None:
        return says
    if row.label == row.prediction:
        return f'{says} <span class="verdict right">✓ right</span>'
    return f'{says} <span class="verdict"><em>✗ it is {escape(name(row.label))}</em></span>'


def maps_html(row: Row, smooth: float = 0.0) -> str:
    """The image, the map of each kind over it, and the contrast of two kinds."""
    image, drawn = row_image(row), drawn_maps(row, smooth)
    size = image.shape[1], image.shape[2]
    alone = stage_html(size, img_element(picture(image), f"Image {row.id}"))
    parts = [f'<figure class="plain">{alone}<figcaption>{size_words(row.image_size)}</figcaption></figure>']
    for kind, values in drawn.items():
        words = f"{kind.capitalize()} uncertainty over image {row.id}: {row.scores()[kind]:.3f} nats"
        stage = stage_html(size, map_element(values, size, words) + outlines_svg(row, kind), under=True)
        parts.append(f'<figure class="{kind}">{stage}<figcaption>{kind}</figcaption></figure>')
    contrast = contrast_of_kinds(networks_maps(row), drawn)
    if contrast is not None:
        layer = img_element(contrast_colours(contrast, size), f"Image {row.id}: {contrast.words}")
        stage, caption = stage_html(size, layer, under=True), f"<figcaption>{contrast.caption}</figcaption>"
        parts.append(f'<figure class="contrast">{stage}{caption}</figure>')
    lowering = "" if not row.signed else lowering_html(row, size, smooth)
    return maps_row(parts, size, has_contrast=contrast is not None) + lowering


def lowering_html(row: Row, size: tuple[int, int], smooth: float = 0.0) -> str:
    """What lowers the doubt, by kind, folded: most readers look for what raises it."""
    figures, drawn = [], drawn_maps(lowering_row(row), smooth)
    for kind, values in drawn.items():
        stage = stage_html(
            size, map_element(values, size, f"What lowers {kind} uncertainty over image {row.id}"), under=True
        )
        figures.append(f'<figure class="{kind}">{stage}<figcaption>lowers {kind}</figcaption></figure>')
    maps = maps_row(figures, size, has_contrast={"aleatoric", "epistemic"} <= drawn.keys())  # in the columns above
    return f'<details class="lowering"><summary>What lowers the doubt</summary>{maps}</details>'


def votes_html(row: Row, name: Namer) -> str:
    """The likeliest classes: their mean probability as a bar, each network's as a tick."""
    rows, classes = [], likely_classes(row)
    for k in classes:
        ticks = "".join(f'<u style="left:{100 * p:.1f}%"></u>' for p in row.members[:, k])
        each = ", ".join(percent(float(p)) for p in row.members[:, k])
        label = escape(f"{name(k)}: {percent(float(row.probs[k]))} together; each network: {each}", quote=True)
        called = escape(name(k))
        rows.append(
            f'<div class="vote" role="img" aria-label="{label}"><span title="{called}">{called}</span>'
            f'<span class="track"><i style="width:{100 * row.probs[k]:.1f}%"></i>{ticks}</span>'
            f"<span>{percent(float(row.probs[k]))}</span></div>"
        )
    width = min(14, 1 + max(len(name(k)) for k in classes))
    return f'<div class="votes" style="--label:{width}ch">{"".join(rows)}</div>'


def likely_classes(row: Row, most: int = MOST_CLASSES) -> list[int]:
    """The classes worth showing: the two likeliest, and others that some network gives 2 %."""
    order = np.argsort(-row.probs, kind="stable")[:most].tolist()
    return [k for rank, k in enumerate(order) if rank < 2 or row.members[:, k].max() >= 0.02]


def scores_html(scores: Mapping[str, float], full_bar: float, digits: int = 3) -> str:
    """The score of each kind as a number, and as a bar that is full at `full_bar`."""
    lines = []
    for kind, score in scores.items():
        width = 100 * min(1.0, max(0.0, score / full_bar)) if full_bar > 0 else 0
        bar = f'<div class="bar" aria-hidden="true"><i style="width:{width:.1f}%"></i></div>'
        lines.append(f'<div class="{kind}"><span>{kind}</span>{bar}<b>{score:.{digits}f}</b></div>')
    return f'<div class="bars">{"".join(lines)}</div>'


def card_notes_html(row: Row, methods: Mapping[str, Row]) -> str:
    """Where each method says that the doubt lies, and what to do about it, in words.

    The regions are those of the epistemic map if there is one, or of the first.
    """
    notes = []
    for method, found in methods.items():
        kinds = list(found.stored_maps())
        kind = "epistemic" if "epistemic" in kinds else next(iter(kinds), "")
        if places := places_text(found, kind):
            notes.append(f"<b>Where</b> ({escape(', '.join(filter(None, [method, kind])))}): {places}.")
    advice = row.full_advice()
    if advice is not NOTHING:
        notes.append(f"<b>{escape(advice.title)}</b>: {escape(advice.reason)}.")
    return "".join(f'<p class="notes">{note}</p>' for note in notes)


def places_text(row: Row, kind: str) -> str:
    """The largest regions of a row in words: "41 % at the top centre, 22 % at the bottom left, 37 % elsewhere".

    Regions at the same place are one; those with less than 1 % are elsewhere, unless there is no other.
    """
    found = [region for region in regions_of_row(row, kind) if not region.is_remainder][:NAMED]
    if not found:
        return ""
    shares: dict[str, float] = {}
    for region in (found[0], *(region for region in found[1:] if region.share >= LEAST)):
        place = f"at the {place_of_most(region.mask(row.image_size))}"
        shares[place] = shares.get(place, 0.0) + region.share
    text = ", ".join(f"{percent(share)} {place}" for place, share in shares.items())
    if found[0].share < LEAST:
        return f"spread over the image; its brightest place has {text}"
    rest = 1 - sum(shares.values())
    return f"{text}, {percent(rest)} elsewhere" if rest > ROUNDING else text
