"""An image with a map on top, as HTML: the map is a layer of its own, so that a reader can fade it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from dubium.data.fit import resize_image
from dubium.figures import SMALL, brightest_value, data_url, map_layer, picture
from dubium.report.pictures import drawn_map, img_element, place_of_peak
from dubium.run.store import Row

STRIP = 4  # from this ratio of width to height on, pictures are put below each other
STRETCHED = 8  # from this ratio of the sides on, they are drawn thicker than they are
ALEATORIC, EPISTEMIC = (0.25, 0.62, 1.0), (1.0, 0.36, 0.2)  # colours of the contrast
Image = Float[Tensor, "C H W"]


def image_variable(image: Image) -> str:
    """The image as a style of a card; the stages in it draw it in grey, below their maps."""
    return f"--image:url({data_url(picture(image))})"


def stage_html(size: Sequence[int], content: str, *, under: bool = False) -> str:
    """Content in a box with the shape of an image (height, width); `under` draws the card's image below it."""
    names = ["stage", *["under"] * under, *["small"] * (max(size) <= SMALL)]
    return f'<div class="{" ".join(names)}" style="--ratio:{size[1] / size[0]:.4g}">{content}</div>'


def is_strip(size: Sequence[int]) -> bool:
    """Whether an image is so wide that several beside each other would be lines."""
    return size[1] >= STRIP * size[0]


def size_words(size: Sequence[int]) -> str:
    """An image's size, and whether it is drawn as it is."""
    is_stretched = max(size) >= STRETCHED * min(size)
    return f"{size[1]} × {size[0]} pixels{', stretched to be seen' * is_stretched}"


def kind_layer(row: Row, image: Image, kind: str, smooth: float = 0.0) -> str:
    """The layer of one kind's map."""
    words = f"{kind.capitalize()} uncertainty over image {row.id}: {getattr(row, kind):.3f} nats"
    return map_element(drawn_map(row, kind, smooth), image, words)


def lowering_layer(row: Row, image: Image, kind: str, smooth: float = 0.0) -> str:
    """The layer of what lowers one kind; the maps of `row` say it."""
    return map_element(drawn_map(row, kind, smooth), image, f"What lowers {kind} uncertainty over image {row.id}")


def map_element(drawn: Float[Tensor, "h w"], image: Image, words: str) -> str:
    """A map at the image's size, with words that say what it is and where it is highest."""
    layer = map_layer(resize_image(drawn[None], image.shape[1:])[0])
    return img_element(layer, f"{words}, most at the {place_of_peak(drawn.numpy())}")


@dataclass(frozen=True)
class Contrast:
    """Where the epistemic map has more of its sum than the aleatoric one, and how much both have in common."""

    difference: Float[Tensor, "H W"]
    """Of the maps, each divided by its sum, as a part of their brightest value: from -1 to 1."""
    shared: float
    """The sum of the smaller of both, from 0 (nothing in common) to 1 (the same picture)."""


def contrast_of_kinds(maps: Mapping[str, Tensor]) -> Contrast | None:
    """The contrast of the aleatoric and the epistemic map; None where one is missing or empty."""
    if not {"aleatoric", "epistemic"} <= maps.keys():
        return None
    both = [maps[kind].double().clamp(min=0) for kind in ("aleatoric", "epistemic")]
    if not all(array.sum() > 0 for array in both):
        return None
    aleatoric, epistemic = (array / array.sum() for array in both)
    difference = (epistemic - aleatoric) / brightest_value(torch.maximum(aleatoric, epistemic))
    return Contrast(difference.clamp(-1, 1).float(), float(torch.minimum(aleatoric, epistemic).sum()))


def contrast_colours(contrast: Contrast, size: Sequence[int]) -> Float[np.ndarray, "H W 4"]:
    """The contrast as a layer of this size: aleatoric in blue, epistemic in red, nothing where they agree."""
    sized = resize_image(contrast.difference[None], size)[0].numpy()
    colours = np.where(sized[..., None] > 0, np.array(EPISTEMIC), np.array(ALEATORIC))
    return np.dstack([colours, np.sqrt(np.abs(sized))])


def contrast_words(contrast: Contrast) -> str:
    """The contrast in words."""
    aleatoric, epistemic = (place_of_peak(sign * contrast.difference.numpy()) for sign in (-1, 1))
    return (
        f"{contrast.shared:.0%} of the aleatoric and the epistemic map is shared; more aleatoric at the {aleatoric}, "
        f"more epistemic at the {epistemic}"
    )
