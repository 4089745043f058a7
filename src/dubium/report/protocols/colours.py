"""How curves of methods are drawn: controls in grey, each with a line of its own, so that they are never mistaken."""

from typing import Any

from dubium.registry import CONTROL_NAMES

LINES = (":", "--", "-.", (0, (1, 4)))


def method_style(method: str, index: int) -> dict[str, Any]:
    """Colour and line of a method at a position among all methods."""
    from matplotlib import colormaps

    name = method.partition(":")[0]
    if name in CONTROL_NAMES:
        return {"color": "0.45", "ls": LINES[list(CONTROL_NAMES).index(name) % len(LINES)]}
    return {"color": colormaps["tab10"](index % 10), "ls": "-"}
