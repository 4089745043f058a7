"""Controls against SciPy's filters: they know the image, not the network."""

import zlib
from itertools import combinations, permutations

import numpy as np
import pytest
import torch
from scipy.ndimage import gaussian_filter, sobel
from torch import nn

import dubium
from dubium.attribution import CONTROLS, edges, local_contrast, smooth_random
from dubium.types import KINDS
from tests.networks import images

NETWORK = nn.Sequential(nn.Flatten(), nn.Linear(3 * 16 * 20, 2)).double().eval()
X = torch.rand(2, 3, 16, 20, dtype=torch.float64)


def both(logits):
    return logits


def test_edges_are_sobels():
    planes = X.flatten(0, 1).numpy()
    slopes = [[sobel(plane, axis=axis, mode="nearest") for axis in (0, 1)] for plane in planes]
    exact = torch.tensor(np.array(slopes)).square().sum(1).sqrt().view_as(X).mean(1)
    torch.testing.assert_close(edges(NETWORK, X, both), exact[:, None].expand(-1, 2, -1, -1))


def test_local_contrast_is_the_distance_from_a_gaussian_mean():
    means = torch.from_numpy(gaussian_filter(X.numpy(), (0, 0, 2, 2), mode="reflect"))
    exact = (X - means).abs().mean(1)
    torch.testing.assert_close(local_contrast(NETWORK, X, both)[:, 0], exact, rtol=0, atol=2e-4)


def test_smooth_random_maps_are_smooth_from_zero_up_and_differ_between_targets():
    maps = smooth_random(NETWORK, X, both)
    assert (maps.amin((2, 3)) == 0).all()
    assert (maps[:, 0] - maps[:, 1]).abs().max() > 0.1
    centred = maps - maps.mean((2, 3), keepdim=True)
    lag = (centred[..., 1:] * centred[..., :-1]).mean((2, 3)) / centred.square().mean((2, 3))
    assert (lag > 0.5).all()


@pytest.mark.parametrize("method", ["random", "smooth-random"])
def test_random_maps_of_a_kind_are_the_same_in_any_company_and_differ_between_kinds(method):
    networks, x = [NETWORK, nn.Sequential(nn.Flatten(), nn.Linear(3 * 16 * 20, 2)).double().eval()], X
    together = dubium.explain(networks, x, method=method).maps
    for kinds in permutations(KINDS, 2):
        alone = dubium.explain(networks, x, method=method, kinds=kinds).maps
        assert all(torch.equal(alone[kind], together[kind]) for kind in kinds)
    for a, b in combinations(KINDS, 2):
        pairs = torch.stack([together[a].flatten(1), together[b].flatten(1)], 1)
        assert all(abs(float(torch.corrcoef(pair)[0, 1])) < 0.5 for pair in pairs)
    torch.set_default_dtype(torch.float64)
    try:
        again = dubium.explain(networks, x, method=method).maps
    finally:
        torch.set_default_dtype(torch.float32)
    assert all(torch.equal(again[kind], together[kind]) for kind in KINDS)


def test_epistemic_maps_of_random_are_the_first_that_are_drawn():
    """So are those of version 1, which stored results have, where epistemic maps were asked for alone."""
    x = images(1)
    seed = zlib.crc32(x[0].numpy().tobytes(), 5)
    networks = [nn.Sequential(nn.Flatten(), nn.Linear(144, 2)).eval() for _ in range(2)]
    expected = torch.rand(1, 12, 12, generator=torch.Generator().manual_seed(seed))
    assert torch.equal(dubium.explain(networks, x, method="random", seed=5).maps["epistemic"], expected)


def test_controls_do_not_ask_the_network_about_more_than_one_image():
    x, rows = images(5), []
    network = nn.Sequential(nn.Flatten(), nn.Linear(144, 2)).eval()
    network[0].register_forward_hook(lambda _layer, args, _out: rows.append(len(args[0])))
    for control in CONTROLS.values():
        control(network, x, both)
    assert rows == [1] * len(CONTROLS)
