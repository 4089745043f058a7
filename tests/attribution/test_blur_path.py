"""The path from blurred copies: exact on linear targets, complete in the limit, and its kinds add up."""

import pytest
import torch
from scipy.ndimage import gaussian_filter
from torch import nn

import dubium
from dubium._methods import scale_to_scores
from dubium.attribution import blur_path, ig
from dubium.attribution._blur import WIDTHS, blurred_copies
from dubium.attribution._context import DEFAULT_CONTEXT
from dubium.attribution.blur_path import PARTS_OF_TOTAL, blur_credits, credits_of_kinds, mean_rise
from dubium.posteriors import stack
from dubium.shares import UncertaintyTarget
from tests.networks import ensemble, images, small_cnn


def smooth_ensemble():
    """Networks without kinks, so that the order of a rule shows."""

    def make():
        layers = (nn.Conv2d(1, 4, 3), nn.Tanh(), nn.Conv2d(4, 4, 3), nn.Tanh(), nn.Flatten(), nn.Linear(256, 4))
        return nn.Sequential(*layers)

    return [network.double() for network in ensemble(make)]


def scipy_copies(x):
    """Independent of dubium's blur; wide kernels, as the tests' tolerance needs."""
    sigmas = [width * min(x.shape[2:]) for width in WIDTHS]
    return [torch.from_numpy(gaussian_filter(x.numpy(), (0, 0, s, s), mode="reflect", truncate=12)) for s in sigmas]


def lines(network, x, target, passes=16):
    return blur_credits(network, x, target, passes, DEFAULT_CONTEXT)


def scores(networks, x):
    found = dubium.uncertainty(networks, x).scores
    return torch.stack([found[kind] for kind in PARTS_OF_TOTAL], 1)


def test_the_copies_are_blurred_in_proportion_to_the_shorter_side():
    for size in ((16, 16), (32, 40), (96, 64)):
        x = torch.rand(2, 3, *size, dtype=torch.float64)
        torch.testing.assert_close(blurred_copies(x), torch.stack(scipy_copies(x)), rtol=0, atol=2e-4)


@pytest.mark.parametrize("passes", [1, 2, 7, 8])
def test_a_linear_target_gives_weight_times_what_each_blur_takes(passes):
    network = nn.Sequential(nn.Flatten(), nn.Linear(3 * 144, 2, bias=False)).double().eval()
    x = torch.rand(2, 3, 12, 12, dtype=torch.float64)
    maps, extras = blur_path(network, x, lambda z: z, passes=passes)
    details = x - blurred_copies(x)[:passes]
    exact = torch.einsum("tchw,nbchw->nbthw", network[1].weight.view(2, 3, 12, 12), details)
    torch.testing.assert_close(maps, exact.clamp_min(0).mean(0), rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(extras["signed"], exact.mean(0), rtol=1e-9, atol=1e-12)


def test_each_line_converges_to_the_difference_from_its_blurred_copy_at_second_order():
    networks, x = smooth_ensemble(), images(2, dtype=torch.float64)
    exact = scores(networks, x)[:, None] - torch.stack([scores(networks, copy) for copy in blurred_copies(x)], 1)
    target = UncertaintyTarget(PARTS_OF_TOTAL)
    coarse, fine, finest = (
        (lines(stack(networks), x, target, n).sum((3, 4)) - exact).abs().max() for n in (80, 160, 320)
    )
    assert coarse / fine == pytest.approx(4, rel=0.25)
    assert fine / finest == pytest.approx(4, rel=0.25)


def test_it_is_ig_with_blurred_starts():
    network, x, target = stack(ensemble(small_cnn)), images(2), UncertaintyTarget(PARTS_OF_TOTAL)
    signed = lines(network, x, target, 6 * len(WIDTHS)).mean(1)
    torch.testing.assert_close(signed, ig(network, x, target, steps=6, start="blur"), rtol=1e-4, atol=1e-7)


def test_the_map_of_total_is_exactly_the_sum_of_the_two_others():
    network, x = stack(ensemble(small_cnn)), images(3)
    found = credits_of_kinds(
        lines(network, x, UncertaintyTarget(PARTS_OF_TOTAL)), PARTS_OF_TOTAL, ("total", "aleatoric", "epistemic")
    )
    assert torch.equal(found[:, :, 0], found[:, :, 1] + found[:, :, 2])
    own = lines(network, x, UncertaintyTarget(("total",)))
    torch.testing.assert_close(found[:, :, :1], own, rtol=1e-3, atol=1e-6)


def test_what_raises_less_what_lowers_is_the_signed_map():
    found = lines(stack(ensemble(small_cnn)), images(2), UncertaintyTarget(PARTS_OF_TOTAL))
    assert (mean_rise(found) >= 0).all()
    torch.testing.assert_close(mean_rise(found) - mean_rise(-found), found.mean(1), rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("size", [(16, 16), (20, 32)])
def test_net_takes_the_mean_fall_within_each_lines_blur_from_its_rises(size):
    found = torch.randn(2, len(WIDTHS), 3, *size, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    found[1, :, 2] = -1 - found[1, :, 2].abs()
    found[1, 2, 2, 3, 4] = 0.1  # a rise, far below the falls around it
    exact = torch.zeros(2, 3, *size, dtype=torch.float64)
    for line, width in enumerate(WIDTHS):
        sigma = width * min(size)
        falls = gaussian_filter((-found[:, line]).clamp_min(0).numpy(), (0, 0, sigma, sigma), truncate=12)
        exact += (found[:, line].clamp_min(0) - 2 * torch.from_numpy(falls)).clamp_min(0) / len(WIDTHS)
    exact[1, 2] = 0
    exact[1, 2, 3, 4] = 0.1 / len(WIDTHS)  # nothing is above: all rises
    torch.testing.assert_close(mean_rise(found, 2), exact, rtol=0, atol=5e-3)
    assert torch.equal(mean_rise(found, 0), mean_rise(found))


def test_net_is_an_option_that_is_checked():
    networks, x = ensemble(small_cnn), images(2)
    plain, net = dubium.explain(networks, x, method="blur-path"), dubium.explain(networks, x, method="blur-path", net=2)
    assert torch.equal(plain.extras["signed"]["total"], net.extras["signed"]["total"])
    for kind, maps in net.maps.items():
        torch.testing.assert_close(maps.sum((1, 2)), net.scores[kind], rtol=1e-5, atol=1e-7)
        assert (maps >= 0).all()
        assert ((maps > 0) <= (plain.maps[kind] > 0)).all()
    for wrong in (-1, float("nan"), float("inf")):
        with pytest.raises(dubium.errors.OptionError, match="net="):
            dubium.explain(networks, x, method="blur-path", net=wrong)


def test_a_constant_image_has_a_map_of_exactly_nothing():
    x = torch.full((1, 3, 24, 24), 0.3) + torch.tensor([0.0, 0.1, 0.37])[:, None, None]
    network = nn.Sequential(nn.Flatten(), nn.Linear(3 * 576, 4)).eval()
    assert torch.equal(blur_path(network, x, lambda z: z).maps, torch.zeros(1, 4, 24, 24))


def test_maps_scaled_to_scores_sum_to_them_are_uniform_without_cause_and_zero_without_doubt():
    raised = torch.tensor([[3.0, 0.0, 1.0, 0.0], [0.0, 0.0, 0.0, 0.0], [5.0, 1.0, 1.0, 1.0]]).view(1, 3, 2, 2)
    maps = scale_to_scores(raised, torch.tensor([[2.0, 0.4, 0.0]]))
    exact = torch.tensor([[1.5, 0.0, 0.5, 0.0], [0.1, 0.1, 0.1, 0.1], [0.0, 0.0, 0.0, 0.0]]).view(1, 3, 2, 2)
    torch.testing.assert_close(maps, exact, rtol=1e-6, atol=0)


@pytest.mark.parametrize("classes", [3, 60])
def test_the_passes_are_those_asked_for_whatever_the_number_of_classes(classes):
    rows = []
    network = small_cnn(classes=classes).eval()
    network[0].register_forward_hook(lambda _layer, args, _out: rows.append(len(args[0])))
    blur_path(stack([network]), images(3), UncertaintyTarget(PARTS_OF_TOTAL), passes=5)
    assert sum(rows) == 3 * 5 + 1  # one image is measured first


def test_auto_is_blur_path_with_net_unless_it_is_said_otherwise():
    networks, x = ensemble(small_cnn), images(2)

    def epistemic(method, **options):
        return dubium.explain(networks, x, method=method, **options).maps["epistemic"]

    assert torch.equal(epistemic("auto"), epistemic("blur-path", net=1))
    assert not torch.equal(epistemic("auto"), epistemic("blur-path"))
    assert torch.equal(epistemic("auto", net=0), epistemic("blur-path"))
    assert torch.equal(epistemic("auto:passes=8:net=0"), epistemic("blur-path", passes=8))
    assert dubium.explain(networks, x, method="auto").options == {"passes": 16, "net": 1}
