"""The protocols end to end: choose images, explain them, measure, and write a folder; killed, they continue.

A protocol writes data and draws nothing: `dubium.report.protocols` draws what it wrote. To add one, write a module with
its options and its function, and add a line to `PROTOCOLS` (and to `FIGURES` there, if it has figures).
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from dubium.choices import SCALES
from dubium.errors import lookup
from dubium.evaluation.protocols.anomaly import anomaly_options, evaluate_anomaly
from dubium.evaluation.protocols.blurring import blurring_options, evaluate_blurring
from dubium.evaluation.protocols.causes import causes_options, evaluate_causes
from dubium.evaluation.protocols.evaluation import Evaluation
from dubium.evaluation.protocols.masks import evaluate_masks, mask_options
from dubium.evaluation.protocols.mitigation import evaluate_mitigation, mitigation_options
from dubium.evaluation.protocols.removal import evaluate_removal, removal_options
from dubium.evaluation.protocols.sanity import evaluate_sanity, sanity_options
from dubium.folder_lock import own_folder

__all__ = ["PROTOCOLS", "Evaluation", "EvaluationProtocol", "run_protocol"]


@dataclass(frozen=True)
class EvaluationProtocol:
    """How a protocol is run.

    Raise `version` when its numbers change: results of another version are then not continued.
    """

    options: Callable[..., Any]  # (scale, data, **changes) -> the protocol's options
    evaluate: Callable[[Evaluation, Any], dict[str, Any]]  # writes the evaluation's folder, returns its summary
    split: str = "test"  # of a dataset, where the user names none
    needs_posterior: bool = True  # or it trains networks of its own
    version: int = 1


PROTOCOLS: dict[str, EvaluationProtocol] = {
    "blurring": EvaluationProtocol(blurring_options, evaluate_blurring),
    "anomaly": EvaluationProtocol(anomaly_options, evaluate_anomaly),
    "removal": EvaluationProtocol(removal_options, evaluate_removal),
    "causes": EvaluationProtocol(causes_options, evaluate_causes, needs_posterior=False),
    "masks": EvaluationProtocol(mask_options, evaluate_masks),
    "mitigation": EvaluationProtocol(mitigation_options, evaluate_mitigation, split="train"),
    "sanity": EvaluationProtocol(sanity_options, evaluate_sanity),
}


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
    about = {"name": name, "version": protocol.version}
    evaluation = replace(evaluation, protocol=about, weights=evaluation.posterior_digest())
    options = protocol.options(scale, evaluation.data, **changes)
    with own_folder(evaluation.out):
        return protocol.evaluate(evaluation, options)
