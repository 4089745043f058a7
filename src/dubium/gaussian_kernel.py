"""One-dimensional kernels as matrices: a blur along one axis of an image is then one matrix product."""

from jaxtyping import Float
from torch import Tensor, arange, where


def fold_kernels(kernels: Float[Tensor, "n taps"], size: int) -> Float[Tensor, "n size size"]:
    """Matrices that convolve a line of `size` pixels with each kernel, reflected at both ends.

    Args:
        kernels: an odd number of taps each, the middle one at offset 0.
        size: pixels in the line.

    Returns:
        Row i holds the weight of each pixel in the result at pixel i. A row sums to what its kernel sums to.

    Example:
        >>> import torch
        >>> fold_kernels(torch.tensor([[0.25, 0.5, 0.25]]), 3)
        tensor([[[0.7500, 0.2500, 0.0000],
                 [0.2500, 0.5000, 0.2500],
                 [0.0000, 0.2500, 0.7500]]])
    """
    taps = kernels.shape[1]
    offsets = arange(taps, device=kernels.device) - taps // 2
    place = (arange(size, device=kernels.device)[:, None] + offsets) % (2 * size)
    place = where(place < size, place, 2 * size - 1 - place)  # reflect: ... 1 0 | 0 1 2 ... size-1 | size-1 ...
    shape = (len(kernels), size, taps)
    return kernels.new_zeros(len(kernels), size, size).scatter_add_(
        2, place.expand(shape), kernels[:, None].expand(shape)
    )
