"""A Chromium to look at pages with, or a skipped test."""

import shutil
from contextlib import contextmanager

import pytest

FLAGS = ["--no-sandbox", "--disable-background-networking", "--disable-component-update", "--no-first-run",
         "--disable-sync", "--disable-default-apps", "--disable-domain-reliability"]  # fmt: skip


@contextmanager
def chromium():
    """The browser that is here, driven by playwright."""
    playwright = pytest.importorskip("playwright.sync_api", reason="the browser is driven by playwright")
    found = map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))
    with playwright.sync_playwright() as started:
        try:
            browser = started.chromium.launch(executable_path=next(filter(None, found), None), args=FLAGS)
        except playwright.Error as error:
            pytest.skip(f"no Chromium to look at the page with: {error.message.splitlines()[0]}")
        yield browser
        browser.close()
