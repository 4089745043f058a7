"""Figures of evaluations, drawn from what a protocol left in its folder."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dubium.errors import DubiumError, FileFormatError
from dubium.evaluation.shards import ShardStore
from dubium.evaluation.summary import read_summary
from dubium.files import written_atomically
from dubium.report.protocols.anomaly import anomaly_figures
from dubium.report.protocols.blurring import blurring_figures
from dubium.report.protocols.causes import causes_figures
from dubium.report.protocols.mitigation import mitigation_figures
from dubium.report.protocols.removal import removal_figures
from dubium.report.protocols.sanity import sanity_figures

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FIGURES: dict[str, Callable[[ShardStore, Mapping[str, Any]], "dict[str, Figure]"]] = {
    "blurring": blurring_figures,
    "anomaly": anomaly_figures,
    "removal": removal_figures,
    "causes": causes_figures,
    "mitigation": mitigation_figures,
    "sanity": sanity_figures,
}
"""What draws a protocol's shards and summary: figures by the name of their file. A protocol may have none."""


def write_figures(folder: Path | str) -> list[Path]:
    """Draw an evaluation's figures into its folder, each PNG whole or not at all, the same bytes each time.

    Args:
        folder: where a protocol wrote `summary.json` and its shards.

    Returns:
        The files.
    """
    summary = read_summary(folder)
    draw = FIGURES.get(summary["protocol"])
    try:
        figures = draw(ShardStore(Path(folder)), summary) if draw else {}
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        if isinstance(error, DubiumError):
            raise
        raise FileFormatError(
            f"The shards in {folder} do not fit its summary ({type(error).__name__}: {error}). Evaluate again, in "
            "another folder."
        ) from error
    paths = []
    for name, figure in figures.items():
        path = Path(folder) / f"{name}.png"
        with written_atomically(path) as beside:
            figure.savefig(beside, dpi=130, format="png", metadata={"Software": None})
        paths.append(path)
    return paths
