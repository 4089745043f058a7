"""The page."""

from pathlib import Path


def write_page(page: Path, results: Path, scale: str) -> None:
    """Write it."""
