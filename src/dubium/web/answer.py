"""What the explorer answers when a visitor changes something."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import torch
from PIL import Image

from dubium.errors import DubiumError
from dubium.explanation import Explanation
from dubium.figures import overlay, smooth_map, smooth_words
from dubium.report.plots import Number
from dubium.run.sources import Item
from dubium.run.store import Array
from dubium.web.session import Choice, Session, blur_top_pixels, explain_item, read_upload
from dubium.web.views import alert, blur_view, map_at_image_size, map_view, scores_view


@dataclass(frozen=True)
class Shown:
    """The last explanation of a visitor, with what it is of."""

    item: Item
    choice: Choice
    explanation: Explanation


@dataclass(frozen=True)
class Controls:
    """The values of the page's inputs, in their order; `message` is set where an upload was refused."""

    item: Item | None
    last: Shown | None
    kind: str
    method: str
    relevance: str
    tau1: Number
    tau2: Number
    opacity: Number
    smooth: Number
    share: Number
    sigma: Number
    message: str = ""

    def choice(self) -> Choice:
        """What decides the maps."""
        return Choice(self.method, self.relevance, float(self.tau1), float(self.tau2))


@dataclass(frozen=True)
class Answer:
    """What the page shows; None leaves an output as it is."""

    last: Shown | None = None
    message: str | None = None
    view: str | None = None
    facts: str | None = None
    blurred: str | None = None
    png: Path | None = None
    npy: Path | None = None


def answer_controls(session: Session, folder: Path, controls: Controls) -> Answer:
    """Explain the image as the controls say; maps are computed again only if what decides them has changed.

    Args:
        session: networks and images.
        folder: for files to download.
        controls: what the visitor has set.
    """
    item, last, choice = controls.item, controls.last, controls.choice()
    if item is None or controls.message:
        return Answer(last)
    try:
        if last is None or last.choice != choice or not is_same_item(last.item, item):
            last = Shown(item, choice, explain_item(session, item, choice))
        return show_explanation(session, folder, last, controls)
    except DubiumError as error:
        return Answer(last, alert(str(error)))
    except (RuntimeError, MemoryError) as error:
        return Answer(last, alert(f"The networks cannot work on this image: {error}"))


def show_explanation(session: Session, folder: Path, shown: Shown, controls: Controls) -> Answer:
    """Map, scores and blurred image of one kind, and the files to download."""
    item, explanation, opacity = shown.item, shown.explanation, float(controls.opacity)
    kind = controls.kind if controls.kind in explanation.maps else next(iter(explanation.maps))
    array = map_at_image_size(explanation, item, kind, session.fit)
    blurred = ""
    if session.posterior is not None:
        share = float(controls.share)
        after = blur_top_pixels(session, item, explanation, kind, share, float(controls.sigma))
        blurred = blur_view(explanation, after, kind, share)
    drawn = smooth_map(torch.from_numpy(array), float(controls.smooth))
    png, npy = write_downloads(folder, f"{item_name(item)}-{kind}", overlay(item.image, drawn, opacity), array)
    view = map_view(item, drawn.numpy(), kind, opacity, smooth_words(float(controls.smooth)))
    facts = scores_view(explanation, item, kind, session.name)
    return Answer(shown, alert(session.why_not), view, facts, blurred, png, npy)


def is_same_item(a: Item, b: Item) -> bool:
    return (a.id, a.path) == (b.id, b.path) and torch.equal(a.image, b.image)


def item_name(item: Item) -> str:
    """The image's file without its ending, or its number."""
    return Path(item.path).stem if item.path else str(item.id)


def write_downloads(folder: Path, name: str, pixels: Any, array: Array) -> tuple[Path, Path]:
    """The overlay as a picture, and the raw map as numbers."""
    inner = folder / uuid4().hex
    inner.mkdir()
    png, npy = inner / f"{name}.png", inner / f"{name}.npy"
    Image.fromarray((np.clip(pixels, 0, 1) * 255).round().astype(np.uint8)).save(png)
    np.save(npy, array)
    return png, npy


def answer_upload(path: str | None, before: Item | None) -> tuple[Item | None, str]:
    """The uploaded image, or the image before with what is wrong with the upload."""
    if path is None:
        return before, ""
    try:
        return read_upload(path), ""
    except (DubiumError, OSError) as error:
        return before, alert(str(error))
