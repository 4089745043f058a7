"""Figures of evaluations, drawn from what a protocol left in its folder."""

from pathlib import Path

from dubium.errors import DubiumError, FileFormatError
from dubium.evaluation.shards import ShardStore
from dubium.evaluation.summary import read_summary
from dubium.files import written_atomically
from dubium.protocols import PROTOCOLS
from dubium.registry import load_function


def write_figures(folder: Path | str) -> list[Path]:
    """Draw an evaluation's figures into its folder, each PNG whole or not at all, the same bytes each time.

    Args:
        folder: where a protocol wrote `summary.json` and its shards.

    Returns:
        The files.
    """
    summary = read_summary(folder)
    protocol = PROTOCOLS.get(summary["protocol"])
    draw = load_function(protocol.figures_path) if protocol and protocol.figures_path else None
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
