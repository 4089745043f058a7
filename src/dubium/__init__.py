"""Which pixels make a Bayesian neural network unsure, what kind of doubt it is, and what can be done about it."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dubium._evaluate import evaluate
    from dubium._explain import explain, fullgrad_completeness, methods, uncertainty
    from dubium._explain_dataset import explain_dataset
    from dubium.attribution._user_methods import register_method
    from dubium.explanation import Explanation, load
    from dubium.posteriors import load_posterior, load_weights, save_posterior
    from dubium.training.attention import mitigate

    __version__: str

__all__ = [
    "Explanation",
    "__version__",
    "evaluate",
    "explain",
    "explain_dataset",
    "fullgrad_completeness",
    "load",
    "load_posterior",
    "load_weights",
    "methods",
    "mitigate",
    "register_method",
    "save_posterior",
    "uncertainty",
]

_MODULES = {
    "Explanation": "dubium.explanation",
    "evaluate": "dubium._evaluate",
    "explain": "dubium._explain",
    "explain_dataset": "dubium._explain_dataset",
    "fullgrad_completeness": "dubium._explain",
    "load": "dubium.explanation",
    "load_posterior": "dubium.posteriors",
    "load_weights": "dubium.posteriors",
    "methods": "dubium._explain",
    "mitigate": "dubium.training.attention",
    "register_method": "dubium.attribution._user_methods",
    "save_posterior": "dubium.posteriors",
    "uncertainty": "dubium._explain",
}
_PACKAGES = ("attribution", "data", "errors", "evaluation", "models", "posteriors", "training", "types")


def __getattr__(name: str) -> Any:
    """Import a public name on first use: `import dubium` alone does not import torch, which takes seconds."""
    if name == "__version__":
        from importlib.metadata import version

        value: Any = version("dubium")
    elif name in _MODULES:
        value = getattr(import_module(_MODULES[name]), name)
    elif name in _PACKAGES:
        value = import_module(f"dubium.{name}")
    else:
        raise AttributeError(f"module 'dubium' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_PACKAGES})
