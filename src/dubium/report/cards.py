"""The gallery: a card per image, with its maps, its scores and the networks' votes."""

from collections.abc import Callable, Mapping
from html import escape
from pathlib import PurePath

from jaxtyping import Float
from torch import Tensor

from dubium.advice import NOTHING
from dubium.figures import picture
from dubium.report.exports.review import row_advice
from dubium.report.layers import (
    contrast_colours,
    contrast_of_kinds,
    contrast_words,
    image_variable,
    is_strip,
    kind_layer,
    lowering_layer,
    size_words,
    stage_html,
)
from dubium.report.outlines import first_kind, outlines_svg, percent, places_text
from dubium.report.pictures import drawn_map, img_element, likely_classes, row_image
from dubium.run.signed import lowering_row
from dubium.run.store import Row

Namer = Callable[[int], str]


ImageKey = tuple[int, str | None]


def image_key(row: Row) -> ImageKey:
    """What tells an image: its path, wherever it stood in the listing; without one, its place in the dataset."""
    return (-1 if row.path else row.id), row.path


def image_card(
    row: Row, name: Namer, most: float, *, smooth: float = 0.0, methods: Mapping[str, Row] | None = None
) -> str:
    """The card of one image.

    Args:
        most: the score that fills a bar.
        smooth: blur the maps by so many pixels.
        methods: the same image under several methods, by name, instead of the row's maps alone.
    """
    numbers = {**row.scores(), "confidence": float(row.probs[row.prediction]), "id": row.id}
    data = " ".join(f'data-{key}="{value:.6g}"' for key, value in numbers.items())
    maps = methods_html(methods, smooth) if methods else maps_html(row, smooth)
    header = f"<header><h3>{prediction_html(row, name)}</h3>{image_origin(row)}</header>"
    return card_html(row, header, maps, votes_html(row, name) + scores_html(row, most) + notes_html(row, methods), data)


def card_html(row: Row, header: str, maps: str, words: str, data: str = "") -> str:
    """A card around the maps of an image and what is said about it; its id is what an address can end with."""
    wrong = " wrong" * (row.label is not None and row.label != row.prediction)
    return (
        f'<article class="card{wrong}" id="{card_id(row)}" style="{image_variable(row_image(row))}" {data}>{header}'
        f'<div class="shown">{maps}</div><div class="told">{words}</div></article>'
    )


def card_id(row: Row) -> str:
    return f"image-{row.id}"


def notes_html(row: Row, methods: Mapping[str, Row] | None = None) -> str:
    """Where the doubt lies and what to do about it, in words."""
    notes = []
    for method, found in (methods or {"": row}).items():
        kind = first_kind(list(found.stored_maps()))
        if kind and (places := places_text(found, kind)):
            notes.append(f"<b>Where</b> ({escape(', '.join(filter(None, [method, kind])))}): {places}.")
    advice = row_advice(row)
    if advice is not NOTHING:
        notes.append(f"<b>{escape(advice.title)}</b>: {escape(advice.reason)}.")
    return "".join(f'<p class="notes">{note}</p>' for note in notes)


def image_origin(row: Row) -> str:
    """Where the image comes from, its file's name or its number, as a link that can be sent to others."""
    if row.path is None:
        return f'<small><a href="#{card_id(row)}">#{row.id}</a></small>'
    title, text = escape(row.path), escape(PurePath(row.path).name)
    return f'<small title="{title}"><a href="#{card_id(row)}">{text}</a></small>'


def prediction_html(row: Row, name: Namer) -> str:
    """What the networks say together, and whether it is so."""
    says = f"{escape(name(row.prediction))}, {row.probs[row.prediction]:.0%}".replace("%", " %")
    if row.label is None:
        return says
    if row.label == row.prediction:
        return f'{says} <span class="verdict right">✓ right</span>'
    return f'{says} <span class="verdict"><em>✗ it is {escape(name(row.label))}</em></span>'


def maps_html(row: Row, smooth: float = 0.0) -> str:
    """The image, the map of each kind over it, and the contrast of two kinds."""
    image = row_image(row)
    size = image.shape[1], image.shape[2]
    plain = stage_html(size, img_element(picture(image), f"Image {row.id}"))
    parts = [f'<figure class="plain">{plain}<figcaption>{size_words(row.image_size)}</figcaption></figure>']
    for kind in row.stored_maps():
        stage = stage_html(size, kind_layer(row, image, kind, smooth) + outlines_svg(row, kind), under=True)
        parts.append(f'<figure class="{kind}">{stage}<figcaption>{kind}</figcaption></figure>')
    if contrast := contrast_of_kinds({kind: drawn_map(row, kind, smooth) for kind in row.stored_maps()}):
        layer = img_element(contrast_colours(contrast, size), f"Image {row.id}: {contrast_words(contrast)}")
        stage = stage_html(size, layer, under=True)
        caption = f"<figcaption>contrast <b>{percent(contrast.shared)} shared</b></figcaption>"
        parts.append(f'<figure class="contrast">{stage}{caption}</figure>')
    names = ["maps", *["both"] * (contrast is not None), *["strips"] * is_strip(size)]
    return f'<div class="{" ".join(names)}">{"".join(parts)}</div>{lowering_html(row, image, smooth)}'


def lowering_html(row: Row, image: Float[Tensor, "C H W"], smooth: float = 0.0) -> str:
    """What lowers the doubt, by kind, folded: most readers look for what raises it. Empty without signed maps."""
    lowering = lowering_row(row)
    if lowering is None:
        return ""
    size = image.shape[1], image.shape[2]
    figures = "".join(
        f'<figure class="{kind}">{stage_html(size, lowering_layer(lowering, image, kind, smooth), under=True)}'
        f"<figcaption>lowers {kind}</figcaption></figure>"
        for kind in lowering.stored_maps()
    )
    maps = f'<div class="maps{" strips" * is_strip(size)}">{figures}</div>'
    return f'<details class="lowering"><summary>What lowers the doubt</summary>{maps}</details>'


def methods_html(methods: Mapping[str, Row], smooth: float = 0.0) -> str:
    """The maps of several methods, one row for each."""
    return "".join(f'<p class="method">{escape(name)}</p>{maps_html(row, smooth)}' for name, row in methods.items())


def scores_html(row: Row, most: float) -> str:
    """The score of each kind as a number and a bar."""
    lines = (
        f'<div class="{kind}"><span>{kind}</span>{score_bar(score, most)}<b>{score:.3f}</b></div>'
        for kind, score in row.scores().items()
    )
    return f'<div class="bars">{"".join(lines)}</div>'


def score_bar(score: float, most: float) -> str:
    """A bar whose length is the score's part of `most`."""
    width = 100 * min(1.0, max(0.0, score / most)) if most > 0 else 0
    return f'<div class="bar" aria-hidden="true"><i style="width:{width:.1f}%"></i></div>'


def votes_html(row: Row, name: Namer) -> str:
    """The likeliest classes: their mean probability as a bar, each network's as a tick."""
    rows, classes = [], likely_classes(row)
    for k in classes:
        ticks = "".join(f'<u style="left:{100 * p:.1f}%"></u>' for p in row.members[:, k])
        each = ", ".join(f"{p:.0%}" for p in row.members[:, k])
        label = escape(f"{name(k)}: {row.probs[k]:.0%} together; each network: {each}", quote=True)
        called = escape(name(k))
        rows.append(
            f'<div class="vote" role="img" aria-label="{label}"><span title="{called}">{called}</span>'
            f'<span class="track"><i style="width:{100 * row.probs[k]:.1f}%"></i>{ticks}</span>'
            f"<span>{row.probs[k]:.0%}</span></div>".replace("%</span>", " %</span>")
        )
    width = min(14, 1 + max(len(name(k)) for k in classes))
    return f'<div class="votes" style="--label:{width}ch">{"".join(rows)}</div>'
