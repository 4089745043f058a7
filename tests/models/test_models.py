import numpy as np
import pytest
import torch
from torch import nn

from dubium.errors import OptionError, UnknownNameError
from dubium.models import ARCHITECTURES, Normalized, build, cifar_resnet, cnn, cnn3, resnet18, vae_conv, vae_dense
from dubium.models.resnet import Pad


def count(network):
    return sum(p.numel() for p in network.parameters())


@pytest.mark.parametrize("name", [n for n in ARCHITECTURES if not n.startswith("vae")])
def test_classifiers_give_one_logit_per_class(name):
    channels, size = (1, 28) if name in ("cnn", "cnn3") else (3, 32)
    network = build(name, channels=channels, classes=7).eval()
    x = torch.rand(2, channels, size, size)
    assert network(x).shape == (2, 7)
    torch.testing.assert_close(network(x)[:1], network(x[:1]), rtol=1e-4, atol=1e-5)


def test_parameter_counts_are_those_of_the_papers():
    conv = 16 * 32 + 32 + 16 * 32 * 32 + 32
    assert count(cnn()) == conv + 11 * 11 * 32 * 128 + 128 + 128 * 10 + 10
    assert count(cnn3()) == count(cnn()) + 128 * 128 + 128
    assert round(count(resnet18()) / 1e6, 2) == 11.17
    assert round(count(cifar_resnet(depth=20, shortcut="pad")) / 1e6, 2) == 0.27  # He et al., Table 6
    assert round(count(cifar_resnet(depth=56, shortcut="pad")) / 1e6, 2) == 0.85


def test_parameter_names_are_those_of_the_published_weights():
    assert "layer2.0.shortcut.0.weight" in cifar_resnet().state_dict()
    assert "layer2.0.shortcut.1.running_mean" in cifar_resnet().state_dict()
    assert not [k for k in cifar_resnet(shortcut="pad").state_dict() if "shortcut" in k]
    assert len(cifar_resnet(shortcut="pad").state_dict()) == 116
    assert set(build("svhn-cnn").state_dict()) == {
        f"{layer}.{kind}"
        for layer in ("layers.0", "layers.3", "layers.6", "layers.9", "fc1", "fc2")
        for kind in ("weight", "bias")
    }


def test_pad_shortcut_takes_every_second_pixel_between_zero_channels():
    x = torch.rand(1, 2, 4, 4)
    out = Pad(2, 2)(x)
    assert out.shape == (1, 4, 2, 2)
    assert torch.equal(out[:, 1:3], x[:, :, ::2, ::2])
    assert out[:, [0, 3]].abs().sum() == 0


def test_normalized_standardises_each_channel_and_adds_nothing_to_the_weights():
    network = Normalized(nn.Flatten(), [0.5, 0.25], [0.5, 2.0])
    x = torch.rand(3, 2, 4, 4)
    expected = torch.stack([(x[:, 0] - 0.5) / 0.5, (x[:, 1] - 0.25) / 2], 1).flatten(1)
    torch.testing.assert_close(network(x), expected)
    assert set(Normalized(nn.Linear(2, 2), 0.5, 0.5).state_dict()) == {"network.weight", "network.bias"}
    assert Normalized(nn.Linear(2, 2).double(), 0.5, 0.5).mean.dtype == torch.float64


def test_normalized_refuses_a_standard_deviation_of_zero():
    with pytest.raises(OptionError, match="above 0"):
        Normalized(nn.Flatten(), 0.5, [0.5, 0.0])


def test_normalized_leaves_the_types_of_its_network_alone():
    network = nn.Sequential(nn.Linear(4, 4).half(), nn.LayerNorm(4), nn.Linear(4, 2).double())
    assert Normalized(network, 0.5, 0.25).mean.dtype == torch.float16
    assert [parameter.dtype for parameter in network.parameters()][::2] == [torch.float16, torch.float32, torch.float64]


@pytest.mark.parametrize("form", [torch.tensor, np.array, tuple, lambda v: torch.tensor(v).view(1, 3, 1, 1)])
def test_normalized_takes_numbers_in_any_form(form):
    mean, std = [0.1, 0.2, 0.3], [0.5, 0.25, 2.0]
    x = torch.rand(2, 3, 4, 4)
    assert torch.equal(Normalized(nn.Identity(), form(mean), form(std))(x), Normalized(nn.Identity(), mean, std)(x))
    assert torch.equal(Normalized(nn.Identity(), torch.tensor(0.5), np.float32(2))(x), (x - 0.5) / 2)


@pytest.mark.parametrize("mean", [[], "0.5", None, {0.5}, torch.rand(3, 2, 2), [0.1, torch.nan], ["a"], [0.1, [0.2]]])
def test_normalized_refuses_what_is_not_numbers(mean):
    with pytest.raises(OptionError, match=r"mean is .*; give one number, or one per channel"):
        Normalized(nn.Identity(), mean, 0.5)
    with pytest.raises(OptionError, match=r"std is "):
        Normalized(nn.Identity(), 0.5, torch.inf)


@pytest.mark.parametrize("vae", [vae_dense, vae_conv])
def test_a_vae_without_a_code_is_refused(vae):
    with pytest.raises(OptionError, match=r"latent.* 0; give .*a latent of 1 or more"):
        vae(latent=0)


@pytest.mark.parametrize(("vae", "channels", "size"), [(vae_dense(latent=3), 1, 28), (vae_conv(latent=3), 3, 32)])
def test_vae_codes_and_images_have_the_right_shape_and_range(vae, channels, size):
    x = torch.rand(4, channels, size, size)
    image, mean, logvar = vae.eval()(x)
    assert vae.latent == 3
    assert mean.shape == logvar.shape == (4, 3)
    assert image.shape == x.shape
    assert image.min() >= 0
    assert image.max() <= 1
    torch.testing.assert_close(image, vae.decode(vae.encode(x)[0]))


def test_vae_draws_noise_in_training_mode_only():
    vae, x = vae_dense().train(), torch.rand(2, 1, 28, 28)
    assert not torch.equal(vae(x)[0], vae(x)[0])
    assert torch.equal(vae.eval()(x)[0], vae(x)[0])


def test_unknown_names_options_and_sizes_say_what_exists():
    with pytest.raises(UnknownNameError, match="Did you mean 'resnet18'"):
        build("resnet19")
    with pytest.raises(OptionError, match="filter_count"):
        build("cnn", filter_count=3)
    with pytest.raises(OptionError, match="6n \\+ 2"):
        build("cifar-resnet", depth=21)
    with pytest.raises(OptionError, match="'conv'"):
        build("cifar-resnet", shortcut="other")
    with pytest.raises(OptionError, match="at least 8"):
        build("cnn", size=7)
