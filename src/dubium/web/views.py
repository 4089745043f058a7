"""What the explorer shows, as HTML: the map over the image, scores and votes, and what blurring does."""

from collections.abc import Callable, Mapping
from html import escape
from math import log
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from dubium.data.fit import Preprocessing, place_map
from dubium.explanation import Explanation
from dubium.figures import layer_over, overlay, picture, smooth_map
from dubium.report.cards import CONTRAST_SCALE, SCALE, prediction_html, scores_html, votes_html
from dubium.report.panels import BOTTOM, HEIGHT, LEFT, RIGHT, TOP, WIDTH, svg_element, svg_line, svg_text
from dubium.report.pictures import (
    contrast_colours,
    contrast_of_kinds,
    img_element,
    maps_row,
    place_of_peak,
    size_words,
    stage_html,
)
from dubium.run.sources import Item
from dubium.run.store import Array, Row
from dubium.types import KINDS
from dubium.web.session import BlurredImage

Namer = Callable[[int], str]
NOTHING = "no pixel raises it"
"""About a map without a value above 0, which is drawn black."""


def explorer_block(content: str) -> str:
    """Content with the explorer's own styles."""
    return f'<div class="du">{content}</div>'


def alert(message: str) -> str:
    """A message in the page; nothing where there is none."""
    return explorer_block(f'<div class="alert" role="alert">{escape(message)}</div>') if message else ""


def map_at_image_size(explanation: Explanation, item: Item, kind: str, preprocessing: Preprocessing) -> Array:
    """The map at the image's own size."""
    return at_image_size(explanation.maps[kind], item, preprocessing).numpy(force=True)


def at_image_size(
    maps: Float[Tensor, "1 H W"], item: Item, preprocessing: Preprocessing
) -> Float[Tensor, "height width"]:
    """A map of the one image that an explanation is of, at the image's own size."""
    size = item.image.shape[1], item.image.shape[2]
    return place_map(maps[0].float(), size, preprocessing.seen_box(size))


def map_view(item: Item, maps: Mapping[str, Array], kind: str, opacity: float, words: str = "") -> str:
    """The image, and the map of each method over it, with some words about the maps."""
    size = item.image.shape[1:]
    figures = [figure_html("plain", picture(item.image), "The image", f"image, {size_words(size)}")]
    for method, array in maps.items():
        row, column = np.unravel_index(int(array.argmax()), array.shape)
        where = f"strongest at the {place_of_peak(array)} (row {row}, column {column})" if array.max() > 0 else NOTHING
        name = escape(method)
        alt = f"{kind.capitalize()} uncertainty by {name} over the image: {where}"
        over = overlay(item.image, torch.from_numpy(array), opacity)
        figures.append(figure_html(kind, over, alt, f"<span><b>{name}</b>, {kind}: {where}</span>"))
    return explorer_block(f'<div class="look">{maps_row(figures, size)}</div>{SCALE}<p>{escape(words)}</p>')


def figure_html(name: str, pixels: NDArray[Any], alt: str, caption: str) -> str:
    """A picture in a box of its shape, with a caption."""
    stage = stage_html(pixels.shape[:2], img_element(pixels, alt))
    return f'<figure class="{name}">{stage}<figcaption>{caption}</figcaption></figure>'


def methods_view(
    item: Item, explanations: Mapping[str, Explanation], preprocessing: Preprocessing, smooth: float
) -> str:
    """All kinds of maps and their contrast, one row for each method: a glance tells whether it tells kinds apart.

    A method with signed maps has a second row: what lowers the doubt.
    """
    rows = []
    for method, explanation in explanations.items():
        rows.append(kinds_row(item, method, explanation.maps, preprocessing, smooth))
        if "signed" in explanation.extras:
            lowering = {kind: (-signed).clamp_min(0) for kind, signed in explanation.extras["signed"].items()}
            rows.append(kinds_row(item, f"{method}: what lowers the doubt", lowering, preprocessing, smooth))
    return explorer_block(f"<h3>All kinds, two methods</h3>{''.join(rows)}{CONTRAST_SCALE}")


def kinds_row(item: Item, title: str, maps: Mapping[str, Tensor], preprocessing: Preprocessing, smooth: float) -> str:
    """One map for each kind over the image, and the contrast of two kinds."""
    size = item.image.shape[1:]
    drawn = {kind: smooth_map(at_image_size(found, item, preprocessing), smooth) for kind, found in maps.items()}
    captions = {kind: kind if found.max() > 0 else f"{kind}: {NOTHING}" for kind, found in drawn.items()}
    cells = [
        figure_html(kind, overlay(item.image, drawn[kind]), f"{title}, {captions[kind]}", captions[kind])
        for kind in drawn
    ]
    if contrast := contrast_of_kinds({kind: found[0] for kind, found in maps.items()}, drawn):
        pixels = layer_over(item.image, contrast_colours(contrast, size))
        cells.append(figure_html("contrast", pixels, f"{title}: {contrast.words}", contrast.caption))
    return f'<p class="method">{escape(title)}</p>{maps_row(cells, size)}'


def scores_view(explanation: Explanation, item: Item, kind: str, name: Namer) -> str:
    """Scores, the sum of the map beside its score, and the networks' votes."""
    row = explanation_row(explanation, item)
    most = log(len(row.probs))
    total, score = float(explanation.maps[kind].sum()), getattr(row, kind)
    complete = abs(total - score) <= 1e-4 * max(abs(score), 1e-3)
    words = "the map is complete" if complete else f"{explanation.method} does not promise that they are equal"
    return explorer_block(
        f"<h3>{prediction_html(row, name)}</h3>{scores_html(row.scores(), most, digits=4)}"
        f'<p id="completeness">Sum of the {kind} map: <b>{total:.4f}</b>; its score: <b>{score:.4f}</b> nats; {words}. '
        f"A full bar is {most:.2f} nats.</p><h3>Votes of {len(row.members)} networks</h3>{votes_html(row, name)}"
    )


def explanation_row(explanation: Explanation, item: Item) -> Row:
    """What cards of a report show, without maps."""
    plain = explanation.numpy()
    probs, members = np.asarray(plain.probs[0], np.float32), np.asarray(plain.members[:, 0], np.float32)
    scores: dict[str, Any] = {kind: float(plain.scores[kind][0]) for kind in KINDS}
    height, width = item.image.shape[1:]
    return Row(
        id=item.id, path=item.path, label=item.label, prediction=int(probs.argmax()), probs=probs, members=members,
        **scores, map_total=None, map_aleatoric=None, map_epistemic=None, height=height, width=width, thumbnail=None,
    )  # fmt: skip


def blur_view(before: Explanation, after: BlurredImage, kind: str, share: float) -> str:
    """The image with its top pixels blurred, what is left of the uncertainty, and the whole curve."""
    old, new = float(before.scores[kind][0]), after.scores[kind]
    change = f"{(new - old) / old:+.0%}".replace("%", " %") if old > 1e-9 else "no change"
    caption = f"top {share:.0%} blurred".replace("%", " %")
    element = figure_html("plain", picture(after.image), caption, f"{caption}, as the networks see it")
    return explorer_block(
        f'<div class="wide">{element}<div><p>{kind}: <b>{old:.4f}</b> before, <b>{new:.4f}</b> after ({change}).</p>'
        f"{curve_plot(after.curve, kind, share)}</div></div>"
    )


def curve_plot(curve: list[tuple[float, float]], kind: str, share: float) -> str:
    """Uncertainty left against the share of pixels that are blurred, top pixels first."""
    top = max(score for _, score in curve) or 1.0

    def x(part: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * part

    def y(score: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * score / top

    points = " ".join(f"{x(part):.1f},{y(score):.1f}" for part, score in curve)
    here = next(score for part, score in curve if part == share)
    parts = [
        svg_line(LEFT, y(0.0), WIDTH - RIGHT, y(0.0)),
        f'<polyline points="{points}" style="fill:none;stroke:var(--{kind});stroke-width:2"/>',
        f'<circle cx="{x(share):.1f}" cy="{y(here):.1f}" r="5" style="fill:var(--{kind})"/>',
        svg_text(LEFT - 5, y(top) + 8, f"{top:.2g}", "end"),
        svg_text(LEFT - 5, y(0.0), "0", "end"),
        *(svg_text(x(part), y(0.0) + 15, f"{part:.0%}".replace("%", " %")) for part in (0.0, 0.5)),
        svg_text(x(1.0), y(0.0) + 15, "100 % blurred", "end"),
    ]
    return svg_element(
        "".join(parts), f"{kind} uncertainty against the share of pixels blurred: {here:.3g} at {share:.0%}."
    )
