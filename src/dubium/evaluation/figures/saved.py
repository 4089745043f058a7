"""Figures as files."""

from pathlib import Path
from typing import TYPE_CHECKING

from dubium.files import written_atomically

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def save_figure(figure: "Figure", path: Path, dpi: int = 130) -> None:
    """A PNG, whole or not at all, the same bytes each time."""
    with written_atomically(path) as beside:
        figure.savefig(beside, dpi=dpi, format="png", metadata={"Software": None})
