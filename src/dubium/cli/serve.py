"""`dubium serve`."""

import signal
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from dubium.choices import DEMO
from dubium.cli import _options as o
from dubium.cli._settings import (
    image_settings,
    method_options,
    method_texts,
    parse_numbers,
    posterior_settings,
    split_words,
)
from dubium.option_text import split_method

HERE = ("127.0.0.1", "localhost", "::1")


def serve(
    run: Annotated[
        str | None, typer.Argument(metavar="[RUN|OUT]", help="A posterior, or a folder that dubium explain wrote.")
    ] = None,
    posterior: o.PosteriorFactory = None,
    weights: o.Weights = None,
    mean: o.Mean = None,
    std: o.Std = None,
    input_shape: o.InputShape = None,
    network_output: o.NetworkOutput = None,
    names: o.Names = None,
    images: o.ImageFiles = None,
    dataset: o.DatasetName = None,
    fit: o.Fit = None,
    resize: o.Resize = None,
    interpolation: o.Interpolation = None,
    data_config: o.DataConfig = None,
    methods: Annotated[
        list[str] | None,
        typer.Option(
            metavar="METHODS", rich_help_panel=o.METHOD, callback=o.check_method_texts,
            help="Offered first: names with options, and methods of yours: ig:steps=50,mine:function.",
        ),
    ] = None,
    host: Annotated[str, typer.Option(help="Who may connect: 127.0.0.1 is this machine alone.")] = HERE[0],
    port: Annotated[int | None, typer.Option(min=1, max=65535, help="7860, or the next that is free.")] = None,
    browser: Annotated[bool, typer.Option(help="Open the page in your browser.")] = True,
) -> None:  # fmt: skip
    """Explore one image at a time in the browser, live: kinds, methods, temperatures, blurring, votes."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends like Ctrl-C, with nothing left behind
    # of pydub, which Gradio imports; Gradio's own filter is lost where the first answer is computed at the same time
    warnings.filterwarnings("ignore", "Couldn't find ffmpeg or avconv", RuntimeWarning)
    typer.echo("dubium: opening the networks; the address follows.", err=True)
    with say_stopped():
        from dubium.run.store import has_results
        from dubium.web import open_posterior_session, open_results_session
        from dubium.web import serve as serve_page
        from dubium.web.session import with_images, with_methods

        own = (posterior, weights, mean, std, network_output, data_config)
        if run and has_results(run):
            named = posterior_settings(None, *own) if posterior else None
            session = open_results_session(Path(run), named)
            if images or dataset:
                session = with_images(session, image_settings(None, images, dataset))
        else:
            shown = image_settings(run, images, dataset) if images or dataset or run == DEMO else None
            session = open_posterior_session(
                posterior_settings(run, *own), shown, fit=fit, resize=resize, interpolation=interpolation,
                input_shape=parse_numbers(input_shape, int), classes=split_words([names]) if names else None,
            )  # fmt: skip
        if session.why_not:
            typer.echo(f"dubium: {session.why_not}", err=True)
        chosen = [(text, *split_method(text)) for text in method_texts(methods)]
        session = with_methods(session, {text: (name, method_options(name, options)) for text, name, options in chosen})
        if host not in HERE:
            typer.echo(f"dubium: anyone who can reach {host} can use this page and upload images.", err=True)
        serve_page(session, host=host, port=port, open_browser=browser, started=print_address)


@contextmanager
def say_stopped() -> Iterator[None]:
    """Ctrl-C is how the explorer ends: there is nothing to go on with."""
    try:
        yield
    except KeyboardInterrupt as stopped:
        typer.echo("dubium: stopped.", err=True)
        raise typer.Exit(130) from stopped


def print_address(address: str) -> None:
    print(f"Explore at {address} (Ctrl-C ends it).", flush=True)
