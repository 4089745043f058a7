"""Path methods: their sums converge to differences of uncertainty, at the order that their rule promises."""

import math
from importlib import import_module

import pytest
import torch
from scipy.ndimage import gaussian_filter
from torch import nn

import dubium
from dubium.attribution._blur import blur_with_derivative
from dubium.attribution._context import Context
from dubium.gaussian_kernel import blur_matrices
from tests.networks import ensemble, images, small_cnn

SIGMAS = (0.3, 0.9, 2.0, 7.5)


def smooth_case():
    """Networks without kinks, so that the order of a rule shows."""

    def make():
        layers = (nn.Conv2d(1, 4, 3), nn.Tanh(), nn.Conv2d(4, 4, 3), nn.Tanh(), nn.Flatten(), nn.Linear(256, 4))
        return nn.Sequential(*layers)

    return [network.double() for network in ensemble(make)], images(2, dtype=torch.float64)


def epistemic(networks, x):
    return dubium.uncertainty(networks, x).scores["epistemic"]


def errors(networks, x, exact, steps, **options):
    found = [dubium.explain(networks, x, steps=n, **options).maps["epistemic"].sum((1, 2)) for n in steps]
    return [(total - exact).abs().max().item() for total in found]


@pytest.mark.parametrize(("start", "value"), [("white", 1.0), ("black", 0.0)])
def test_ig_converges_to_the_difference_from_its_start_at_second_order(start, value):
    networks, x = smooth_case()
    exact = epistemic(networks, x) - epistemic(networks, torch.full_like(x, value))
    coarse, fine, finest = errors(networks, x, exact, (20, 40, 80), method="ig", start=start)
    assert coarse / fine == pytest.approx(4, rel=0.2)
    assert fine / finest == pytest.approx(4, rel=0.2)


@pytest.mark.parametrize("sigma_max", [3, 20])
def test_blur_ig_converges_to_the_difference_from_the_fully_blurred_image(sigma_max):
    networks, x = smooth_case()
    start, _ = blur_with_derivative(x, torch.tensor([float(sigma_max)], dtype=torch.float64), math.ceil(4 * sigma_max))
    exact = epistemic(networks, x) - epistemic(networks, start[0])
    coarse, fine, finest = errors(networks, x, exact, (100, 200, 400), method="blur-ig", sigma_max=float(sigma_max))
    assert coarse / fine > 3.3
    assert fine / finest > 3.3
    assert finest < 1e-4 * exact.abs().max()


def test_guided_ig_converges_to_the_difference_from_its_start_at_first_order():
    networks, x = smooth_case()
    exact = epistemic(networks, x) - epistemic(networks, torch.ones_like(x))
    coarse, fine, finest = errors(networks, x, exact, (50, 100, 200), method="guided-ig")
    assert coarse / fine == pytest.approx(2, rel=0.35)
    assert fine / finest == pytest.approx(2, rel=0.35)


def test_guided_ig_of_a_linear_target_is_weight_times_difference():
    network = nn.Sequential(nn.Flatten(), nn.Linear(144, 2, bias=False)).double().eval()
    from dubium.attribution import guided_ig

    x = images(3, dtype=torch.float64)
    maps = guided_ig(network, x, lambda z: z, steps=7)
    exact = network[1].weight.view(1, 2, 12, 12) * (x - 1)
    torch.testing.assert_close(maps, exact, rtol=1e-9, atol=1e-12)


def test_guided_ig_moves_pixels_of_small_slope_first():
    from dubium.attribution.guided_ig import integrate_guided

    seen = []

    def slope(at):
        seen.append(at.clone())
        return torch.tensor([[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]])

    integrate_guided(slope, torch.zeros(1, 8), torch.ones(1, 8), 100)
    middle = seen[50][0]
    assert middle[0] == pytest.approx(0.52, abs=1e-6)  # ahead of the line by all that is allowed
    assert middle[-1] == pytest.approx(0.48, abs=1e-6)  # behind it by as much
    assert middle.sum() == pytest.approx(4, abs=1e-5)  # half of the way in all


@pytest.mark.parametrize("sigma", SIGMAS)
def test_blur_equals_scipys_filter_with_reflecting_ends(sigma):
    x = torch.rand(2, 3, 11, 17, dtype=torch.float64)
    ours, _ = blur_with_derivative(x, torch.tensor([sigma], dtype=torch.float64), 40)
    theirs = gaussian_filter(x.numpy(), sigma=(0, 0, sigma, sigma), mode="reflect", radius=(0, 0, 40, 40))
    torch.testing.assert_close(ours[0], torch.from_numpy(theirs), rtol=1e-9, atol=1e-12)


def test_the_derivative_in_sigma_equals_autograd():
    x = torch.rand(1, 1, 9, 9, dtype=torch.float64)
    sigmas = torch.tensor(SIGMAS, dtype=torch.float64)
    _, analytic = blur_with_derivative(x, sigmas, 40)
    numeric = torch.autograd.functional.jacobian(lambda s: blur_with_derivative(x, s, 40)[0], sigmas)
    exact = torch.stack([numeric[i, ..., i] for i in range(len(SIGMAS))])
    torch.testing.assert_close(analytic, exact, rtol=1e-8, atol=1e-10)


def test_blur_rows_sum_to_one_and_their_change_to_zero():
    matrices, changes = blur_matrices(13, torch.tensor(SIGMAS), 40)
    torch.testing.assert_close(matrices.sum(2), torch.ones(4, 13))
    torch.testing.assert_close(changes.sum(2), torch.zeros(4, 13), rtol=0, atol=1e-5)


@pytest.mark.parametrize(("name", "blur"), [("blur_ig", "blur_with_derivative"), ("blur_path", "blurred_copies")])
def test_images_are_blurred_once_a_chunk(name, blur, monkeypatch):
    module, chunks, blurs = import_module(f"dubium.attribution.{name}"), [], []
    original = getattr(module, blur)
    monkeypatch.setattr(module, blur, lambda *args: blurs.append(args) or original(*args))
    network = ensemble(small_cnn)[0]
    context = Context(memory=2**18, progress=lambda done, _all: chunks.append(done))
    getattr(module, name)(network, images(3), lambda z: z, context=context)
    assert len(blurs) == len(chunks) > 1
