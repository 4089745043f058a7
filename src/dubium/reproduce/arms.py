"""The arms of the mitigation tables."""

from collections.abc import Sequence

from dubium.reproduce.job import AttentionArm
from dubium.reproduce.rows import ATTENTION_METHODS, PaperRow
from dubium.training.attention import Space
from dubium.types import Kind

NO_ATTENTION = "No attention"
ALPHAS = tuple(round(0.2 * step, 1) for step in range(1, 11))
STRENGTHS = (0.2, 1.0, 2.0)
SPACES: tuple[Space, ...] = ("latent", "input-added")
CONTROLLED = ("ua-backprop", "random", "edges")
"""Maps whose attention is compared: of networks, and two that know nothing of them."""


def row_arms(arms: Sequence[AttentionArm]) -> dict[str, PaperRow]:
    """A row for each arm."""
    return {arm.label: PaperRow(arm.label) for arm in arms}


def method_arms(scale: str, none: str = NO_ATTENTION) -> list[AttentionArm]:
    """The attention of the paper with the maps of each method, and none."""
    return [*(AttentionArm(name, text) for name, text in ATTENTION_METHODS[scale].items()), AttentionArm(none)]


def kind_arms(_scale: str) -> list[AttentionArm]:
    """Maps of each kind of uncertainty."""
    kinds: tuple[tuple[str, Kind], ...] = (
        ("Epistemic", "epistemic"),
        ("Aleatoric", "aleatoric"),
        ("Total", "total"),
    )
    return [AttentionArm(label, "ua-backprop", kind) for label, kind in kinds]


def space_arms(_scale: str) -> list[AttentionArm]:
    """Attention on features, and on the image."""
    return [
        AttentionArm("Ours-latent", "ua-backprop"),
        AttentionArm("Ours-input", "ua-backprop", space="input"),
    ]


def alpha_arms() -> list[AttentionArm]:
    """The strength of the attention from 0 to 2."""
    stronger = [AttentionArm(f"{alpha:.1f}", "ua-backprop", alpha=alpha) for alpha in ALPHAS]
    return [AttentionArm("0.0"), *stronger]


def attention_arms() -> list[AttentionArm]:
    """Attention that reaches a quarter of alpha (`unit`), of networks' maps and of maps that know nothing."""
    arms = [unit_arm(name, alpha, space) for space in SPACES for alpha in STRENGTHS for name in CONTROLLED]
    return [AttentionArm(NO_ATTENTION), *arms]


def unit_arm(name: str, alpha: float, space: Space) -> AttentionArm:
    """Attention with maps divided by their highest value."""
    place = "image" if space == "input-added" else "features"
    label = f"{name}, alpha {alpha:g}, {place}"
    return AttentionArm(label, name, alpha=alpha, normalisation="unit", space=space)
