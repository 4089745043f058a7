"""The gallery: a card per image, with its maps, its scores and the networks' votes."""

from collections.abc import Callable, Mapping
from html import escape
from pathlib import PurePath

from dubium.advice import NOTHING
from dubium.figures import picture
from dubium.report.exports.review import row_advice
from dubium.report.outlines import first_kind, outlines_svg, places_text
from dubium.report.pictures import img_element, likely_classes, place_of_peak, row_image, row_overlay
from dubium.run.store import Row
from dubium.types import KINDS

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
    wrong = row.label is not None and row.label != row.prediction
    numbers = {**row.scores(), "confidence": float(row.probs[row.prediction]), "id": row.id}
    data = " ".join(f'data-{key}="{value:.6g}"' for key, value in numbers.items())
    return (
        f'<article class="card{" wrong" if wrong else ""}" {data}>'
        f"<header><h3>{prediction_html(row, name)}</h3>{image_origin(row)}</header>"
        f"{maps_html(row, most, smooth) if not methods else methods_html(methods, most, smooth)}"
        f"{votes_html(row, name)}{notes_html(row)}</article>"
    )


def notes_html(row: Row) -> str:
    """Where the doubt lies and what to do about it, in words."""
    kind = first_kind(list(row.stored_maps()))
    places = places_text(row, kind) if kind else ""
    advice = row_advice(row)
    where = f'<p class="notes"><b>Where</b> ({kind}): {places}.</p>' if places else ""
    reason = f"<b>{escape(advice.title)}</b>: {escape(advice.reason)}."
    return where + (f'<p class="notes">{reason}</p>' if advice is not NOTHING else "")


def image_origin(row: Row) -> str:
    """Where the image comes from: its file's name, or its number."""
    if row.path is None:
        return f"<small>#{row.id}</small>"
    return f'<small title="{escape(row.path)}">{escape(PurePath(row.path).name)}</small>'


def prediction_html(row: Row, name: Namer) -> str:
    """What the networks say together, and whether it is so."""
    says = f"{escape(name(row.prediction))}, {row.probs[row.prediction]:.0%}".replace("%", " %")
    if row.label is None:
        return says
    if row.label == row.prediction:
        return f'{says} <span class="verdict right">✓ right</span>'
    return f'{says} <span class="verdict"><em>✗ it is {escape(name(row.label))}</em></span>'


def maps_html(row: Row, most: float, smooth: float = 0.0) -> str:
    """The image, and the maps there are over it, each with its score as a bar."""
    title = f"Image {row.id}"
    parts = [f"<figure>{img_element(picture(row_image(row)), title)}<figcaption>image</figcaption></figure>"]
    maps = row.coarse_maps()
    for kind in KINDS:
        score = getattr(row, kind)
        caption = f"<figcaption>{kind} <b>{score:.3f}</b></figcaption>{score_bar(score, most)}"
        if kind in maps:
            alt = f"{kind.capitalize()} uncertainty over image {row.id}: {score:.3f} nats, most at the "
            element = img_element(row_overlay(row, kind, smooth=smooth), alt + place_of_peak(maps[kind]))
            parts.append(f'<figure class="{kind}"><div>{element}{outlines_svg(row, kind)}</div>{caption}</figure>')
        else:
            parts.append(f'<figure class="{kind}">{caption}</figure>')
    return f'<div class="maps">{"".join(parts)}</div>'


def methods_html(methods: Mapping[str, Row], most: float, smooth: float = 0.0) -> str:
    """The maps of several methods, one row for each."""
    return "".join(
        f'<p class="method">{escape(name)}</p>{maps_html(row, most, smooth)}' for name, row in methods.items()
    )


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


def sort_orders(first: str) -> Mapping[str, str]:
    """What the gallery can be sorted by: value and label."""
    kinds = [first, *(kind for kind in KINDS if kind != first)]
    return {f"{kind}:-1": f"most {kind} uncertainty" for kind in kinds} | {
        "confidence:1": "least confident",
        "confidence:-1": "most confident",
        "id:1": "original order",
    }
