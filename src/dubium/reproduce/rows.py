"""Which method, with which options, stands behind each row of the paper, and the rows that are ours."""

from collections.abc import Mapping
from dataclasses import dataclass

from dubium.registry import CONTROL_NAMES
from dubium.reproduce.study import BLUR_PATH
from dubium.types import Kind


@dataclass(frozen=True)
class PaperRow:
    """Where a row is found: the label in a job's results, the posterior, and the kind that was blurred."""

    label: str
    networks: str = "ensemble"
    kind: Kind = "epistemic"


FULL = {
    "Ours": "ua-backprop",
    "Grad": "grad",
    "SmoothGrad": "smoothgrad",
    "FullGrad": "fullgrad",
    "IG": "ig",
    "Blur IG": "blur-ig",
    "CLUE": "clue",
    "delta-CLUE": "delta-clue",
}
METHODS: Mapping[str, Mapping[str, str]] = {
    "paper": FULL,
    "cpu": FULL
    | {
        "SmoothGrad": "smoothgrad:samples=20",
        "IG": "ig:steps=30",
        "Blur IG": "blur-ig:steps=30",
        "CLUE": "clue:steps=30",
        "delta-CLUE": "delta-clue:steps=15:starts=2",
    },
    "smoke": FULL
    | {
        "SmoothGrad": "smoothgrad:samples=2",
        "IG": "ig:steps=3",
        "Blur IG": "blur-ig:steps=3",
        "CLUE": "clue:steps=2",
        "delta-CLUE": "delta-clue:steps=2:starts=2",
    },
}
"""The methods of the paper's rows, by scale; fewer steps and samples where there is no GPU."""

MORE_STEPS = {"clue:steps=30": "clue:steps=100", "delta-clue:steps=15:starts=2": "delta-clue:steps=50:starts=2"}
QUICK = ("mnist", "cifar-10")
"""Datasets whose small networks leave time for `MORE_STEPS` of the CLUE methods at scale `cpu`, in tables."""

ATTENTION_METHODS: Mapping[str, Mapping[str, str]] = {
    **METHODS,
    "cpu": FULL
    | {
        "SmoothGrad": "smoothgrad:samples=3",
        "IG": "ig:steps=3",
        "Blur IG": "blur-ig:steps=3",
        "CLUE": "clue:steps=5",
        "delta-CLUE": "delta-clue:steps=3:starts=2",
    },
}
"""The same for the maps of training images, of which there are hundreds or thousands."""

OWN = {BLUR_PATH: BLUR_PATH} | {f"{name} (control)": name for name in CONTROL_NAMES}
"""Rows of ours: what `auto` stands for (with `net=0`), and maps that know nothing of the networks."""


def method_rows(scale: str, *names: str) -> dict[str, PaperRow]:
    """Rows of the paper's methods; all of them if none is named."""
    texts = METHODS[scale]
    return {name: PaperRow(texts[name]) for name in names or texts}


def method_on(text: str, dataset: str) -> str:
    """A method with as many steps as a dataset allows.

    >>> method_on("clue:steps=30", "mnist"), method_on("clue:steps=30", "svhn"), method_on("grad", "mnist")
    ('clue:steps=100', 'clue:steps=30', 'grad')
    """
    return MORE_STEPS.get(text, text) if dataset in QUICK else text


def added_rows() -> dict[str, PaperRow]:
    return {name: PaperRow(label) for name, label in OWN.items()}


def temperature_rows() -> dict[str, PaperRow]:
    """The pairs of tau1 and tau2 of Appendix D.3."""
    pairs = ((0.55, 0.02), (0.5, 0.02), (0.6, 0.02), (0.65, 0.01), (0.7, 0.02), (0.55, 0.03), (0.55, 0.04))
    return {
        f"tau1={tau1:.2f}, tau2={tau2:.2f}": PaperRow(
            "ua-backprop" if (tau1, tau2) == pairs[0] else f"ua-backprop:tau1={tau1:g}:tau2={tau2:g}"
        )
        for tau1, tau2 in pairs
    }


def path_rows(scale: str) -> dict[str, PaperRow]:
    """UA-Backprop with other ways from logits to pixels."""
    steps = {"paper": "", "cpu": ":steps=30", "smoke": ":steps=3"}[scale]
    return {
        "UA-Backprop + FullGrad": PaperRow("ua-backprop"),
        "UA-Backprop + Grad": PaperRow("ua-backprop:relevance=grad"),
        "UA-Backprop + InputGrad": PaperRow("ua-backprop:relevance=input-grad"),
        "UA-Backprop + IG": PaperRow(f"ua-backprop:relevance=ig{steps}"),
    }


SINGLE_ROWS = {
    "Ours-Ensemble-5": PaperRow("ua-backprop"),
    "Ours-Ensemble-1": PaperRow("ua-backprop", "single", "aleatoric"),
    "Ours-LA": PaperRow("ua-backprop", "laplace"),
}
NORMALISATION_ROWS = {
    "With normalisation": PaperRow("ua-backprop"),
    "Without normalisation": PaperRow("ua-backprop:normalize=false"),
}
