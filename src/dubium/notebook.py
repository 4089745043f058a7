"""What a notebook shows of an explanation: a card per image, with the image beside its maps."""

from html import escape

import numpy as np
import torch
from jaxtyping import Float

from dubium.checks import count_text
from dubium.choices import SMOOTH
from dubium.explanation import Explanation
from dubium.figures import (
    MOST,
    SMALL,
    class_labels,
    data_url,
    map_colours,
    pair_words,
    percent,
    picture,
    smooth_map,
    smooth_words,
)

CARDS = "display:grid;gap:.8em;grid-template-columns:repeat(auto-fill,minmax(min(100%,22em),1fr));max-width:60em"
CARD = "border:1px solid color-mix(in srgb,currentColor 20%,transparent);border-radius:.5em;padding:.6em"
FIGURES = "display:flex;flex-wrap:wrap;gap:.5em;margin-top:.4em"
FIGURE = "margin:0;flex:1 1 4.5em;max-width:9em"


def explanation_html(explanation: Explanation, *, most: int = MOST) -> str:
    """A card per image: its likeliest classes, the image if it was kept, and each kind's map over its score."""
    count, members = len(explanation.probs), len(explanation.members)
    cards = "".join(image_card_html(explanation, index) for index in range(min(count, most)))
    more = f"<p>… and {count - most} more images, which are not shown.</p>" if count > most else ""
    parts = [count_text(count, "image"), count_text(members, "network"), escape(pair_words(explanation))]
    about = f"<b>{escape(explanation.method)}</b>: {', '.join(filter(None, parts))}; scores in nats"
    about += f", each map on a scale of its own. {smooth_words(SMOOTH)}" if explanation.maps else "."
    return f'<div style="font-size:90%"><p>{about}</p><div style="{CARDS}">{cards}</div>{more}</div>'


def image_card_html(explanation: Explanation, index: int) -> str:
    """One image's prediction, picture and maps."""
    image = None if explanation.images is None else torch.as_tensor(explanation.images[index])
    parts = [] if image is None else [inline_figure_html(picture(image), "image", f"image {index}")]
    for kind, scores in explanation.scores.items():
        caption = f"{kind}<br><b>{float(scores[index]):.3f}</b>"
        if kind in explanation.maps:
            values = smooth_map(torch.as_tensor(explanation.maps[kind][index]), SMOOTH)
            parts.append(inline_figure_html(map_colours(values), caption, f"{kind} map of image {index}"))
        else:
            parts.append(f'<div style="{FIGURE}">{caption}</div>')
    title = f"<b>{escape(prediction_words(explanation, index))}</b> <small>image {index}</small>"
    return f'<div style="{CARD}">{title}<div style="{FIGURES}">{"".join(parts)}</div></div>'


def prediction_words(explanation: Explanation, index: int) -> str:
    """The likeliest class, and the second one if it has 5 % at least."""
    labels, likely = class_labels(explanation), torch.as_tensor(explanation.probs[index]).topk(2)
    words = [
        f"{labels[k]} ({percent(p)})" for k, p in zip(likely.indices.tolist(), likely.values.tolist(), strict=True)
    ]
    return " or ".join(words[: 1 + (float(likely.values[1]) >= 0.05)])


def inline_figure_html(pixels: Float[np.ndarray, "H W 3"], caption: str, alt: str) -> str:
    """A picture that needs no file, above its caption."""
    pixelated = ";image-rendering:pixelated" if max(pixels.shape[:2]) <= SMALL else ""
    image = (
        f'<img src="{data_url(pixels)}" alt="{escape(alt)}" style="width:100%;height:auto;display:block{pixelated}">'
    )
    return f'<figure style="{FIGURE}">{image}<figcaption>{caption}</figcaption></figure>'
