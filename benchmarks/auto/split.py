"""Which test images `auto` was chosen on, and which it is judged on. The numbers are in split.json.

Test images are shuffled once: `torch.randperm(N)` with the seed of split.json. The first `seen` of them (null: all)
count as seen, since the first leads were found on them; of these, the first `development` were used to choose, the
others to check the choice. The final table takes the rest. MNIST has none left: there, networks trained anew are judged
on images that were seen. Fashion-MNIST took no part in choosing.
"""

import json
from pathlib import Path
from typing import Literal

import torch
from jaxtyping import Int64
from torch import Tensor

RULES = json.loads(Path(__file__).with_name("split.json").read_text(encoding="utf-8"))
Part = Literal["development", "check", "final"]


def split_indices(dataset: str, images: int, part: Part) -> Int64[Tensor, " n"]:
    """Indices into the test set of `images` images, in ascending order."""
    order = torch.randperm(images, generator=torch.Generator().manual_seed(RULES["seed"]))
    seen = images if RULES["seen"][dataset] is None else RULES["seen"][dataset]
    development = RULES["development"][dataset]
    if part == "final" and seen == images:
        seen = 0  # no unseen images: all of them, with networks trained anew
    chosen = {
        "development": order[:development],
        "check": order[development:seen],
        "final": order[seen:],
    }[part]
    return chosen.sort().values
