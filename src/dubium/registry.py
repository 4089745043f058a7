"""The methods that `explain(..., method=)` takes. No torch here: the command line lists them without importing it."""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

UA_BACKPROP = "ua-backprop"
AUTO = "auto"
RECOMMENDED = "blur-path"
RECOMMENDED_OPTIONS: Mapping[str, Any] = {"net": 1}
"""What `method="auto"` stands for; options that are given win over these. docs/which-method.md has the evidence."""

PACKAGE = "dubium.attribution"


@dataclass(frozen=True)
class MethodEntry:
    """A method `(network, x, target) -> maps`, and how its maps are used."""

    path: str  # "package.module:function"
    version: int = 1  # raise it when the maps change: results of another version are then not continued
    is_relevance: bool = False  # explains a logit as well as an uncertainty: UA-Backprop can use it as its relevance
    relevance_class: str = ""  # path of a `PreparedRelevance` that is faster than calls of the function
    is_control: bool = False  # knows nothing of the network: what every method must beat, never recommended to anybody
    is_scaled: bool = False  # maps are non-negative, and are scaled to sum to the score
    is_by_member: bool = False  # explains one network at a time: gradients of all need not fit into the memory


METHODS: dict[str, MethodEntry] = {
    "fullgrad": MethodEntry(
        f"{PACKAGE}.fullgrad:fullgrad", is_relevance=True, relevance_class=f"{PACKAGE}.fullgrad:FullGradRelevance"
    ),
    "grad": MethodEntry(f"{PACKAGE}.grad:grad", is_relevance=True),
    "input-grad": MethodEntry(f"{PACKAGE}.input_grad:input_grad", is_relevance=True),
    "smoothgrad": MethodEntry(f"{PACKAGE}.smoothgrad:smoothgrad", is_relevance=True),
    "grad-cam": MethodEntry(f"{PACKAGE}.grad_cam:grad_cam", version=2, is_relevance=True),
    "ig": MethodEntry(f"{PACKAGE}.ig:ig", is_relevance=True),
    "blur-ig": MethodEntry(f"{PACKAGE}.blur_ig:blur_ig", is_relevance=True),
    "guided-ig": MethodEntry(f"{PACKAGE}.guided_ig:guided_ig", is_relevance=True),
    "blur-path": MethodEntry(f"{PACKAGE}.blur_path:blur_path", is_scaled=True),
    "clue": MethodEntry(f"{PACKAGE}.clue:clue"),
    "delta-clue": MethodEntry(f"{PACKAGE}.delta_clue:delta_clue"),
    "clue-path": MethodEntry(f"{PACKAGE}.clue_path:clue_path"),
    "map-variance": MethodEntry(f"{PACKAGE}.map_variance:map_variance", is_by_member=True),
    "effect-variance": MethodEntry(f"{PACKAGE}.effect_variance:effect_variance", is_by_member=True),
    "random": MethodEntry(f"{PACKAGE}.random:random", version=2, is_control=True),
    "smooth-random": MethodEntry(f"{PACKAGE}.smooth_random:smooth_random", version=2, is_control=True, is_scaled=True),
    "edges": MethodEntry(f"{PACKAGE}.edges:edges", is_control=True, is_scaled=True),
    "local-contrast": MethodEntry(f"{PACKAGE}.local_contrast:local_contrast", is_control=True, is_scaled=True),
}
"""All methods but UA-Backprop, a row each."""

CONTROL_NAMES = tuple(name for name, method in METHODS.items() if method.is_control)

METHOD_VERSIONS: dict[str, int] = {UA_BACKPROP: 1} | {name: method.version for name, method in METHODS.items()}
"""`tests/test_versions.py` fails when a method's maps change and its version does not."""

REGISTERED: dict[str, Any] = {}
"""Methods of a user's own, by the name that `dubium.register_method` gave them; of this process alone."""


def method_names() -> tuple[str, ...]:
    """The names that `explain(..., method=)` takes."""
    return UA_BACKPROP, AUTO, *METHODS, *REGISTERED


def load_function(path: str) -> Any:
    """The function that is defined at "package.module:name"."""
    module, _, name = path.partition(":")
    return getattr(import_module(module), name)
