"""The protocols that judge methods: where their functions are, and what is read first of their results.

No torch here: the command line lists them without importing it. The functions are named by their paths, as in
`dubium.registry`, so that one protocol runs without the others being imported, and that `evaluation` needs to know
nothing of `report`, which draws what a protocol wrote.
"""

from dataclasses import dataclass

PACKAGE, DRAWN_BY = "dubium.evaluation.protocols", "dubium.report.protocols"


@dataclass(frozen=True)
class EvaluationProtocol:
    """One protocol.

    Raise `version` when its numbers change: results of another version are then not continued.

    Args:
        options_path: of a function (scale, data, **changes) -> the protocol's options.
        evaluate_path: of a function (evaluation, options) that writes the evaluation's folder, and returns its summary.
        figures_path: of a function (shards, summary) -> figures by the name of their file, if it has any.
        key_metrics: those that a reader should see first, best first; a protocol that has some judges maps of test
            images, and is one of those that `dubium evaluate all` runs.
        split: of a dataset, where the user names none.
        needs_posterior: whether the user names networks; otherwise it trains some of its own.
        needs_labels: whether images must have labels, since networks are trained on them.
    """

    options_path: str
    evaluate_path: str
    figures_path: str | None = None
    key_metrics: tuple[str, ...] = ()
    split: str = "test"
    needs_posterior: bool = True
    needs_labels: bool = False
    version: int = 1


PROTOCOLS: dict[str, EvaluationProtocol] = {
    "blurring": EvaluationProtocol(
        f"{PACKAGE}.blurring:blurring_options",
        f"{PACKAGE}.blurring:evaluate_blurring",
        f"{DRAWN_BY}.blurring:blurring_figures",
        ("murr@2%", "auc-urr@2%", "murr@5%", "auc-urr@5%", "accuracy@2%", "true-probability@2%"),
    ),
    "removal": EvaluationProtocol(
        f"{PACKAGE}.removal:removal_options",
        f"{PACKAGE}.removal:evaluate_removal",
        f"{DRAWN_BY}.removal:removal_figures",
        ("srg/blur", "srg/mean", "srg/linear", "true-probability@5%/linear"),
    ),
    "anomaly": EvaluationProtocol(
        f"{PACKAGE}.anomaly:anomaly_options",
        f"{PACKAGE}.anomaly:evaluate_anomaly",
        f"{DRAWN_BY}.anomaly:anomaly_figures",
        ("iou", "ada", "recovery"),
    ),
    "sanity": EvaluationProtocol(
        f"{PACKAGE}.sanity:sanity_options",
        f"{PACKAGE}.sanity:evaluate_sanity",
        f"{DRAWN_BY}.sanity:sanity_figures",
        ("kinds", "kinds-top5", "top5@100%", "cascade@100%", "emprt"),
    ),
    "causes": EvaluationProtocol(
        f"{PACKAGE}.causes:causes_options",
        f"{PACKAGE}.causes:evaluate_causes",
        f"{DRAWN_BY}.causes:causes_figures",
        ("own-other@strict/aleatoric", "own-other@strict", "own-other@loose/aleatoric", "own-other@loose"),
        needs_posterior=False,
        needs_labels=True,
    ),
    "masks": EvaluationProtocol(f"{PACKAGE}.masks:mask_options", f"{PACKAGE}.masks:evaluate_masks"),
    "mitigation": EvaluationProtocol(
        f"{PACKAGE}.mitigation:mitigation_options",
        f"{PACKAGE}.mitigation:evaluate_mitigation",
        f"{DRAWN_BY}.mitigation:mitigation_figures",
        split="train",
        needs_labels=True,
    ),
}

TOGETHER = tuple(name for name, protocol in PROTOCOLS.items() if protocol.key_metrics)
"""The protocols of `dubium evaluate all`: `masks` needs the user's masks, `mitigation` trains on training images."""
