"""Anomaly detection (Appendix C): does the map point at the patch that was planted in an image?"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor
from torch.nn import functional as F

from dubium.errors import ImagesError, OptionError
from dubium.evaluation.metrics.removal import impute_linearly
from dubium.types import Images

HIGHER_IS_BETTER = {"iou": True, "ada": True, "recovery": True}
BOX = 10
FOUND = 0.5  # an IoU above this counts as detected


class Planted(NamedTuple):
    """Images with a foreign patch each, and the patches' upper left corners (row, column)."""

    x: Images
    corners: Int64[Tensor, "B 2"]


def plant(x: Images, source: Float[Tensor, "N C H W"], *, box: int = BOX, seed: int = 0) -> Planted:
    """Replace one box of each image by the same place of an image drawn from `source`.

    Args:
        x: images to change.
        source: images of the same shape that the patches are cut from.
        box: side of the patch in pixels.
        seed: of the places and of the donors.

    Returns:
        The changed copies, and the upper left corner (row, column) of each patch.

    Example:
        >>> planted = plant(torch.zeros(2, 1, 8, 8), torch.ones(3, 1, 8, 8), box=3)
        >>> planted.x.sum((1, 2, 3)).tolist(), planted.corners.shape
        ([9.0, 9.0], torch.Size([2, 2]))
    """
    height, width = x.shape[2:]
    _check_box(box, height, width)
    if source.shape[1:] != x.shape[1:] or not len(source):
        raise ImagesError(f"The source of patches has shape {tuple(source.shape)}, the images {tuple(x.shape)}.")
    draws = torch.Generator().manual_seed(seed)
    row = torch.randint(height - box + 1, (len(x),), generator=draws)
    column = torch.randint(width - box + 1, (len(x),), generator=draws)
    donors = torch.randint(len(source), (len(x),), generator=draws)
    corners = torch.stack([row, column], 1)
    inside = box_masks(corners, box, height, width)[:, None].to(x.device)
    return Planted(torch.where(inside, source[donors].to(x), x), corners)


def best_boxes(maps: Float[Tensor, "B H W"], box: int = BOX) -> Int64[Tensor, "B 2"]:
    """Upper left corner of the window with the highest mean attribution; the first, row by row, of equal ones.

    Example:
        >>> maps = torch.zeros(1, 8, 8)
        >>> maps[0, 2:5, 3:6] = 1
        >>> best_boxes(maps, 3).tolist()
        [[2, 3]]
    """
    _check_box(box, *maps.shape[1:])
    means = F.avg_pool2d(maps.double()[:, None], box, stride=1)[:, 0]
    at = first_highest(means.flatten(1))
    return torch.stack([at // means.shape[2], at % means.shape[2]], 1)


def first_highest(values: Float[Tensor, "B N"]) -> Int64[Tensor, " B"]:
    """NumPy's `argmax`, which promises the first of equal values; torch's promises none."""
    return torch.from_numpy(values.numpy(force=True).argmax(1)).to(values.device)


def box_iou(a: Int64[Tensor, "B 2"], b: Int64[Tensor, "B 2"], box: int = BOX) -> Float[Tensor, " B"]:
    """Overlap over union of two boxes of the same size, given by their upper left corners.

    Example:
        >>> box_iou(torch.tensor([[0, 0]]), torch.tensor([[0, 5]]), 10).item()
        0.3333333333333333
    """
    overlap = (box - (a - b).abs()).clamp_min(0).prod(1).double()
    return overlap / (2 * box**2 - overlap)


def box_masks(corners: Int64[Tensor, "B 2"], box: int, height: int, width: int) -> Bool[Tensor, "B H W"]:
    """True inside each box."""
    down, across = torch.arange(height), torch.arange(width)
    row, column = corners[:, :1], corners[:, 1:]
    return ((down >= row) & (down < row + box))[:, :, None] & ((across >= column) & (across < column + box))[:, None]


def recovery(
    predict: Callable[[Images], Int64[Tensor, " B"]],
    x: Images,
    before: Int64[Tensor, " B"],
    corners: Int64[Tensor, "B 2"],
    *,
    box: int = BOX,
    seed: int = 0,
) -> Float[Tensor, " B"]:
    """1 where the prediction goes back to that of the clean image when a box is removed, else 0.

    Args:
        predict: images -> classes.
        x: images with a patch.
        before: the predicted classes of the clean images.
        corners: upper left corner of the box that is removed, by noisy linear imputation.
        box: its side in pixels.
        seed: of the noise.

    Returns:
        A number for each image.

    Example:
        >>> x = torch.zeros(1, 1, 6, 6)
        >>> x[..., 1:3, 1:3] = 1
        >>> dark = lambda x: (x.amax((1, 2, 3)) < 0.5).long()
        >>> recovery(dark, x, torch.tensor([1]), torch.tensor([[1, 1]]), box=2).item()
        1.0
    """
    gone = box_masks(corners, box, *x.shape[2:]).to(x.device)
    return (predict(impute_linearly(x, gone, seed=seed)) == before).double()


def localisation(maps: Float[Tensor, "B H W"], masks: Bool[Tensor, "B H W"]) -> dict[str, Float[Tensor, " B"]]:
    """How well maps agree with masks of any shape, image by image.

    Returns:
        `mask-iou`: overlap over union of the mask and as many of the highest pixels; `pointing`: 1 where the highest
        pixel lies inside the mask, else 0; `mass`: the part of the positive attribution inside. NaN where a mask is
        empty.

    Example:
        >>> maps, masks = torch.tensor([[[3.0, 1.0]]]), torch.tensor([[[True, False]]])
        >>> {name: value.item() for name, value in localisation(maps, masks).items()}
        {'mask-iou': 1.0, 'pointing': 1.0, 'mass': 0.75}
    """
    if maps.shape != masks.shape:
        raise ImagesError(f"The masks have shape {tuple(masks.shape)}, the maps {tuple(maps.shape)}.")
    inside, flat = masks.flatten(1), maps.double().flatten(1)
    size = inside.sum(1)
    rank = flat.argsort(dim=1, descending=True, stable=True).argsort(1)
    overlap = (inside & (rank < size[:, None])).sum(1).double()
    positive = flat.clamp_min(0)
    empty = torch.where(size > 0, 0.0, torch.nan).double()
    return {
        "mask-iou": overlap / (2 * size - overlap).clamp_min(1) + empty,
        "pointing": (inside & (rank == 0)).any(1).double() + empty,
        "mass": (positive * inside).sum(1) / positive.sum(1).clamp_min(1e-300) + empty,
    }


def _check_box(box: int, height: int, width: int) -> None:
    if not 1 <= box <= min(height, width):
        raise OptionError(f"The box is {box} x {box}; from 1 to the {height} x {width} of the images is needed.")
