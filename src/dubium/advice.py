"""What to do about an image, from its scores alone. The rule is short, so that it can be stated wherever it is used.

1. Sure and wrong (a label is known, another class has 90 % at least): the label is probably wrong. Check it.
2. Sure (90 % at least): nothing.
3. Unsure, and at least a third of the uncertainty is epistemic: the networks disagree. Collect and label more like it.
4. Unsure otherwise: ambiguous to all networks. Look at the image and its label.

No torch here: the command line reads the table without importing it.
"""

from dataclasses import dataclass

SURE = 0.9
"""The mean probability from which the networks count as sure."""
DISAGREEMENT = 1 / 3
"""The part of the uncertainty that is epistemic, from which the networks count as disagreeing."""


@dataclass(frozen=True)
class Advice:
    """What to do, in a word for tables, and why, in a sentence for people."""

    name: str
    title: str
    reason: str


CHECK_LABEL = Advice(
    "check-label",
    "Check the label",
    f"the networks give another class {SURE:.0%} or more: probably a label error".replace("%", " %"),
)
LOOK = Advice(
    "look",
    "Look at the image",
    "it is ambiguous to all networks: over two thirds of the doubt is aleatoric; look at the image and its label",
)
COLLECT = Advice(
    "collect",
    "Collect more like it",
    "the networks disagree: a third of the doubt or more is epistemic; label more images like it",
)
NOTHING = Advice("none", "Nothing to do", f"the networks are sure: {SURE:.0%} or more".replace("%", " %"))

ADVICE: dict[str, Advice] = {advice.name: advice for advice in (CHECK_LABEL, LOOK, COLLECT, NOTHING)}
"""In the order in which a labelling team goes through them."""


def advise(confidence: float, prediction: int, label: int | None, *, total: float, epistemic: float) -> Advice:
    """The advice for one image.

    Args:
        confidence: the mean probability of the predicted class.
        prediction: that class.
        label: what the image is said to be, if anybody said it.
        total, epistemic: its scores in nats.

    >>> advise(0.97, 3, 5, total=0.2, epistemic=0.01).name
    'check-label'
    >>> advise(0.55, 3, 5, total=0.7, epistemic=0.4).name
    'collect'
    """
    if confidence >= SURE:
        return CHECK_LABEL if label is not None and label != prediction else NOTHING
    return COLLECT if epistemic >= DISAGREEMENT * total else LOOK
