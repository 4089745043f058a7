"""The explorer: a page on this machine that explains one image at a time, live."""

from dubium.web.app import build, serve
from dubium.web.session import Session, open_out, open_run

__all__ = ["Session", "build", "open_out", "open_run", "serve"]
