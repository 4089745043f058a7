"""Protocols that judge attribution methods, as pure functions; `protocols` runs them end to end."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dubium.evaluation.metrics.anomaly import best_boxes, box_iou, localisation, plant, recovery
    from dubium.evaluation.metrics.blurring import (
        auc_urr,
        blurring_test,
        murr,
        pixel_counts,
        reduction_rates,
        sigma_grid,
    )
    from dubium.evaluation.metrics.calibration import calibration_error, predictive_metrics
    from dubium.evaluation.metrics.gaussian_blur import gaussian_blur
    from dubium.evaluation.metrics.randomisation import Randomised, randomise
    from dubium.evaluation.metrics.removal import relevance_gain
    from dubium.evaluation.metrics.sanity import (
        effective_pixels,
        entropy_rise,
        halves,
        rank_agreement,
        redrawn,
        top_overlap,
        uncertainty_curves,
    )
    from dubium.evaluation.metrics.scoring import scorer
    from dubium.evaluation.statistics import band, bootstrap, compare, holm, mean_interval, signed_rank

__all__ = [
    "Randomised",
    "auc_urr",
    "band",
    "best_boxes",
    "blurring_test",
    "bootstrap",
    "box_iou",
    "calibration_error",
    "compare",
    "effective_pixels",
    "entropy_rise",
    "gaussian_blur",
    "halves",
    "holm",
    "localisation",
    "mean_interval",
    "murr",
    "pixel_counts",
    "plant",
    "predictive_metrics",
    "randomise",
    "rank_agreement",
    "recovery",
    "redrawn",
    "reduction_rates",
    "relevance_gain",
    "scorer",
    "sigma_grid",
    "signed_rank",
    "top_overlap",
    "uncertainty_curves",
]

_MODULES = {
    "metrics.anomaly": (
        "best_boxes",
        "box_iou",
        "localisation",
        "plant",
        "recovery",
    ),
    "metrics.blurring": (
        "auc_urr",
        "blurring_test",
        "murr",
        "pixel_counts",
        "reduction_rates",
        "sigma_grid",
    ),
    "metrics.calibration": (
        "calibration_error",
        "predictive_metrics",
    ),
    "metrics.gaussian_blur": ("gaussian_blur",),
    "metrics.randomisation": (
        "Randomised",
        "randomise",
    ),
    "metrics.removal": ("relevance_gain",),
    "metrics.sanity": (
        "effective_pixels",
        "entropy_rise",
        "halves",
        "rank_agreement",
        "redrawn",
        "top_overlap",
        "uncertainty_curves",
    ),
    "metrics.scoring": ("scorer",),
    "statistics": (
        "band",
        "bootstrap",
        "compare",
        "holm",
        "mean_interval",
        "signed_rank",
    ),
}


def __getattr__(name: str) -> Any:
    """Import a metric on first use: a page needs one of them, and not the others."""
    for module, names in _MODULES.items():
        if name in names:
            globals()[name] = value = getattr(import_module(f"dubium.evaluation.{module}"), name)
            return value
    raise AttributeError(f"module 'dubium.evaluation' has no attribute {name!r}")
