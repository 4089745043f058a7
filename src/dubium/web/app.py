"""The explorer's page: Gradio Blocks, with nothing loaded from elsewhere."""

import os
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
from PIL import Image

from dubium.attribution import RELEVANCES
from dubium.errors import MissingExtraError
from dubium.figures import picture
from dubium.registry import UA_BACKPROP
from dubium.run.sources import Item
from dubium.types import KINDS
from dubium.web.answer import RANGES, Answer, Controls, answer_controls, answer_upload
from dubium.web.first_answer import PATIENCE, FirstAnswer
from dubium.web.images import MEGABYTES
from dubium.web.session import Session, runnable_methods
from dubium.web.views import alert, explorer_block

ENLARGED = 112  # pixels; smaller images to pick from are enlarged, not smoothed
INPUTS = [field.name for field in fields(Controls) if field.name != "message"]
OUTPUTS = [field.name for field in fields(Answer)]
INSTANT = ("kind", "method", "relevance")  # a choice; sliders wait for the last of many changes
SLIDERS = ("tau1", "tau2", "opacity", "smooth", "share", "sigma")
AGE = 3600  # seconds that what a visitor left is kept
HEADER = (
    '<h1>What makes it unsure?</h1><p class="lead"><a href="#{}">{} an image</a>, and see which pixels '
    "raise the networks' doubt.</p>"
)
"""With a link to where images are picked: on a phone that is below the results."""
EMPTY = "<p>Upload an image to begin. (<code>dubium serve ... --images FOLDER</code> shows images to pick from.)</p>"
SOON = "<p>Explaining the first image ...</p>"
Components = dict[str, Any]
"""Gradio's components by the names of `Controls` and `Answer`."""


def import_gradio() -> Any:
    """Gradio, with its statistics switched off before it is imported."""
    os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    try:
        import gradio
    except ImportError as error:
        raise MissingExtraError("The explorer needs Gradio. Install it: pip install 'dubium[web]'.") from error
    return gradio


def build_explorer(session: Session, folder: Path) -> Any:
    """The page as Gradio Blocks; files to download are put into `folder`."""
    turn = Lock()  # answers are computed one at a time, so that the memory of one is all that is needed
    first = FirstAnswer(session, folder, turn)
    gr = import_gradio()
    shown = first.wait(PATIENCE)
    with gr.Blocks(title="dubium", analytics_enabled=False, delete_cache=(AGE, AGE)) as page:
        live = session.posterior is not None
        verbs = " or ".join(["Pick"] * bool(session.pictures) + ["upload"] * live).capitalize()
        link = "pick" if session.pictures else "upload", verbs
        gr.HTML(explorer_block(HEADER.format(*link)), elem_id="header", padding=False)
        message = shown.message or alert(session.why_not)
        components: Components = {"message": gr.HTML(message, elem_id="message", padding=False)}
        components["item"] = gr.State(None, time_to_live=AGE)
        components["last"] = gr.State(None, time_to_live=AGE)
        with gr.Row():
            with gr.Column(scale=2, min_width=300):
                components |= add_settings(gr, session, first.controls)
            with gr.Column(scale=3, min_width=300, elem_id="results"):
                components |= add_results(gr, session, first.controls, shown)
        answer = connect_events(gr, session, folder, components, turn)
        if session.pictures:
            item = page.load(lambda: first.controls.item, None, components["item"], show_progress="hidden")
            last = item.then(lambda: first.wait().last, None, components["last"], show_progress="hidden")
            last.then(**answer)
    return page


def add_settings(gr: Any, session: Session, values: Controls) -> Components:
    """The left column: images to pick from, kind, method and its options."""
    live = session.posterior is not None
    known = runnable_methods(session)
    parts: Components = {}
    if session.pictures:
        parts["pick"] = gr.Gallery(
            [(gallery_thumbnail(item), label_text(session, item)) for item in session.pictures], label="Pick an image",
            show_label=False, columns=5, height=240, allow_preview=False, elem_id="pick",
            format="png", object_fit="contain", buttons=[], interactive=False,
        )  # fmt: skip
    parts["upload"] = gr.File(
        label=f"or upload one, at most {MEGABYTES} MB",
        file_count="single", height=150, elem_id="upload", interactive=live, visible=live,
    )  # fmt: skip
    parts["kind"] = gr.Radio(list(KINDS), value=values.kind, label="Kind of uncertainty", elem_id="kind")
    parts["method"] = gr.Dropdown(known, value=values.method, label="Method", interactive=live, elem_id="method")
    with gr.Group(visible=live and values.method == UA_BACKPROP) as parts["ua_backprop"]:
        parts["relevance"] = gr.Dropdown(
            list(RELEVANCES), value=values.relevance, label="Relevance", elem_id="relevance"
        )
        parts["tau1"] = slider(gr, "tau1", values, label="tau1: from classes to logits")
        parts["tau2"] = slider(gr, "tau2", values, label="tau2: from logits to pixels")
    parts["opacity"] = slider(gr, "opacity", values, label="Opacity of the map")
    parts["smooth"] = slider(gr, "smooth", values, label="Smooth the map by so many pixels")
    return parts


def slider(gr: Any, name: str, values: Controls, *, label: str) -> Any:
    """The slider of a control, with its range."""
    low, high, step = RANGES[name]
    return gr.Slider(low, high, getattr(values, name), step=step, label=label, elem_id=name)


def add_results(gr: Any, session: Session, values: Controls, shown: Answer) -> Components:
    """The right column: the map, scores and votes, downloads, and what blurring does."""
    parts: Components = {}
    begin = explorer_block(EMPTY if values.item is None else SOON) if shown.view is None else shown.view
    parts["view"] = gr.HTML(begin, elem_id="view", padding=False)
    parts["facts"] = gr.HTML(shown.facts or "", elem_id="facts", padding=False)
    with gr.Row():
        parts["png"] = gr.DownloadButton("Map as PNG", size="sm", elem_id="png", interactive=False)
        parts["npy"] = gr.DownloadButton("Map as numbers (.npy)", size="sm", elem_id="npy", interactive=False)
    with gr.Group(visible=session.posterior is not None):
        parts["share"] = slider(gr, "share", values, label="Blur this share of the top pixels")
        parts["sigma"] = slider(gr, "sigma", values, label="Strength of the blur")
    parts["blurred"] = gr.HTML(shown.blurred or "", elem_id="blurred", padding=False)
    return parts


def connect_events(gr: Any, session: Session, folder: Path, parts: Components, turn: Lock) -> dict[str, Any]:
    """Let every change of the controls show a new answer; returns the event that asks for one."""

    def answer(*values: Any) -> list[Any]:
        with turn:
            return output_updates(gr, answer_controls(session, folder, Controls(*values)))

    def receive_upload(path: str | None) -> tuple[Item | None, str]:
        with turn:
            return answer_upload(path)

    inputs, outputs = [parts[name] for name in INPUTS], [parts[name] for name in OUTPUTS]
    visible = {"show_progress": "minimal", "show_progress_on": parts["view"]}
    hidden = {"show_progress": "hidden", "trigger_mode": "always_last"}
    if session.pictures:
        parts["pick"].select(selection_handler(gr, session), None, parts["item"]).then(
            answer, inputs, outputs, **visible
        )
    uploaded = parts["upload"].upload(receive_upload, [parts["upload"]], [parts["item"], parts["message"]])
    uploaded.success(answer, [*inputs, parts["message"]], outputs, **visible)
    parts["method"].change(
        lambda name: gr.update(visible=name == UA_BACKPROP and session.posterior is not None),
        parts["method"], parts["ua_backprop"], show_progress="hidden",
    )  # fmt: skip
    for name in INSTANT:
        parts[name].change(answer, inputs, outputs, **visible)
    for name in SLIDERS:
        parts[name].change(answer, inputs, outputs, **hidden)
    return {"fn": answer, "inputs": inputs, "outputs": outputs, **hidden}


def output_updates(gr: Any, answer: Answer) -> list[Any]:
    """An answer as Gradio takes it, in the order of `OUTPUTS`."""
    updates: list[Any] = []
    for name in OUTPUTS:
        value = getattr(answer, name)
        if name in ("png", "npy") and value is not None:
            is_there = isinstance(value, Path)
            value = gr.update(value=str(value) if is_there else None, interactive=is_there)
        updates.append(gr.skip() if value is None else value)
    return updates


def selection_handler(gr: Any, session: Session) -> Callable[..., Item]:
    """A function that Gradio calls with what was selected; it knows by the annotation that this is wanted."""

    def select_item(event: Any) -> Item:
        index = event.index if type(event.index) is int and 0 <= event.index < len(session.pictures) else 0
        item: Item = session.pictures[index]
        return item

    select_item.__annotations__["event"] = gr.SelectData
    return select_item


def label_text(session: Session, item: Item) -> str:
    """The name of the image's class, if it is known."""
    return "" if item.label is None else session.name(item.label)


def gallery_thumbnail(item: Item) -> Image.Image:
    """The image for the gallery; a small one is enlarged pixel by pixel."""
    image = Image.fromarray((picture(item.image) * 255).round().astype(np.uint8))
    factor = max(1, ENLARGED // max(image.size))
    image.thumbnail((256, 256))
    return image.resize((image.width * factor, image.height * factor), Image.Resampling.NEAREST)
