"""Images with two causes of doubt at known places: a mark that made labels ambiguous, and a patch of another image."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from dubium.errors import ImagesError
from dubium.evaluation.metrics.anomaly import best_boxes, box_masks
from dubium.types import Images

MARK, PATCH, WINDOW = 7 / 28, 10 / 28, 6 / 28  # sides, as parts of the image's shorter side
TRIES = 50  # places of the patch that are tried for each image, until it lies apart from the mark
ALEATORIC_RISE, EPISTEMIC_RISE = 0.1, 0.02  # nats: a rise of a score that counts
Corners = Int64[Tensor, "B 2"]


class TwoCauses(NamedTuple):
    """Images with both causes, with each alone, and where the causes are: upper left corners (row, column)."""

    both: Images
    with_mark: Images
    with_patch: Images
    mark: Corners
    patch: Corners


class CauseSides(NamedTuple):
    """Sides in pixels: of the mark, of the patch, and of the window that a map's guess is."""

    mark: int
    patch: int
    window: int


def cause_sides(height: int, width: int) -> CauseSides:
    """Sides in proportion to the image: 7, 10 and 6 pixels of 28.

    Example:
        >>> cause_sides(28, 28)
        CauseSides(mark=7, patch=10, window=6)
    """
    sides = CauseSides(*(round(part * min(height, width)) for part in (MARK, PATCH, WINDOW)))
    if sides.mark < 3:
        raise ImagesError(f"The images are {height} x {width}; a mark needs at least 10 x 10.")
    return sides


def ring_mark(side: int) -> Float[Tensor, "side side"]:
    """A ring with a dot in its middle, 1 on 0.

    Example:
        >>> ring_mark(3).int().tolist()
        [[1, 1, 1], [1, 1, 1], [1, 1, 1]]
    """
    steps = torch.arange(side) - (side - 1) / 2
    radius = (steps[:, None].square() + steps.square()).sqrt() * 7 / side
    return ((radius > 2.2) & (radius < 3.4) | (radius < 0.8)).float()


def draw_corners(count: int, side: int, size: Sequence[int], draws: torch.Generator) -> Corners:
    """Random upper left corners of boxes that lie inside images of this size, (height, width)."""
    return torch.stack([torch.randint(pixels - side + 1, (count,), generator=draws) for pixels in size], 1)


def plant_mark(x: Images, corners: Corners, side: int) -> Images:
    """The brighter of image and mark, at each corner."""
    where = box_masks(corners, side, *x.shape[2:])
    marks = x.new_zeros(len(x), *x.shape[2:])
    marks[where] = ring_mark(side).to(x).flatten().repeat(len(x))  # boxes are filled image by image, row by row
    return torch.maximum(x, marks[:, None])


def plant_patch(x: Images, donors: Images, corners: Corners, side: int) -> Images:
    """The middle of each donor in the place of the box at each corner."""
    top, left = ((size - side) // 2 for size in x.shape[2:])
    middle = donors[:, :, top : top + side, left : left + side]
    where = box_masks(corners, side, *x.shape[2:])
    changed = x.clone()
    for channel in range(x.shape[1]):
        changed[:, channel][where] = middle[:, channel].flatten()
    return changed


def plant_two_causes(x: Images, donors: Images, *, seed: int = 0) -> TwoCauses:
    """A mark and a patch of another image in every image, at random places that do not touch."""
    draws, sides = torch.Generator().manual_seed(seed), cause_sides(*x.shape[2:])
    mark = draw_corners(len(x), sides.mark, x.shape[2:], draws)
    patch = draw_corners(len(x), sides.patch, x.shape[2:], draws)
    for _ in range(TRIES):
        again = draw_corners(len(x), sides.patch, x.shape[2:], draws)
        patch = torch.where(are_apart(mark, patch, sides)[:, None], patch, again)
    chosen = donors[torch.randint(len(donors), (len(x),), generator=draws)]
    with_patch = plant_patch(x, chosen, patch, sides.patch)
    with_mark = plant_mark(x, mark, sides.mark)
    return TwoCauses(plant_mark(with_patch, mark, sides.mark), with_mark, with_patch, mark, patch)


def are_apart(mark: Corners, patch: Corners, sides: CauseSides) -> Bool[Tensor, " B"]:
    """Whether at least one pixel lies between the two boxes, in one direction."""
    before, after = mark + sides.mark < patch, patch + sides.patch < mark
    return (before | after).any(1)


def points_at(maps: Float[Tensor, "B H W"], corners: Corners, side: int, window: int) -> Float[Tensor, " B"]:
    """1 where the middle of the window with the highest mean lies in the box at the corner, else 0.

    Example:
        >>> maps = torch.zeros(1, 8, 8)
        >>> maps[0, 4:6, 4:6] = 1
        >>> points_at(maps, torch.tensor([[3, 3]]), 4, 2).item(), points_at(maps, torch.tensor([[0, 0]]), 4, 2).item()
        (1.0, 0.0)
    """
    middle = best_boxes(maps, window).double() + (window - 1) / 2
    return ((middle >= corners) & (middle <= corners + side - 1)).all(1).double()


class Reactions(NamedTuple):
    """Which images' scores react to their causes.

    `loose`: the mark raises aleatoric and the patch epistemic uncertainty. `strict`: and neither raises the other kind.
    """

    loose: Bool[Tensor, " B"]
    strict: Bool[Tensor, " B"]


def score_reactions(
    both: Float[Tensor, "B kinds=2"], with_mark: Float[Tensor, "B kinds=2"], with_patch: Float[Tensor, "B kinds=2"]
) -> Reactions:
    """From (aleatoric, epistemic) scores: what each cause adds where the other one is there already.

    Example:
        >>> both, mark, patch = torch.tensor([[0.5, 0.1]]), torch.tensor([[0.5, 0.0]]), torch.tensor([[0.1, 0.1]])
        >>> [found.tolist() for found in score_reactions(both, mark, patch)]
        [[True], [True]]
    """
    least = both.new_tensor([ALEATORIC_RISE, EPISTEMIC_RISE])
    by_mark, by_patch = both - with_patch >= least, both - with_mark >= least
    loose = by_mark[:, 0] & by_patch[:, 1]
    return Reactions(loose, loose & ~by_mark[:, 1] & ~by_patch[:, 0])
