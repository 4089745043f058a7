"""The paper's property table beside what is measured: python -m benchmarks.properties > docs/properties.md."""

from typing import Any

import torch

import dubium
from dubium.attribution import ATTRIBUTORS
from dubium.data import load
from dubium.evaluation.properties import PROPERTIES, SIZE, Finding, explainer, fidelity
from dubium.models import vae_dense
from dubium.models.saved_vae import load_vae
from dubium.posteriors import load_posterior
from dubium.posteriors.files.load import EMBEDDED
from tests.known_causes import SIZE as CAUSES_SIZE
from tests.known_causes import known_causes
from tests.test_known_causes import mass

CAUSE = "finds the true cause"
NAMES = [*PROPERTIES, "fidelity", CAUSE]
CLAIMS = (
    "implementation invariance",
    "completeness",
    "sensitivity",
    "saturation",
    "linearity",
    "positivity",
    "fidelity",
)
PAPER = {  # its Table 4 in the order of CLAIMS; Appendix A.3 for UA-Backprop, which leaves two open
    "ua-backprop": ("", "yes", "yes", "yes", "", "yes", "yes"),
    "grad": ("yes", "no", "yes", "no", "no", "yes", "no"),
    "smoothgrad": ("yes", "no", "yes", "no", "no", "yes", "yes"),
    "fullgrad": ("yes*", "yes", "yes", "yes", "no", "yes", "yes"),
    "ig": ("yes", "yes", "yes", "yes", "yes", "no", "yes"),
}
VARIANTS = ("ua-backprop:of=log-probs", "ig:start=blur")
MANY = {"ig": {"steps": 500}, "blur-ig": {"steps": 500}, "guided-ig": {"steps": 200}, "smoothgrad": {"samples": 20}}
DIGITS = 32  # the most uncertain ones come first

HEAD = """# Properties of the methods, measured

The paper lists which properties each method has (its Table 4 and Appendix A). Here each is an experiment
(`dubium.evaluation.properties`): small random networks in float64, aleatoric uncertainty; for fidelity the demo's
ensemble and its {digits} most uncertain digits, epistemic uncertainty. The true cause is known in networks that are
made by hand (`tests/known_causes.py`): which pixels raise each kind follows from their weights. A cell is what was
measured, with the number behind it, and in brackets what the paper says where it says something. **Bold** marks a
difference.

Made by `python -m benchmarks.properties > docs/properties.md`.
"""
TAIL = """
## Where measurement and paper differ, and why

- *Completeness of IG and its kin*: their maps add up to `U(x) - U(start)`, not to `U(x)`; the paper's yes needs a start
  without uncertainty, and neither a white nor a blurred image is one. FullGrad's decomposition holds for a logit, never
  for an uncertainty: see `dubium.fullgrad_completeness`.
- *Sensitivity of FullGrad and UA-Backprop*: bias terms, and the pixel softmax, give something to pixels that the
  networks never look at. For UA-Backprop that is the price of completeness with positive maps.
- *Implementation invariance of FullGrad*: the paper's star. A BatchNorm folded into its convolution moves bias terms.
- *Fidelity of Grad*: on the demo's digits its maps beat random ones clearly; only the size of the effect differs.
- *Sensitivity of blur-path*: pixels that are never looked at get nothing, but some that are looked at get nothing
  either: those that only lower the doubt. `extras["signed"]` has them.
- *A shift of all logits* changes no probability and no uncertainty, but it changes what is traced from a logit to
  pixels: maps of UA-Backprop follow it, unless it is asked `of="log-probs"`. Grad-CAM takes the layer that is executed
  last, here the one that makes the shift.
- *The true cause*: UA-Backprop weighs the same relevance maps for all kinds, so its kinds are nearly one picture, and
  at most one of them can be right where causes differ.
- *Linearity* is asked of two posteriors taken together, whose aleatoric uncertainty is the mean of theirs.

What the numbers mean:

"""


def main() -> None:
    print(HEAD.format(digits=DIGITS))
    print("| method |", " | ".join(NAMES), "|")
    print("|---" * (1 + len(NAMES)) + "|")
    meanings: dict[str, str] = {}
    for method in ("ua-backprop", *ATTRIBUTORS, *VARIANTS):
        found = findings(method)
        meanings |= {name: finding.meaning for name, finding in found.items()}
        claims = dict(zip(CLAIMS, PAPER.get(method, ("",) * len(CLAIMS)), strict=True))
        row = [cell(finding, claims.get(name, "")) for name, finding in found.items()]
        print(f"| {method} |", " | ".join(row), "|", flush=True)
    print(TAIL)
    print("\n".join(f"- {name}: {meaning}." for name, meaning in meanings.items()))


def findings(text: str) -> dict[str, Finding]:
    torch.manual_seed(0)
    method, _, option = text.partition(":")
    given = dict([option.split("=")]) if option else {}
    small = vae_dense(size=SIZE, hidden=(30, 15), latent=4).double().eval()
    clue = {"vae": small, "steps": 30} if "clue" in method else {}
    attribute = explainer(method, "aleatoric", **MANY.get(method, {}), **clue, **given)
    found = {name: measure(attribute) for name, measure in PROPERTIES.items()}
    real = {"vae": load_vae(EMBEDDED / "vae")} if clue else {}
    digits = load("demo").batch(slice(DIGITS))
    attribute = explainer(method, "epistemic", **real, **given)
    found["fidelity"] = fidelity(attribute, load_posterior("demo"), digits)
    blind = {"vae": vae_dense(size=CAUSES_SIZE, hidden=(30, 15), latent=4).eval(), "steps": 30} if clue else {}
    return found | {CAUSE: find_causes(method, {**blind, **given})}


def find_causes(method: str, options: dict[str, Any]) -> Finding:
    """The exact case of tests/known_causes.py: at least half of each kind's map lies where its doubt comes from."""
    case = known_causes(16)
    maps = dubium.explain(case.networks, case.x, method=method, **options).maps
    lowest = min(mass(maps[kind], inside) for kind, inside in case.raised.items())
    return Finding(lowest > 0.5, lowest, "smallest share, over the kinds, of a map on the pixels that raise that kind")


def cell(finding: Finding, claim: str) -> str:
    answer = "yes" if finding.holds else "no"
    text = f"{answer}, {finding.value:.2g}" + (f" ({claim})" if claim else "")
    return f"**{text}**" if claim and claim.rstrip("*") != answer else text


if __name__ == "__main__":
    main()
