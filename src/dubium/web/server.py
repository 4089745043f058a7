"""The explorer's server: on this machine, for its own page alone, with nothing left behind."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NoReturn

from dubium.errors import OptionError
from dubium.web.app import build_explorer, import_gradio
from dubium.web.guard import RequestGuard, server_names
from dubium.web.images import MEGABYTES
from dubium.web.session import Session
from dubium.web.style import explorer_style, explorer_theme

WAITING = 256  # requests that may wait for their turn
VISITORS = WAITING  # whose last images are kept in memory: of fewer, one who waits would be shown the first image
BODY = (MEGABYTES + 1) * 10**6  # bytes of a request
TEMPORARY = "GRADIO_TEMP_DIR"


def serve(session: Session, *, host: str = "127.0.0.1", port: int | None = None, open_browser: bool = True,
          started: Callable[[str], None] | None = None) -> None:  # fmt: skip
    """Show the explorer until interrupted: `KeyboardInterrupt` is raised when the server is closed.

    Args:
        session: networks and images.
        host: who may connect; 127.0.0.1 is this machine alone.
        port: None for the first free one from 7860 on.
        open_browser: show the page in the user's browser.
        started: called with the page's address.
    """
    with TemporaryDirectory(prefix="dubium-") as folder, gradio_files_in(Path(folder) / "gradio"):
        page = build_explorer(session, Path(folder))
        gr = import_gradio()
        page.queue(api_open=False, max_size=WAITING, default_concurrency_limit=1)
        with port_in_words(port):
            _, address, _ = page.launch(
                server_name=host, server_port=port, inbrowser=open_browser, share=False, quiet=True, show_error=False,
                ssr_mode=False, enable_monitoring=False, footer_links=[], max_file_size=f"{MEGABYTES}mb",
                state_session_capacity=VISITORS, app_kwargs={"middleware": [guard_entry(host)]},
                prevent_thread_lock=True, theme=explorer_theme(gr), css=explorer_style(),
            )  # fmt: skip
        try:
            if started:
                started(address)
            wait_for_interrupt()
        finally:
            page.close(verbose=False)


def wait_for_interrupt() -> NoReturn:
    """Gradio's own way of waiting prints of threads at Ctrl-C, and hides it from the caller."""
    while True:
        time.sleep(3600)


@contextmanager
def port_in_words(port: int | None) -> Iterator[None]:
    """What Gradio says of a port that another server has, in our words."""
    try:
        yield
    except OSError as error:
        if port is None or "empty port" not in str(error):
            raise
        raise OptionError(f"Port {port} is in use; choose another, or leave --port out (port= in Python).") from error


@contextmanager
def gradio_files_in(folder: Path) -> Iterator[None]:
    """Let Gradio keep its copies of images and uploads in a folder of ours, which goes when the server does."""
    before = os.environ.get(TEMPORARY)
    os.environ[TEMPORARY] = str(folder)
    try:
        yield
    finally:
        os.environ.pop(TEMPORARY)
        if before is not None:
            os.environ[TEMPORARY] = before


def guard_entry(host: str) -> Any:
    """`RequestGuard` as the server's framework takes it."""
    from starlette.middleware import Middleware

    return Middleware(RequestGuard, names=server_names(host), most=BODY)
