"""Which pixels make a Bayesian neural network unsure, what kind of doubt it is, and what can be done about it."""

from importlib.metadata import version

from dubium._explain import explain, fullgrad_completeness, methods, uncertainty
from dubium.explanation import Explanation, load
from dubium.posteriors import load_posterior, load_weights, save_posterior
from dubium.training.attention import mitigate

__version__ = version("dubium")

__all__ = [
    "Explanation",
    "__version__",
    "explain",
    "fullgrad_completeness",
    "load",
    "load_posterior",
    "load_weights",
    "methods",
    "mitigate",
    "save_posterior",
    "uncertainty",
]
