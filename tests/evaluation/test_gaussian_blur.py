import numpy as np
import pytest
import torch
from scipy.ndimage import gaussian_filter

from dubium.errors import OptionError
from dubium.evaluation.metrics.blurring import sigma_grid
from dubium.evaluation.metrics.gaussian_blur import gaussian_blur
from dubium.gaussian_kernel import truncated_blur_matrices


@pytest.mark.parametrize(("height", "width"), [(28, 28), (32, 32), (7, 12), (1, 5)])
def test_blur_is_scipys_at_every_sigma_of_the_grid(height, width):
    x = torch.rand(2, 3, height, width, generator=torch.Generator().manual_seed(0))
    sigmas = sigma_grid()
    blurred = gaussian_blur(x, sigmas)
    for n in (*range(0, 101, 9), 1, 100):
        expected = gaussian_filter(x.numpy(), (0, 0, sigmas[n], sigmas[n]), mode="reflect", truncate=4.0)
        np.testing.assert_allclose(blurred[n].numpy(), expected, atol=1e-5)


def test_sigma_zero_is_the_identity():
    x = torch.rand(2, 1, 6, 5)
    assert torch.equal(gaussian_blur(x, [0.0, 3.0])[0], x)


def test_every_row_of_a_blur_sums_to_one():
    assert torch.allclose(
        truncated_blur_matrices(9, [0.0, 0.2, 5.0, 20.0]).sum(2), torch.ones(4, 9, dtype=torch.float64)
    )


@pytest.mark.parametrize("sigmas", [[], [-1.0], [float("nan")], [float("inf")]])
def test_impossible_sigmas_are_refused(sigmas):
    with pytest.raises(OptionError, match="sigmas"):
        gaussian_blur(torch.rand(1, 1, 4, 4), sigmas)
