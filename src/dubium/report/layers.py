"""An image with a map on top, as HTML: the map is a layer of its own, so that a reader can fade it."""

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from dubium.data.fit import resize_image
from dubium.figures import SMALL, brightest_value, data_url, map_layer, picture
from dubium.report.pictures import drawn_map, img_element, place_of_peak
from dubium.run.store import Array, Row

STRIP = 4  # from this ratio of width to height on, pictures are put below each other
STRETCHED = 8  # from this ratio of the sides on, they are drawn thicker than they are
ALEATORIC, EPISTEMIC = (0.25, 0.62, 1.0), (1.0, 0.36, 0.2)  # colours of the contrast
Image = Float[Tensor, "C H W"]


def image_variable(image: Image) -> str:
    """The image as a style of a card; the stages in it draw it in grey, below their maps."""
    return f"--image:url({data_url(picture(image))})"


def stage_html(size: tuple[int, int], content: str, *, under: bool = False) -> str:
    """Content in a box with the shape of an image (height, width); `under` draws the card's image below it."""
    names = ["stage", *["under"] * under, *["small"] * (max(size) <= SMALL)]
    return f'<div class="{" ".join(names)}" style="--ratio:{size[1] / size[0]:.4g}">{content}</div>'


def is_strip(size: tuple[int, int]) -> bool:
    """Whether an image is so wide that several beside each other would be lines."""
    return size[1] >= STRIP * size[0]


def size_words(size: tuple[int, int]) -> str:
    """An image's size, and whether it is drawn as it is."""
    is_stretched = max(size) >= STRETCHED * min(size)
    return f"{size[1]} × {size[0]} pixels{', stretched to be seen' * is_stretched}"


def kind_layer(row: Row, image: Image, kind: str, smooth: float = 0.0) -> str:
    """The layer of one kind's map."""
    drawn, score = drawn_map(row, kind, smooth), getattr(row, kind)
    alt = f"{kind.capitalize()} uncertainty over image {row.id}: {score:.3f} nats, most at the "
    return img_element(map_layer(resize_image(drawn[None], image.shape[1:])[0]), alt + place_of_peak(drawn.numpy()))


def contrast_of_kinds(row: Row, smooth: float = 0.0) -> tuple[Array, float] | None:
    """Where the epistemic map has more of its sum than the aleatoric one, and how much both have in common.

    Returns:
        The difference (H, W) of the maps, each divided by its sum, as a part of their brightest value; and the sum of
        the smaller of both, from 0 (nothing in common) to 1 (the same picture). None where a map is missing or empty.
    """
    if not {"aleatoric", "epistemic"} <= row.stored_maps().keys():
        return None
    maps = [drawn_map(row, kind, smooth).double().clamp(min=0) for kind in ("aleatoric", "epistemic")]
    if not all(array.sum() > 0 for array in maps):
        return None
    aleatoric, epistemic = (array / array.sum() for array in maps)
    difference = (epistemic - aleatoric) / brightest_value(torch.maximum(aleatoric, epistemic))
    return difference.clamp(-1, 1).float().numpy(), float(torch.minimum(aleatoric, epistemic).sum())


def contrast_layer(row: Row, image: Image, difference: Array, shared: float) -> str:
    """The contrast as a layer: aleatoric in blue, epistemic in red, nothing where they agree."""
    sized = resize_image(torch.from_numpy(difference)[None], image.shape[1:])[0].numpy()
    colours: NDArray[np.float64] = np.where(sized[..., None] > 0, np.array(EPISTEMIC), np.array(ALEATORIC))
    alt = f"Aleatoric against epistemic over image {row.id}: {shared:.0%} of both maps is shared; "
    alt += f"more aleatoric at the {place_of_peak(-difference)}, more epistemic at the {place_of_peak(difference)}"
    return img_element(np.dstack([colours, np.sqrt(np.abs(sized))]), alt)
