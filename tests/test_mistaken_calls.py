"""Calls that meant something else: each is refused, or warned of, with what to do."""

import functools

import numpy as np
import pytest
import torch
from torch import nn

import dubium
from dubium.errors import DubiumWarning, OptionError, OutputError, PosteriorTypeError, UnknownNameError
from dubium.path_checks import check_folder_name
from tests.own_networks import bring_networks, own_images, own_networks, say


@pytest.fixture
def networks():
    return own_networks()


@pytest.fixture
def x():
    return own_images()


def build():
    return own_networks()[0]


@pytest.mark.parametrize("factory", [build, own_networks, lambda: own_networks(), functools.partial(build)])
def test_a_function_that_builds_networks_is_told_to_be_called(factory, x):
    with pytest.raises(PosteriorTypeError, match=r"call it and load their weights"):
        dubium.explain(factory, x)


def test_a_layer_that_a_method_looks_for_is_said_to_be_in_each_network(networks, x):
    def mine(network, x, target):
        return network.conv2.weight

    class Named(nn.Sequential):
        @property
        def conv2(self):
            return self[0]

    networks = [Named(*network).eval() for network in networks]
    with pytest.raises(OptionError, match=r"network\.networks\[0\]\.conv2.*relevance="):
        dubium.explain(networks, x, method=mine)


def last_convolution(network, x, target):
    """As a Grad-CAM of one network finds it."""
    layer, kept = [module for module in network.modules() if isinstance(module, nn.Conv2d)][-1], []
    handle = layer.register_forward_hook(lambda _layer, _args, out: kept.append(out))
    scores = target(network(x))
    handle.remove()
    maps = nn.functional.interpolate(kept[0].abs().mean(1, keepdim=True), x.shape[2:])
    return maps.repeat(1, scores.shape[1], 1, 1)


def test_a_method_that_hooks_one_of_several_networks_is_warned_of(networks, x):
    with pytest.warns(DubiumWarning, match="hooks layers of network 1 alone"):
        dubium.explain(networks, x, method=last_convolution)
    dubium.explain(networks[:1], x, method=last_convolution, kinds="total")
    dubium.explain(networks, x, relevance=last_convolution)


class Clamped(nn.Module):
    def forward(self, z):
        return torch.cat([z[:, :1].sigmoid(), z[:, 1:].sigmoid()], 1).clamp(1e-6, 1 - 1e-6)


@pytest.mark.parametrize("last", [nn.Sigmoid, Clamped])
@pytest.mark.parametrize("call", [dubium.explain, dubium.uncertainty])
def test_networks_with_a_sigmoid_for_each_class_are_refused(networks, x, call, last):
    sigmoids = [nn.Sequential(network, last()).eval() for network in networks]
    with pytest.raises(OutputError, match=r"multi-label.*output=torch\.logit"):
        call(sigmoids, x)
    expected, found = call(networks, x), call(sigmoids, x, output=torch.logit)
    torch.testing.assert_close(found.scores["total"], expected.scores["total"])


def test_logits_that_happen_to_lie_between_0_and_1_are_taken(networks, x):
    small = [nn.Sequential(network, nn.Linear(3, 3)).eval() for network in networks]
    with torch.no_grad():
        for network in small:
            network[1].weight *= 0.01
            network[1].bias.fill_(0.5)
    dubium.explain(small, x)


def test_pixels_up_to_255_are_warned_of_where_logits_are_only_large(networks, x):
    with torch.no_grad():
        for network in networks:
            network[-1].weight *= 60 / (network(255 * x).topk(2, -1).values.diff().abs().median())
    with pytest.warns(DubiumWarning, match="give x / 255"):
        dubium.uncertainty(networks, 255 * x)
    dubium.uncertainty(networks, x)


@pytest.mark.filterwarnings("ignore:.*labels")
@pytest.mark.parametrize(
    ("protocol", "options", "message"),
    [
        ("blurring", {"step": "x"}, "step='x'"),
        ("blurring", {"step": -5.0}, "step=-5.0"),
        ("blurring", {"fractions": ("x",)}, "fractions='x'"),
        ("removal", {"steps": "x"}, "steps='x'"),
        ("removal", {"remove": 3}, "called 3"),
        ("anomaly", {"box": "x"}, "box='x'"),
        ("sanity", {"checks": 3}, "called 3"),
        ("mitigation", {"seeds": "x"}, "seeds='x'"),
        ("mitigation", {"alpha": "x"}, "alpha='x'"),
    ],
)
def test_options_of_protocols_are_checked(networks, x, protocol, options, message):
    with pytest.raises((OptionError, UnknownNameError), match=message):
        dubium.evaluate(networks, (x, torch.zeros(4, dtype=torch.long)), ["grad"], protocol, scale="smoke", **options)


@pytest.mark.filterwarnings("ignore::dubium.errors.DubiumWarning")
def test_one_value_may_stand_for_several(networks, x):
    found = dubium.evaluate(networks, x, ["grad"], "removal", scale="smoke", remove="mean", images=2)
    assert "srg/mean" in found["results"]["grad"]
    found = dubium.evaluate(networks, x, ["grad"], scale="smoke", fractions=0.1, images=2, step=10)
    assert "murr@10%" in found["results"]["grad"]


def test_methods_and_folders_that_are_none_are_named(networks, x):
    with pytest.raises(OptionError, match="methods is 3"):
        dubium.evaluate(networks, x, 3, scale="smoke")
    with pytest.raises(OptionError, match="folder to write to is 3"):
        check_folder_name(3)


def test_a_posterior_that_causes_would_not_use_is_refused(networks, x):
    with pytest.raises(OptionError, match="takes no posterior"):
        dubium.evaluate(networks, (x, torch.zeros(4, dtype=torch.long)), ["grad"], "causes", scale="smoke")


def test_images_in_memory_that_are_changed_are_warned_of(networks, tmp_path):
    saved = tmp_path / "saved"
    dubium.save_posterior(networks, saved, architecture=build, input_shape=(3, 8, 8))
    larger = torch.rand(2, 3, 12, 12)
    with pytest.warns(DubiumWarning, match=r"\(3, 12, 12\).*take \(3, 8, 8\)"):
        dubium.explain_dataset(str(saved), larger, tmp_path / "a", architecture=build, top=0)
    with pytest.warns(DubiumWarning, match=r"\(1, 8, 8\).*take \(3, 8, 8\)"):
        dubium.explain_dataset(networks, torch.rand(2, 1, 8, 8), tmp_path / "b", top=0)


def test_a_wrong_architecture_is_refused_while_a_posterior_is_saved(networks, tmp_path):
    with pytest.raises(OptionError, match="Network 0 does not fit the architecture"):
        dubium.save_posterior(networks, tmp_path / "saved", architecture=lambda: nn.Linear(2, 2))
    assert not (tmp_path / "saved").exists()


def test_names_that_replace_saved_ones_are_said(networks, tmp_path, monkeypatch):
    bring_networks(tmp_path, monkeypatch, "named", networks)
    dubium.save_posterior(
        networks, "saved", architecture="named:network", classes=["a", "b", "c"], input_shape=(3, 8, 8)
    )
    np.savez("x.npz", images=own_images().numpy())
    words = ["explain", "saved", "--posterior", "named:network", "--dataset", "x.npz", "--top", "0", "--out", "out"]
    assert "not a,b,c" in say(*words, "--names", "d,e,f")


def test_a_misspelt_protocol_of_all_is_named(tmp_path):
    for more in ([], ["--estimate"]):
        words = [
            "evaluate",
            "all",
            "demo",
            "--protocols",
            "bluring",
            "--scale",
            "smoke",
            "--out",
            tmp_path / "out",
            *more,
        ]
        assert "'blurring'" in say(*words, code=2)


def test_a_folder_of_another_protocol_is_called_so(tmp_path):
    common = ["demo", "--methods", "grad", "--scale", "smoke", "--images", "2", "--out", tmp_path / "out"]
    say("evaluate", "removal", *common)
    assert "holds results of removal, not of blurring" in say("evaluate", "blurring", *common, code=2)


@pytest.mark.filterwarnings("ignore::dubium.errors.DubiumWarning")
def test_pages_of_dubium_do_not_replace_each_other(tmp_path):
    explained, compared, together = (tmp_path / name for name in ("explained", "compared", "together"))
    say("explain", "demo", "--top", "1", "--out", explained)
    methods = ["compare", "demo", "demo", "--methods", "ua-backprop,grad", "--top", "1", "--out"]
    assert "has results of its own" in say(*methods, explained, code=2)
    say(*methods, compared)
    assert "has a comparison" in say("explain", "demo", "--top", "1", "--out", compared, code=2)
    say("evaluate", "all", "demo", "--protocols", "sanity", "--methods", "grad", "--scale", "smoke", "--out", together)
    one = ["evaluate", "removal", "demo", "--methods", "grad", "--scale", "smoke", "--out", together]
    assert "has the results of all protocols" in say(*one, code=2)


def test_a_network_of_layers_alone_is_to_be_named_by_a_function(networks, tmp_path):
    dubium.save_posterior(networks, tmp_path / "saved")
    with pytest.raises(OptionError, match=r"--posterior mine:network on"):
        dubium.load_posterior(tmp_path / "saved")
