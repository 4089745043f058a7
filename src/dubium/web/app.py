"""The explorer's page: Gradio Blocks, with nothing loaded from elsewhere."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.resources import files
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import uuid4

import numpy as np
import torch
from PIL import Image

from dubium._explain import TAUS, methods
from dubium.attribution import RELEVANCES
from dubium.errors import DubiumError, MissingExtraError
from dubium.explanation import Explanation
from dubium.figures import overlay, picture
from dubium.report.plots import Number
from dubium.run.sources import Item
from dubium.types import KINDS
from dubium.web.session import MEGABYTES, Choice, Session, blur, explained, read_upload
from dubium.web.views import alert, blur_view, map_of, map_view, scores_view, wrapped

ENLARGED = 112  # pixels; smaller images to pick from are enlarged, not smoothed
OUTPUTS = 7


@dataclass(frozen=True)
class Shown:
    """The last explanation of a visitor, with what it is of."""

    item: Item
    choice: Choice
    explanation: Explanation


def gradio() -> Any:
    """Gradio, with its statistics switched off before it is imported."""
    os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    try:
        import gradio
    except ImportError as error:
        raise MissingExtraError("The explorer needs Gradio. Install it: pip install 'dubium[web]'.") from error
    return gradio


def serve(session: Session, *, host: str = "127.0.0.1", port: int | None = None, open_browser: bool = True,
          started: Callable[[str], None] | None = None) -> None:  # fmt: skip
    """Show the explorer until interrupted."""
    gr = gradio()
    with TemporaryDirectory(prefix="dubium-") as folder:
        page = build(session, Path(folder))
        fonts = {"font": ["system-ui", "sans-serif"], "font_mono": ["ui-monospace", "monospace"]}
        _, address, _ = page.launch(
            server_name=host, server_port=port, inbrowser=open_browser, share=False, quiet=True, show_error=False,
            ssr_mode=False, enable_monitoring=False, footer_links=[], max_file_size=f"{MEGABYTES}mb",
            prevent_thread_lock=True, theme=gr.themes.Base(primary_hue="orange", neutral_hue="stone", **fonts),
            css=files("dubium.web").joinpath("explorer.css").read_text("utf-8"),
        )  # fmt: skip
        try:
            if started:
                started(address)
            page.block_thread()
        finally:
            page.close(verbose=False)


def build(session: Session, folder: Path) -> Any:
    """The page; files to download are put into `folder`."""
    gr = gradio()
    channel = session.shape[0] or (len(session.pictures[0].image) if session.pictures else 3)
    tau1, tau2 = TAUS["grey" if channel == 1 else "colour"]
    live = session.posterior is not None
    known = list(methods()) if live else [str(session.stored.get("method"))]
    with gr.Blocks(title="dubium", analytics_enabled=False, delete_cache=(3600, 3600)) as page:
        gr.Markdown("# What makes it unsure?\nPick or upload an image, and see which pixels raise the networks' doubt.")
        message = gr.HTML(alert(session.why_not), elem_id="message")
        item, last = gr.State(session.pictures[0] if session.pictures else None), gr.State(None)
        with gr.Row():
            with gr.Column(scale=2, min_width=300):
                if session.pictures:
                    pick = gr.Gallery(
                        [(thumbnail(one), caption(session, one)) for one in session.pictures], label="Pick an image",
                        show_label=False, columns=5, height=240, allow_preview=False, elem_id="pick",
                        format="png", object_fit="contain", buttons=[], interactive=False,
                    )  # fmt: skip
                upload = gr.File(
                    label=f"or upload one (at most {MEGABYTES} MB)", file_count="single", height=150, elem_id="upload",
                    interactive=live,
                )  # fmt: skip
                kind = gr.Radio(list(KINDS), value="epistemic", label="Kind of uncertainty", elem_id="kind")
                method = gr.Dropdown(known, value=known[0], label="Method", interactive=live, elem_id="method")
                with gr.Group(visible=live) as own:
                    relevance = gr.Dropdown(list(RELEVANCES), value="fullgrad", label="Relevance", elem_id="relevance")
                    first = gr.Slider(0.01, 2, tau1, step=0.01, label="tau1: from classes to logits", elem_id="tau1")
                    second = gr.Slider(0.01, 1, tau2, step=0.01, label="tau2: from logits to pixels", elem_id="tau2")
                opacity = gr.Slider(0, 1, 0.75, step=0.05, label="Opacity of the map", elem_id="opacity")
            with gr.Column(scale=3, min_width=300):
                view = gr.HTML(wrapped("<p>Pick or upload an image to begin.</p>"), elem_id="view")
                facts = gr.HTML(elem_id="facts")
                with gr.Row():
                    as_png = gr.DownloadButton("Map as PNG", size="sm", elem_id="png", interactive=False)
                    as_npy = gr.DownloadButton("Map as numbers (.npy)", size="sm", elem_id="npy", interactive=False)
                with gr.Group(visible=live):
                    share = gr.Slider(0, 1, 0.05, step=0.01, label="Blur this share of the top pixels", elem_id="share")
                    sigma = gr.Slider(0.5, 20, 4, step=0.5, label="Strength of the blur", elem_id="sigma")
                blurred = gr.HTML(elem_id="blurred")
        inputs = [item, last, kind, method, relevance, first, second, opacity, share, sigma]
        outputs = [last, message, view, facts, blurred, as_png, as_npy]
        show = partial(respond, session, folder, gr)
        loud = {"show_progress": "minimal", "show_progress_on": view}
        quiet = {"show_progress": "hidden", "trigger_mode": "always_last"}
        if session.pictures:
            pick.select(picked(session, gr), None, item).then(show, inputs, outputs, **loud)
        upload.upload(uploaded, [upload, item], [item, message]).success(show, [*inputs, message], outputs, **loud)
        method.change(
            lambda name: gr.update(visible=name == "ua-backprop" and live), method, own, show_progress="hidden"
        )
        for control in (kind, method, relevance):
            control.change(show, inputs, outputs, **loud)
        for control in (first, second, opacity, share, sigma):
            control.change(show, inputs, outputs, **quiet)
        page.load(show, inputs, outputs, **loud)
    return page


def respond(
    session: Session, folder: Path, gr: Any, item: Item | None, last: Shown | None, kind: str, method: str,
    relevance: str, tau1: Number, tau2: Number, opacity: Number, share: Number, sigma: Number, said: str = "",
) -> list[Any]:  # fmt: skip
    """All that the page shows; the maps are computed again only if what decides them has changed."""
    unchanged = [gr.skip()] * OUTPUTS
    if item is None or said:
        return unchanged
    opacity, share, sigma = float(opacity), float(share), float(sigma)
    choice = Choice(method, relevance, float(tau1), float(tau2))
    try:
        if last is None or last.choice != choice or not same(last.item, item):
            last = Shown(item, choice, explained(session, item, choice))
        kind = kind if kind in last.explanation.maps else next(iter(last.explanation.maps))
        array = map_of(last.explanation, item, kind, session.fit)
        softer = ""
        if session.posterior is not None:
            softer = blur_view(last.explanation, blur(session, item, last.explanation, kind, share, sigma), kind, share)
        return [
            last, alert(session.why_not), map_view(item, array, kind, opacity),
            scores_view(last.explanation, item, kind, session.name), softer,
            *(gr.update(value=str(file), interactive=True) for file in downloads(folder, item, array, kind, opacity)),
        ]  # fmt: skip
    except DubiumError as error:
        return [last, alert(str(error)), *unchanged[2:]]
    except (RuntimeError, MemoryError) as error:
        return [last, alert(f"The networks cannot work on this image: {error}"), *unchanged[2:]]


def same(a: Item, b: Item) -> bool:
    return (a.id, a.path) == (b.id, b.path) and torch.equal(a.image, b.image)


def downloads(folder: Path, item: Item, array: Any, kind: str, opacity: float) -> tuple[Path, Path]:
    """The overlay as a picture, and the map as numbers."""
    inner = folder / uuid4().hex
    inner.mkdir()
    name = f"{Path(item.path).stem if item.path else item.id}-{kind}"
    png, npy = inner / f"{name}.png", inner / f"{name}.npy"
    bytes_ = (np.clip(overlay(item.image, torch.from_numpy(array), opacity), 0, 1) * 255).round().astype(np.uint8)
    Image.fromarray(bytes_).save(png)
    np.save(npy, array)
    return png, npy


def uploaded(path: str | None, before: Item | None) -> tuple[Item | None, str]:
    """The upload, or what is wrong with it; the image before stays."""
    if path is None:
        return before, ""
    try:
        return read_upload(path), ""
    except (DubiumError, OSError) as error:
        return before, alert(str(error))


def picked(session: Session, gr: Any) -> Callable[..., Item]:
    """A function that Gradio calls with what was selected; it knows by the annotation that this is wanted."""

    def choose(event: Any) -> Item:
        chosen: Item = session.pictures[event.index]
        return chosen

    choose.__annotations__["event"] = gr.SelectData
    return choose


def caption(session: Session, item: Item) -> str:
    return "" if item.label is None else session.name(item.label)


def thumbnail(item: Item) -> Image.Image:
    """Small images enlarged pixel by pixel."""
    image = Image.fromarray((picture(item.image) * 255).round().astype(np.uint8))
    factor = max(1, ENLARGED // max(image.size))
    image.thumbnail((256, 256))
    return image.resize((image.width * factor, image.height * factor), Image.Resampling.NEAREST)
