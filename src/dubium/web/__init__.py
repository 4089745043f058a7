"""The explorer: a page on this machine that explains one image at a time, live."""

from dubium.web.app import build_explorer
from dubium.web.server import serve
from dubium.web.session import Session, open_posterior_session, open_results_session

__all__ = ["Session", "build_explorer", "open_posterior_session", "open_results_session", "serve"]
