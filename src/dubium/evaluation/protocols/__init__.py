"""The protocols end to end: choose images, explain them, measure, and write a folder; killed, they continue.

A protocol writes data and draws nothing: `dubium.report.protocols` draws what it wrote. How to add one is in
`docs/architecture.md`.
"""

from dataclasses import replace
from typing import Any

from dubium.checks import plain_number
from dubium.choices import SCALES
from dubium.errors import lookup
from dubium.evaluation.protocols.evaluation import Evaluation, check_can_disagree
from dubium.folder_lock import own_folder
from dubium.protocols import PROTOCOLS, EvaluationProtocol
from dubium.registry import load_function

__all__ = ["PROTOCOLS", "Evaluation", "EvaluationProtocol", "run_protocol"]


def run_protocol(name: str, evaluation: Evaluation, *, scale: str = "cpu", **changes: Any) -> dict[str, Any]:
    """Run a protocol, or continue it, and write tables and data to the evaluation's folder.

    Args:
        name: one of `PROTOCOLS`.
        evaluation: posterior, images, methods and folder.
        scale: "paper", "cpu" or "smoke"; it decides the options that are not given.
        changes: options of the protocol.

    Returns:
        What is in `summary.json`.
    """
    protocol = lookup("protocol", PROTOCOLS, name)
    lookup("scale", dict.fromkeys(SCALES), scale)
    if protocol.needs_posterior:
        check_can_disagree(evaluation)
    about = {"name": name, "version": protocol.version}
    evaluation = replace(evaluation, protocol=about, known_digests=evaluation.posterior_digests())
    options = load_function(protocol.options_path)(
        scale, evaluation.data, **{name: plain_number(value) for name, value in changes.items()}
    )
    evaluation = replace(evaluation, asked_images=changes.get("images"))
    with own_folder(evaluation.out):
        summary: dict[str, Any] = load_function(protocol.evaluate_path)(evaluation, options)
    return summary
