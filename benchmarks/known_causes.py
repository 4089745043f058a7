"""Which methods find the known pixels behind each kind of uncertainty: python -m benchmarks.known_causes.

The exact case of tests/known_causes.py. A row a method: the part of its positive attribution on the square that raises
each kind, and of the epistemic map on the square that moves logits but no uncertainty. CLUE's need a VAE: left out.
"""

import warnings

import dubium
from tests.known_causes import known_causes
from tests.test_known_causes import mass

KINDS = ("total", "aleatoric", "epistemic")


def main() -> None:
    case = known_causes(16)
    print("| method | total | aleatoric | epistemic | epistemic map where only logits are shifted |")
    print("|---|---|---|---|---|")
    for name in [*(name for name in dubium.methods() if "clue" not in name), "ig:blur"]:
        method, _, start = name.partition(":")
        maps = dubium.explain(case.networks, case.x, method=method, **({"start": start} if start else {})).maps
        cells = [mass(maps[kind], case.raised[kind]) for kind in KINDS] + [mass(maps["epistemic"], case.ignored)]
        label = f'`{method}`, `start="{start}"`' if start else f"`{method}`"
        print(f"| {label} | " + " | ".join(f"{cell:.2f}" for cell in cells) + " |")


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main()
