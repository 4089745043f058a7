"""Controls against SciPy's filters: they know the image, not the network."""

import numpy as np
import torch
from scipy.ndimage import gaussian_filter, sobel
from torch import nn

from dubium.attribution import CONTROLS, edges, local_contrast, smooth_random
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


def test_controls_do_not_ask_the_network_about_more_than_one_image():
    x, rows = images(5), []
    network = nn.Sequential(nn.Flatten(), nn.Linear(144, 2)).eval()
    network[0].register_forward_hook(lambda _layer, args, _out: rows.append(len(args[0])))
    for control in CONTROLS.values():
        control(network, x, both)
    assert rows == [1] * len(CONTROLS)
