"""An exact case: networks whose uncertainty comes from known pixels by construction.

Three squares of bright pixels on a dark image, with mean brightness a, b and c inside them. Four classes (i, j), i and
j from {-1, +1}, and two networks s = -1, +1 have the logits `i u(a) + s j w(b) + v(c)` with u = SURE - a LESS and
w = b MORE. So

- network s says i and j independently; the mean prediction says j evenly, whatever b is;
- total = H(i) + log 2 depends on square A alone, and rises with its brightness;
- epistemic = log 2 - H(j | s) depends on square B alone, and rises with its brightness;
- aleatoric = H(i) + H(j | s) rises with A and falls with B;
- square C shifts all logits alike: it moves every logit and no uncertainty.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

SURE, LESS, MORE, SHIFT = 2.0, 1.8, 1.2, 3.0
CORNERS = {"A": (1, 2), "B": (7, 1), "C": (5, 8)}
SIZE, SIDE = 12, 3


@dataclass(frozen=True)
class KnownCauses:
    """A posterior, images, and where each kind's uncertainty is raised and lowered."""

    networks: list[nn.Module]
    x: Float[Tensor, "B 1 H W"]
    raised: dict[str, Bool[Tensor, "H W"]]
    lowered: dict[str, Bool[Tensor, "H W"]]
    ignored: Bool[Tensor, "H W"]


def known_causes(images: int = 4, seed: int = 0) -> KnownCauses:
    squares = {name: square(*corner) for name, corner in CORNERS.items()}
    draws = torch.Generator().manual_seed(seed)
    bright = 0.7 + 0.3 * torch.rand(images, 1, SIZE, SIZE, generator=draws)
    x = sum(squares.values()) * bright
    none = torch.zeros(SIZE, SIZE, dtype=torch.bool)
    return KnownCauses(
        [network(s, squares) for s in (-1.0, 1.0)],
        x,
        raised={"total": squares["A"], "aleatoric": squares["A"], "epistemic": squares["B"]},
        lowered={"total": none, "aleatoric": squares["B"], "epistemic": none},
        ignored=squares["C"],
    )


def square(row: int, column: int) -> Bool[Tensor, "H W"]:
    inside = torch.zeros(SIZE, SIZE, dtype=torch.bool)
    inside[row : row + SIDE, column : column + SIDE] = True
    return inside


def network(s: float, squares: dict[str, Tensor]) -> nn.Module:
    """A convolution that copies the image, and a dense layer that reads the squares."""
    copy, read = nn.Conv2d(1, 1, 1), nn.Linear(SIZE * SIZE, 4)
    mean = {name: inside.float().flatten() / SIDE**2 for name, inside in squares.items()}
    with torch.no_grad():
        copy.weight.fill_(1)
        copy.bias.zero_()
        for k, (i, j) in enumerate(((-1, -1), (-1, 1), (1, -1), (1, 1))):
            read.weight[k] = -i * LESS * mean["A"] + s * j * MORE * mean["B"] + SHIFT * mean["C"]
            read.bias[k] = i * SURE
    return nn.Sequential(copy, nn.Flatten(), read).eval()
