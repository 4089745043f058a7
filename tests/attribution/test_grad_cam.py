"""Which layers Grad-CAM takes; `test_parity.py` compares its maps with Captum's."""

from copy import deepcopy

import pytest
import torch
from torch import nn

import dubium
from dubium.attribution import grad_cam
from dubium.errors import OptionError
from tests.networks import images, randomised, small_cnn


def test_grad_cam_of_networks_that_share_layers_is_that_of_copies():
    backbone = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 5, 3), nn.ReLU(), nn.Flatten())
    backbone, x = randomised(backbone).double(), images(2, 3, dtype=torch.float64)
    heads = [randomised(nn.Linear(500, 4), seed).double() for seed in range(3)]
    shared = [nn.Sequential(backbone, head).eval() for head in heads]
    apart = [nn.Sequential(deepcopy(backbone), head).eval() for head in heads]
    for networks, copies in ((shared, apart), ([*shared, shared[0]], [*apart, deepcopy(apart[0])])):
        exact = dubium.explain(copies, x, method="grad-cam")
        maps = dubium.explain(networks, x, method="grad-cam").maps
        for kind in maps:
            torch.testing.assert_close(maps[kind], exact.maps[kind], rtol=1e-9, atol=1e-12)


def test_grad_cam_refuses_a_layer_that_is_not_executed():
    network = randomised(small_cnn())
    network.unused = nn.Conv2d(1, 2, 3).eval()
    network.forward = lambda x: network[:8](x)
    with pytest.raises(OptionError, match="The layer Conv2d is not executed by Sequential"):
        grad_cam(network, images(), lambda z: z, layer="unused")
