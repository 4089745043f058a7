import numpy as np
import pytest
import torch
from scipy.ndimage import gaussian_filter
from torch import nn

import dubium
from dubium.data import Dataset
from dubium.errors import OptionError
from dubium.evaluation.methods import parse_methods
from dubium.evaluation.metrics.blurring import (
    auc_urr,
    blurring_test,
    image_areas,
    murr,
    pixel_counts,
    pixel_ranks,
    reduction_rates,
    sigma_grid,
)
from dubium.evaluation.metrics.gaussian_blur import gaussian_blur
from dubium.evaluation.metrics.scoring import scorer
from dubium.evaluation.protocols import Evaluation, run_protocol
from dubium.evaluation.protocols.blurring_truth import STAGES, blurred_stages
from tests.evaluation.handmade import Judge, quarrel
from tests.networks import ensemble, images, small_cnn


def bright(pixel=(2, 3), count=3):
    x = torch.zeros(count, 1, 8, 8)
    x[:, :, pixel[0], pixel[1]] = 1.0
    return x


def rates_of(map_pixel, count=3):
    maps = torch.zeros(count, 8, 8)
    maps[:, map_pixel[0], map_pixel[1]] = 1.0
    found = blurring_test(scorer(quarrel()), bright(count=count), maps, counts=[1, 3], sigmas=sigma_grid(2.0))
    return [reduction_rates(one.curves.numpy()) for one in found], found


def test_the_one_harmful_pixel_first_gives_murr_one():
    rates, found = rates_of((2, 3))
    for rate, steps in zip(rates, (2, 4), strict=True):
        assert rate.shape == (3, steps)
        assert float(murr(rate, 0)) == 1.0
        np.testing.assert_array_equal(rate[:, 0], 0)
        np.testing.assert_array_equal(rate[:, 1], 1)
        assert float(auc_urr(rate, 0)) == pytest.approx(1 / steps)  # all of it at t = 0, nothing after
    assert float(found[0].sigma[0]) == 2.0  # the smallest of those that leave nothing


def test_a_harmless_pixel_first_gives_murr_zero_and_area_one():
    (rate, _), found = rates_of((7, 7))
    assert float(murr(rate, 0)) == 0.0
    assert float(auc_urr(rate, 0)) == 1.0
    assert float(found[0].sigma[0]) == 0.0  # nothing helps: the first of equal sigmas


def test_the_area_of_a_straight_line_is_one_half():
    curves = np.linspace(1, 0, 21)[None].repeat(5, 0) * np.array([1.0, 2.0, 3.0, 4.0, 5.0])[:, None]
    rates = reduction_rates(curves)
    assert float(auc_urr(rates, 0)) == pytest.approx(0.5)
    np.testing.assert_allclose(image_areas(rates), 0.5)


def test_the_best_reduction_so_far_counts_and_never_falls_below_zero():
    rates = reduction_rates(np.array([[2.0, 3.0, 1.0, 1.5]]))
    np.testing.assert_allclose(rates, [[0, 0, 0.5, 0.5]])


def test_an_image_without_uncertainty_has_no_rate():
    rates = reduction_rates(np.array([[0.0, 0.0], [1.0, 0.25]]))
    assert np.isnan(rates[0]).all()
    np.testing.assert_allclose(rates[1], [0, 0.75])


def test_the_median_is_over_images_not_over_steps():
    rates = np.array([[0, 0.1], [0, 0.2], [0, 0.9]])
    assert float(murr(rates, 0)) == 0.2
    assert float(auc_urr(rates, 0)) == pytest.approx(1 - 0.1)


def test_equal_pixels_are_ranked_in_row_order_and_the_sign_counts():
    assert torch.equal(pixel_ranks(torch.zeros(1, 2, 3))[0], torch.arange(6).view(2, 3))
    assert torch.equal(pixel_ranks(torch.tensor([[[-5.0, 0.0], [3.0, -1.0]]]))[0], torch.tensor([[3, 1], [0, 2]]))


def test_the_papers_pixel_counts():
    assert pixel_counts(28, 28) == (16, 39)
    assert pixel_counts(32, 32) == (20, 51)
    with pytest.raises(OptionError, match="fraction"):
        pixel_counts(4, 4, [0.001])


def test_the_grid_has_101_sigmas_from_0_to_20():
    grid = sigma_grid()
    assert (len(grid), grid[0], grid[1], grid[-1]) == (101, 0.0, 0.2, 20.0)


@pytest.mark.parametrize("search", ["ranked", "whole"])
def test_it_equals_a_plain_loop(search):
    posterior, x = ensemble(lambda: small_cnn(channels=3)), images(channels=3)
    maps = torch.randn(3, 12, 12, generator=torch.Generator().manual_seed(3))
    sigmas, counts = [0.0, 0.7, 1.5, 6.0], [4, 9]
    uncertainty = scorer(posterior)
    found = blurring_test(uncertainty, x, maps, counts=counts, sigmas=sigmas, search=search, batch_size=7)
    for b in range(len(x)):
        order = maps[b].flatten().argsort(descending=True, stable=True)
        copies = [torch.from_numpy(gaussian_filter(x[b].numpy(), (0, s, s))) for s in sigmas]

        def at(copy, t, b=b, order=order):
            mixed = x[b].clone().flatten(1)
            mixed[:, order[:t]] = copy.flatten(1)[:, order[:t]]
            return float(uncertainty(mixed.view(1, *x.shape[1:])))

        for one, count in zip(found, counts, strict=True):
            best = min(range(4), key=lambda n: at(copies[n], count if search == "ranked" else 144))
            assert float(one.sigma[b]) == pytest.approx(sigmas[best])
            expected = [at(copies[best], t) for t in range(count + 1)]
            np.testing.assert_allclose(one.curves[b].numpy(), expected, rtol=1e-4, atol=1e-7)


def test_no_candidate_is_scored_twice():
    seen = []

    def count(x):
        seen.append(len(x))
        return x.double().flatten(1).sum(1)

    blurring_test(count, bright(count=2), torch.rand(2, 8, 8), counts=[2], sigmas=[0.0, 1.0, 2.0], batch_size=4)
    assert sum(seen[:2]) == 2 * 3  # x itself, and two sigmas
    assert sum(seen[2:]) <= 2 * 3  # x itself, and two steps


def test_a_network_that_flattens_with_view_is_scored():
    class Viewed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.convolution, self.dense = nn.Conv2d(2, 3, 3), nn.Linear(3 * 36, 4)

        def forward(self, x):
            return self.dense(self.convolution(x).view(len(x), -1))

    networks, x = [Viewed().eval() for _ in range(2)], torch.rand(5, 2, 8, 8)
    expected = dubium.uncertainty(networks, x).scores["epistemic"].double()
    torch.testing.assert_close(scorer(networks)(x), expected, rtol=1e-4, atol=1e-7)


def test_blurred_stages_are_the_images_of_the_test():
    x, sigma = torch.rand(2, 1, 6, 6, generator=torch.Generator().manual_seed(0)), torch.tensor([2.0, 0.0])
    stages = blurred_stages(x, x[:, 0], sigma, 10).view(STAGES + 1, 2, 1, 6, 6)
    assert torch.equal(stages[0], x)
    assert torch.equal(stages[:, 1], x[1:].expand(STAGES + 1, -1, -1, -1))  # sigma 0 blurs nothing
    highest = x[0, 0] >= x[0, 0].flatten().sort().values[-10]
    torch.testing.assert_close(stages[-1, 0, 0], torch.where(highest, gaussian_blur(x[:1], [2.0])[0, 0, 0], x[0, 0]))


def test_the_protocol_tells_whether_predictions_stay_right(tmp_path):
    x = torch.zeros(4, 1, 8, 8)
    x[:, 0, 2, 3] = torch.tensor([0.8, 1.0, 0.9, 0.7])
    networks = [Judge((2, 3), -1.0, strength=strength).eval() for strength in (9.0, 4.0)]  # class 1 where it is bright
    data = Dataset(x, torch.tensor([1, 1, 1, 0]), ("a", "b"), "bright", "test")
    evaluation = Evaluation(networks, data, parse_methods(["grad"], 1), ("epistemic",), tmp_path)
    found = run_protocol("blurring", evaluation, images=4, step=4.0)
    assert found["results"]["grad"]["accuracy@2%"]["value"] == 0.25  # blurred, both classes are equal: the first
    assert found["results"]["grad"]["true-probability@5%"]["value"] == 0.5
    assert found["curves"]["grad"]["2%"]["accuracy"][0] == 0.75
