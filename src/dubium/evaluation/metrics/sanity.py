"""Checks that need no ground truth: do maps depend on the weights, repeat themselves, and concentrate on few pixels?"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from dubium.errors import OptionError
from dubium.evaluation.metrics.blurring import pixel_ranks
from dubium.evaluation.metrics.gaussian_blur import gaussian_blur
from dubium.evaluation.metrics.removal import removal_order
from dubium.evaluation.metrics.scoring import Uncertainty
from dubium.evaluation.ranks import rank_correlation
from dubium.evaluation.statistics import Array
from dubium.posteriors import Gaussian, MCDropout
from dubium.types import Images, Posterior

HIGHER_IS_BETTER = {
    "cascade": False,
    "top5": False,
    "bottom-cascade": False,
    "bottom-top5": False,
    "emprt": True,
    "kinds": None,
    "kinds-top5": None,
    "halves": True,
    "repeatability": True,
    "effective-pixels": None,
    "deletion": False,
    "insertion": True,
}
TOP = 0.05  # of the pixels: the top of a map
BINS = 100  # of a map's values, in its histogram
BASELINE = 10.0  # sigma of the image that pixels are deleted to, and inserted into


def rank_agreement(a: Float[Tensor, "B H W"], b: Float[Tensor, "B H W"]) -> Float[Tensor, " B"]:
    """Spearman's correlation of two maps of each image, from -1 to 1; 0 where one of them is the same everywhere.

    Example:
        >>> maps = torch.arange(4.0).view(1, 2, 2)
        >>> rank_agreement(maps, -maps).item()
        -1.0
    """
    first, second = (maps.detach().double().flatten(1).numpy(force=True) for maps in (a, b))
    scores = [rank_correlation(*rows) for rows in zip(first, second, strict=True)]
    return torch.tensor(scores, dtype=torch.float64)


def top_overlap(
    a: Float[Tensor, "B H W"], b: Float[Tensor, "B H W"], *, fraction: float = TOP, seed: int = 0
) -> Float[Tensor, " B"]:
    """Which part of the highest pixels two maps of each image share; `fraction` by chance.

    Equal pixels are ordered at random, each map by itself: maps that share zeros share nothing but chance there. Maps
    that order all pixels alike, with the same ties, share all of it, unless they are flat.

    Args:
        a: maps of some images.
        b: other maps of the same images.
        fraction: of the pixels, that counts as the top.
        seed: of the order of equal pixels.

    Returns:
        From 0 to 1 for each image.

    Example:
        >>> maps = torch.arange(100.0).view(1, 10, 10)
        >>> top_overlap(maps, maps).item(), top_overlap(maps, -maps).item()
        (1.0, 0.0)
    """
    count = max(1, round(fraction * a[0].numel()))
    first, second = (removal_order(maps, seed=seed + n) < count for n, maps in enumerate((a, b)))
    alike = torch.tensor([order_alike(*pair) for pair in zip(a, b, strict=True)], device=first.device)
    second = torch.where(alike[:, None, None], first, second)
    return (first & second).flatten(1).sum(1).double() / count


def order_alike(a: Float[Tensor, "H W"], b: Float[Tensor, "H W"]) -> bool:
    """Whether two maps have the same order of pixels with the same ties, as a map and its double; not if it is flat."""
    first, second = (torch.unique(pixels, return_inverse=True)[1] for pixels in (a, b))
    return bool(first.any()) and torch.equal(first, second)


def histogram_entropy(maps: Float[Tensor, "B H W"], bins: int = BINS) -> Float[Tensor, " B"]:
    """Entropy in nats of the histogram of each map's values between its lowest and its highest; 0 for a flat map.

    Example:
        >>> histogram_entropy(torch.tensor([[[0.0, 0.0, 1.0, 1.0]]])).item()  # doctest: +ELLIPSIS
        0.693...
    """
    flat = maps.double().flatten(1)
    low, high = flat.amin(1, keepdim=True), flat.amax(1, keepdim=True)
    bin_index = ((flat - low) / (high - low).clamp_min(1e-300) * bins).long().clamp_max(bins - 1)
    counts = torch.zeros(len(flat), bins, dtype=torch.float64).scatter_add(1, bin_index, torch.ones_like(flat))
    entropy: Tensor = torch.special.entr(counts / flat.shape[1]).sum(1)
    return entropy


def entropy_rise(maps: Float[Tensor, "B H W"], randomised: Float[Tensor, "B H W"]) -> Float[Tensor, " B"]:
    """The efficient randomisation test (eMPRT; Hedstroem et al., 2024, arXiv:2401.06465).

    How much more complex the map is once all weights are random, as a part of its own complexity: a map that speaks of
    what was learned loses its structure, so that its histogram's entropy rises. Below 0 where it falls.

    Args:
        maps: of the networks as they are.
        randomised: of the same images and networks with random weights.

    Returns:
        The relative rise for each image.

    Example:
        >>> entropy_rise(torch.tensor([[[0.0, 0.0, 0.0, 1.0]]]), torch.arange(4.0).view(1, 1, 4)).item() > 1
        True
    """
    before = histogram_entropy(maps)
    return (histogram_entropy(randomised) - before) / before.clamp_min(1e-12)


def effective_pixels(maps: Float[Tensor, "B H W"]) -> Float[Tensor, " B"]:
    """How many pixels carry a map: exp of the entropy of its absolute values, from 1 to the number of pixels.

    Example:
        >>> effective_pixels(torch.ones(1, 2, 4)).round().item()
        8.0
    """
    parts = maps.double().abs().flatten(1)
    total = parts.sum(1, keepdim=True)
    parts = torch.where(total > 0, parts / total.clamp_min(1e-300), 1 / parts.shape[1])
    entropy: Tensor = torch.special.entr(parts).sum(1)
    return entropy.exp()


def uncertainty_curves(
    uncertainty: Uncertainty,
    x: Images,
    maps: Float[Tensor, "B H W"],
    fractions: Sequence[float],
    *,
    insert: bool = False,
) -> Float[Tensor, "B N"]:
    """Uncertainty as the highest pixels are deleted (blurred away), or inserted into the blurred image.

    Args:
        uncertainty: nats of a batch of images, see `scorer`.
        maps: the attribution that ranks the pixels.
        fractions: of the pixels, N of them.
        insert: begin with the blurred image, and put the highest pixels of `x` into it.

    Returns:
        Nats, a row for each image and a column for each fraction.

    Example:
        >>> x = torch.rand(2, 1, 4, 4)
        >>> uncertainty_curves(lambda x: x.mean((1, 2, 3)).double(), x, x[:, 0], [0.0, 0.5, 1.0]).shape
        torch.Size([2, 3])
    """
    rank, blurred = pixel_ranks(maps), gaussian_blur(x, [BASELINE])[0]
    start, end = (blurred, x) if insert else (x, blurred)
    counts = torch.tensor([round(fraction * rank[0].numel()) for fraction in fractions])
    taken = rank[:, None] < counts[:, None, None]  # (B, N, H, W)
    rows = torch.where(taken[:, :, None], end[:, None], start[:, None])
    return uncertainty(rows.flatten(0, 1)).view(len(x), len(fractions))


def area_left(curves: Array, before: Array) -> Array:
    """Mean of U(x_t) / U(x) over a curve: low if the uncertainty goes at once, high if it comes at once."""
    return np.asarray(curves.mean(1) / before)


def halves(posterior: Posterior) -> tuple[list[nn.Module], list[nn.Module]]:
    """Two posteriors: the networks at even and at odd positions.

    Example:
        >>> [len(half) for half in halves([nn.Identity(), nn.Identity(), nn.Identity()])]
        [2, 1]
    """
    networks = list(posterior)
    if len(networks) < 2:
        raise OptionError(f"The posterior has {len(networks)} network; two halves need at least two.")
    return networks[::2], networks[1::2]


def redrawn(posterior: Posterior, seed: int) -> Posterior:
    """A posterior with as many networks, drawn again: with another seed where it has one, else with replacement.

    Example:
        >>> len(redrawn([nn.Linear(2, 2), nn.Linear(2, 2)], seed=1))
        2
    """
    if isinstance(posterior, MCDropout | Gaussian):
        return replace(posterior, seed=posterior.seed + 1 + seed)
    networks = list(posterior)
    draws = torch.Generator().manual_seed(seed)
    while True:  # at least two different ones, or nothing disagrees
        picked = torch.randint(len(networks), (len(networks),), generator=draws).tolist()
        if len(set(picked)) > 1 or len(networks) == 1:
            return [networks[index] for index in picked]
