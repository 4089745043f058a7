import pytest
import torch
from torch import nn

import dubium
from dubium.errors import ImagesError, OptionError, UnknownNameError
from dubium.training.attention import attention_weights, logits_with_attention, mitigate
from dubium.training.recipe import Recipe
from tests.networks import Awkward, images, small_cnn

QUICK = Recipe(epochs=2, batch_size=4, lr=0.05)


def batch(count=8, channels=1):
    x = images(count, channels)
    return x, torch.arange(count) % 4


def test_softmax_attention_of_a_flat_map_is_the_same_everywhere():
    found = attention_weights(torch.ones(2, 5, 5))
    assert torch.allclose(found, torch.full((2, 5, 5), (1 - 1 / 25) / 25))


def test_unit_attention_is_a_quarter_at_half_the_maximum():
    maps = torch.tensor([[[0.0, 1.0], [2.0, -3.0]]])
    assert torch.allclose(attention_weights(maps, "unit"), torch.tensor([[[0.0, 0.25], [0.0, 0.0]]]))
    assert torch.equal(attention_weights(torch.zeros(1, 2, 2), "unit"), torch.zeros(1, 2, 2))


def test_features_are_multiplied_by_one_plus_alpha_a():
    network = nn.Sequential(nn.Conv2d(1, 1, 1, bias=False), nn.Flatten())
    nn.init.ones_(network[0].weight)
    x, attention = torch.rand(2, 1, 4, 4), torch.rand(2, 4, 4)
    out = logits_with_attention(network, x, attention, alpha=0.5, layer="0")
    assert torch.allclose(out, ((1 + 0.5 * attention) * x[:, 0]).flatten(1))
    assert torch.allclose(
        logits_with_attention(network, x, attention, alpha=0.5, space="input"), (attention * x[:, 0]).flatten(1)
    )
    added = logits_with_attention(network, x, attention, alpha=0.5, space="input-added")
    assert torch.allclose(added, out)
    assert not network[0]._forward_hooks


def test_attention_is_resized_bilinearly():
    network = nn.Sequential(nn.Conv2d(1, 1, 2, stride=2, bias=False), nn.Flatten())
    nn.init.ones_(network[0].weight)
    attention = torch.arange(16.0).view(1, 4, 4)
    out = logits_with_attention(network, torch.ones(1, 1, 4, 4), attention, alpha=1.0, layer="0")
    assert torch.allclose(out, 4 * (1 + torch.tensor([[2.5, 4.5, 10.5, 12.5]])))


def test_the_users_own_network_is_copied_trained_and_handed_back_clean():
    network, (x, y) = Awkward(3).eval(), batch(channels=3)
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    trained = mitigate(network, torch.rand(8, 12, 12), x, y, recipe=QUICK)
    assert all(torch.equal(tensor, before[name]) for name, tensor in network.state_dict().items())
    assert any(not torch.equal(tensor, before[name]) for name, tensor in trained.state_dict().items())
    assert not any(module._forward_hooks for module in (*network.modules(), *trained.modules()))
    assert not any(module.training for module in (*network.modules(), *trained.modules()))


def weights(maps, **options):
    torch.manual_seed(0)
    x, y = batch()
    trained = mitigate(small_cnn(), maps, x, y, recipe=QUICK, **options)
    return torch.cat([p.detach().flatten() for p in trained.parameters()])


def test_attention_changes_training_and_the_same_call_repeats_it():
    maps = torch.rand(8, 12, 12, generator=torch.Generator().manual_seed(1))
    plain, strong = weights(None), weights(maps, normalisation="unit", alpha=2.0)
    assert not torch.allclose(plain, strong)
    assert torch.equal(strong, weights(maps, normalisation="unit", alpha=2.0))
    assert torch.allclose(weights(maps, alpha=0.0), plain)


def test_the_last_convolution_is_found_and_another_can_be_named():
    maps = torch.rand(8, 12, 12, generator=torch.Generator().manual_seed(1))
    strong = {"normalisation": "unit", "alpha": 2.0}
    assert torch.equal(weights(maps, **strong), weights(maps, layer="3", **strong))
    assert not torch.equal(weights(maps, **strong), weights(maps, layer="0", **strong))


def test_a_layer_may_be_given_itself():
    network, (x, y) = small_cnn(), batch()
    maps = torch.rand(8, 12, 12)
    by_module = mitigate(network, maps, x, y, layer=network[0], recipe=QUICK)
    by_name = mitigate(network, maps, x, y, layer="0", recipe=QUICK)
    assert torch.equal(by_module[7].weight, by_name[7].weight)


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"maps": torch.rand(8, 5, 5)}, ImagesError),
        ({"labels": torch.zeros(3, dtype=torch.int64)}, ImagesError),
        ({"space": "outer"}, UnknownNameError),
        ({"normalisation": "max"}, UnknownNameError),
        ({"alhpa": 0.1}, OptionError),
    ],
)
def test_mistakes_are_named(change, error, unchecked):
    x, y = batch()
    arguments = {"network": small_cnn(), "maps": torch.rand(8, 12, 12), "images": x, "labels": y} | change
    with pytest.raises(error):
        mitigate(**arguments)


@pytest.mark.parametrize("given", [{"recipe": {"epochs": 2, "lr": 0.01}}, {"epochs": 2, "lr": 0.01}])
def test_values_of_a_recipe_are_told_where_they_belong(given, unchecked):
    with pytest.raises(OptionError, match=r"Give recipe=dubium\.training\.Recipe\(epochs=2, lr=0\.01\)\."):
        mitigate(small_cnn(), None, *batch(), **given)


def test_mitigate_is_public():
    assert dubium.mitigate is mitigate
