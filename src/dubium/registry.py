"""The methods that `explain(..., method=)` takes. No torch here: the command line lists them without importing it."""

from importlib import import_module
from typing import Any

UA_BACKPROP = "ua-backprop"

RELEVANCE_PATHS: dict[str, str] = {
    "fullgrad": "dubium.attribution.fullgrad:fullgrad",
    "grad": "dubium.attribution.grad:grad",
    "input-grad": "dubium.attribution.input_grad:input_grad",
    "smoothgrad": "dubium.attribution.smoothgrad:smoothgrad",
    "grad-cam": "dubium.attribution.grad_cam:grad_cam",
    "ig": "dubium.attribution.ig:ig",
    "blur-ig": "dubium.attribution.blur_ig:blur_ig",
    "guided-ig": "dubium.attribution.guided_ig:guided_ig",
}
"""Methods that explain a logit as well as an uncertainty: UA-Backprop can use them as its relevance. A path is
"package.module:function"; `dubium.attribution` has the functions."""

CONTROL_PATHS: dict[str, str] = {
    "random": "dubium.attribution.random:random",
    "smooth-random": "dubium.attribution.smooth_random:smooth_random",
    "edges": "dubium.attribution.edges:edges",
    "local-contrast": "dubium.attribution.local_contrast:local_contrast",
}
"""Maps that know nothing of the network: what every method must beat. Never recommended to anybody."""

CONTROL_NAMES = tuple(CONTROL_PATHS)

ATTRIBUTOR_PATHS: dict[str, str] = RELEVANCE_PATHS | {
    "blur-path": "dubium.attribution.blur_path:blur_path",
    "clue": "dubium.attribution.clue:clue",
    "delta-clue": "dubium.attribution.delta_clue:delta_clue",
    "clue-path": "dubium.attribution.clue_path:clue_path",
    "map-variance": "dubium.attribution.map_variance:map_variance",
    "effect-variance": "dubium.attribution.effect_variance:effect_variance",
    **CONTROL_PATHS,
}
"""Methods `(network, x, target) -> maps`: where each function is defined."""

METHOD_VERSIONS: dict[str, int] = dict.fromkeys((UA_BACKPROP, *ATTRIBUTOR_PATHS), 1) | {"grad-cam": 2}
"""Raise the number of a method (`| {"ig": 2}`) when its maps change: results of another version are then not continued.
`tests/test_versions.py` fails when maps change and the number does not."""

SCALED = frozenset({"blur-path", "smooth-random", "edges", "local-contrast"})
"""Methods whose maps are non-negative and are scaled to sum to the score."""

MEMBER_BY_MEMBER = frozenset({"map-variance", "effect-variance"})
"""Methods that explain the networks one after the other: gradients of all at once need not fit into the memory."""

AUTO = "auto"
RECOMMENDED = "blur-path"
"""What `method="auto"` stands for: docs/which-method.md has the evidence."""

FAST_RELEVANCE_PATHS: dict[str, str] = {
    "fullgrad": "dubium.attribution.fullgrad:FullGradRelevance",
}
"""Relevances that UA-Backprop can have faster than by calls of their functions."""

REGISTERED: dict[str, Any] = {}
"""Methods of a user's own, by the name that `dubium.register_method` gave them; of this process alone."""


def method_names() -> tuple[str, ...]:
    """The names that `explain(..., method=)` takes."""
    return UA_BACKPROP, AUTO, *ATTRIBUTOR_PATHS, *REGISTERED


def load_function(path: str) -> Any:
    """The function that is defined at "package.module:name"."""
    module, _, name = path.partition(":")
    return getattr(import_module(module), name)
