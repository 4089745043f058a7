"""`--estimate`, wherever a long computation starts: say what it will take, and do nothing."""

from typing import Annotated

import typer

from dubium.cli._options import RUNNING
from dubium.cli._tables import print_json
from dubium.estimate import Estimate

EstimateOnly = Annotated[
    bool,
    typer.Option("--estimate", rich_help_panel=RUNNING, help="Say what it will take (a short trial), and do nothing."),
]


def print_estimate(expected: Estimate, *, json: bool = False) -> None:
    """Images, passes, time and bytes, as a sentence or as JSON."""
    print_json(expected.json()) if json else print(expected.sentence())
