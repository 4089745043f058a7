"""Which pixels make a Bayesian neural network unsure, what kind of doubt it is, and what can be done about it."""

from importlib.metadata import version

from dubium.explain import explain, fullgrad_completeness, methods, uncertainty
from dubium.explanation import Explanation, load

__version__ = version("dubium")

__all__ = ["Explanation", "__version__", "explain", "fullgrad_completeness", "load", "methods", "uncertainty"]
