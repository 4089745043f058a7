"""What the explorer answers when a visitor changes something."""

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import torch
from PIL import Image

from dubium.errors import DubiumError, OptionError, lookup
from dubium.explanation import Explanation
from dubium.figures import overlay, smooth_map, smooth_words
from dubium.files import short_file_name
from dubium.kinds import KINDS
from dubium.report.panels import Number
from dubium.run.sources import Item
from dubium.run.store import Array
from dubium.web.images import read_upload
from dubium.web.session import Choice, Session, blur_top_pixels, explain_item, method_beside
from dubium.web.views import alert, blur_view, map_at_image_size, map_view, methods_view, scores_view

DOWNLOAD, DOWNLOADS = "download-", 50  # folders of files to download, and how many are kept
RANGES = {
    "tau1": (0.01, 2, 0.01),
    "tau2": (0.01, 1, 0.01),
    "opacity": (0, 1, 0.05),
    "smooth": (0, 4, 0.5),
    "share": (0, 1, 0.01),
    "sigma": (0.5, 20, 0.5),
}
"""Lowest and highest value of each slider, and its step."""


@dataclass(frozen=True)
class Shown:
    """The last explanation of a visitor, with what it is of."""

    item: Item
    choice: Choice
    explanation: Explanation
    beside: Mapping[str, Explanation] = field(default_factory=dict)  # by the method that is shown next to it


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
    """What the page shows; None leaves an output as it is, an empty text clears it."""

    last: Shown | None = None
    message: str | None = None
    view: str | None = None
    facts: str | None = None
    blurred: str | None = None
    png: Path | str | None = None
    npy: Path | str | None = None


def answer_controls(session: Session, folder: Path, controls: Controls) -> Answer:
    """Explain the image as the controls say; maps are computed again only if what decides them has changed.

    Args:
        session: networks and images.
        folder: for files to download.
        controls: what the visitor has set.
    """
    item, last = controls.item, controls.last
    if controls.message:
        return message_alone(controls.message)  # again: an answer about another image may have taken it away meanwhile
    if item is None:  # never chosen, or so long ago that it is forgotten
        return message_alone(alert("Pick or upload an image first."))
    try:
        check_ranges(controls)
        choice = controls.choice()
        if last is None or last.choice != choice or not is_same_item(last.item, item):
            last = Shown(item, choice, explain_item(session, item, choice), explain_beside(session, item, choice, last))
        return show_explanation(session, folder, last, controls)
    except DubiumError as error:
        return message_alone(alert(str(error)))
    except OSError as error:  # a full disk
        return message_alone(alert(f"The files to download cannot be written: {error.strerror or 'unknown reason'}."))
    except (RuntimeError, MemoryError) as error:
        return message_alone(alert(f"The networks cannot work on this image: {error}"))


def explain_beside(session: Session, item: Item, choice: Choice, last: Shown | None) -> Mapping[str, Explanation]:
    """The same image by another method, as it was shown last if that is the same; nothing without networks."""
    method = method_beside(choice.method)
    if session.posterior is None:
        return {}
    if last is not None and method in last.beside and is_same_item(last.item, item):
        return last.beside
    return {method: explain_item(session, item, Choice(method))}


def message_alone(message: str) -> Answer:
    """A message alone: no result of anything else stays under it."""
    return Answer(None, message, "", "", "", "", "")


def check_ranges(controls: Controls) -> None:
    """Refuse numbers outside of the sliders, which a request that is not of the page may have."""
    for name, (low, high, _step) in RANGES.items():
        value = getattr(controls, name)
        if not isinstance(value, int | float) or not low <= value <= high:
            raise OptionError(f"{name} is {str(value)[:50]}; expected a number from {low:g} to {high:g}.")
    lookup("kind of uncertainty", dict.fromkeys(KINDS), controls.kind)


def show_explanation(session: Session, folder: Path, shown: Shown, controls: Controls) -> Answer:
    """Map, scores and blurred image of one kind, and the files to download."""
    item, explanation, opacity = shown.item, shown.explanation, float(controls.opacity)
    kind = controls.kind if controls.kind in explanation.maps else next(iter(explanation.maps))
    blurred = ""
    if session.posterior is not None:
        share = float(controls.share)
        after = blur_top_pixels(session, item, explanation, kind, share, float(controls.sigma))
        blurred = blur_view(explanation, after, kind, share)
    found, smooth = {shown.choice.method: explanation, **shown.beside}, float(controls.smooth)
    arrays = {name: map_at_image_size(one, item, kind, session.preprocessing) for name, one in found.items()}
    drawn = {name: smooth_map(torch.from_numpy(one), smooth).numpy() for name, one in arrays.items()}
    pixels = overlay(item.image, torch.from_numpy(drawn[shown.choice.method]), opacity)
    png, npy = write_downloads(folder, f"{item_name(item)}-{kind}", pixels, arrays[shown.choice.method])
    view = map_view(item, drawn, kind, opacity, smooth_words(smooth))
    if shown.beside:
        view += methods_view(item, found, session.preprocessing, smooth)
    facts = scores_view(explanation, item, kind, session.name)
    return Answer(shown, alert(session.why_not), view, facts, blurred, png, npy)


def is_same_item(a: Item, b: Item) -> bool:
    return (a.id, a.path) == (b.id, b.path) and torch.equal(a.image, b.image)


def item_name(item: Item) -> str:
    """The image's file without its ending, or its number."""
    return short_file_name(Path(item.path).stem) if item.path else str(item.id)


def write_downloads(folder: Path, name: str, pixels: Any, array: Array) -> tuple[Path, Path]:
    """The overlay as a picture, and the raw map as numbers; the oldest downloads go when there are many."""
    for old in sorted(folder.glob(f"{DOWNLOAD}*"), key=lambda path: path.stat().st_mtime)[: -DOWNLOADS + 1]:
        shutil.rmtree(old, ignore_errors=True)
    inner = folder / f"{DOWNLOAD}{uuid4().hex}"
    inner.mkdir()
    png, npy = inner / f"{name}.png", inner / f"{name}.npy"
    Image.fromarray((np.clip(pixels, 0, 1) * 255).round().astype(np.uint8)).save(png)
    np.save(npy, array)
    return png, npy


def answer_upload(path: str | None) -> tuple[Item | None, str]:
    """The uploaded image, or no image and what is wrong with the upload."""
    if path is None:
        return None, ""
    try:
        return read_upload(path), ""
    except DubiumError as error:
        return None, alert(str(error))
    except OSError as error:
        return None, alert(f"{Path(path).name} cannot be read: {error.strerror or 'it is gone'}.")
