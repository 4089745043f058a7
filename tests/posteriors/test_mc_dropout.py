import pytest
import torch
from torch import nn
from torch.nn import functional as F

from dubium.errors import NetworkStateError, PosteriorError
from dubium.posteriors import MCDropout


def masks(layer, x, samples=3):
    """What the samples do to x, where the network is the dropout layer alone."""
    return torch.stack([network(x) for network in MCDropout(nn.Sequential(layer), samples)])


def test_dropout_keeps_a_value_with_probability_one_minus_p_and_scales_it():
    out = masks(nn.Dropout(0.3), torch.ones(2, 50, 40))
    torch.testing.assert_close(out.unique(), torch.tensor([0.0, 1 / 0.7]))
    assert (out > 0).float().mean().item() == pytest.approx(0.7, abs=0.02)
    assert torch.equal(out[:, 0], out[:, 1])  # all images have the sample's one mask


@pytest.mark.parametrize(
    ("layer", "shape"), [(nn.Dropout1d, (2, 64, 5)), (nn.Dropout2d, (2, 64, 5, 4)), (nn.Dropout3d, (2, 64, 3, 4, 2))]
)
def test_channel_dropout_drops_whole_channels(layer, shape):
    out = masks(layer(0.5), torch.ones(shape)).flatten(3)
    assert torch.equal(out.amin(-1), out.amax(-1))
    assert set(out.unique().tolist()) == {0.0, 2.0}


def test_the_mean_over_samples_is_the_network_without_dropout():
    torch.manual_seed(0)
    network = nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(9, 2)).double().eval()
    x = torch.rand(1, 1, 3, 3, dtype=torch.float64)
    mean = torch.stack([sample(x) for sample in MCDropout(network, 1000)]).mean(0)
    torch.testing.assert_close(mean, network(x), atol=0.06, rtol=0)


@pytest.mark.parametrize("layer", [nn.AlphaDropout, nn.FeatureAlphaDropout])
def test_alpha_dropout_gives_the_two_values_that_torch_gives(layer):
    x = torch.full((1, 500, 2), 0.7, dtype=torch.float64)
    torch.manual_seed(0)
    expected = layer(0.4).train()(x).unique()
    torch.testing.assert_close(masks(layer(0.4), x).unique(), expected)


@pytest.mark.parametrize("p", [0.0, 1.0])
def test_probabilities_of_zero_and_one_work(p):
    network = nn.Sequential(nn.Dropout(p), nn.Flatten(), nn.Dropout(0.5))
    for sample in MCDropout(network, 2):
        out = sample(torch.ones(1, 1, 8, 8))
        assert out.isfinite().all()
        assert (out == 0).all() if p == 1 else (out > 0).any()


def test_a_layer_used_twice_has_two_masks():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.dropout = nn.Dropout(0.5)

        def forward(self, x):
            return torch.stack([self.dropout(x), self.dropout(x)], 1)

    (sample,) = MCDropout(Twice(), 1)
    out = sample(torch.ones(1, 200))
    assert not torch.equal(out[:, 0], out[:, 1])
    assert torch.equal(sample(torch.ones(1, 200)), out)


def test_seeds_give_different_masks_and_negative_ones_are_fine():
    network, x = nn.Sequential(nn.Dropout(0.5)), torch.ones(1, 100)
    outs = [next(iter(MCDropout(network, 1, seed)))(x) for seed in (0, 1, -1)]
    assert not any(torch.equal(outs[i], outs[j]) for i, j in [(0, 1), (0, 2), (1, 2)])


def test_masks_are_fixed_inside_function_transforms():
    torch.manual_seed(0)
    network = nn.Sequential(nn.Dropout2d(0.5), nn.Conv2d(2, 3, 3), nn.AlphaDropout(0.2), nn.Flatten()).double()
    x = torch.rand(4, 2, 5, 5, dtype=torch.float64)
    fresh, used = (next(iter(MCDropout(network, 1))) for _ in range(2))
    expected = used(x)
    torch.testing.assert_close(torch.func.vmap(lambda image: fresh(image[None])[0])(x), expected)
    _, pull = torch.func.vjp(next(iter(MCDropout(network, 1))), x)
    torch.testing.assert_close(pull(torch.ones_like(expected))[0], torch.func.vjp(used, x)[1](expected * 0 + 1)[0])


def test_the_posterior_is_not_changed_by_training_the_network_on():
    network, x = nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(9, 2)), torch.rand(1, 1, 3, 3)
    posterior = MCDropout(network, 2)
    before = [sample(x) for sample in posterior]
    with torch.no_grad():
        network[2].weight += 1
    assert all(torch.equal(a, b(x)) for a, b in zip(before, posterior, strict=True))


def test_samples_share_their_parameters():
    first, second = MCDropout(nn.Sequential(nn.Dropout(0.5), nn.Linear(9, 2)), 2)
    assert first.network[1].weight is second.network[1].weight


class Functional(nn.Module):
    """A dropout layer, and a function that drops out in the way a test wants."""

    def __init__(self, function, training_only=False):
        super().__init__()
        self.dropout, self.linear = nn.Dropout(0.5), nn.Linear(9, 2)
        self.function, self.training_only = function, training_only

    def forward(self, x):
        x = self.dropout(x.flatten(1))
        if self.training or not self.training_only:
            x = self.function(x, self.training)
        return self.linear(x)


def attention(x, training):
    q = x[:, None, None]
    return F.scaled_dot_product_attention(q, q, q, dropout_p=0.1 if training else 0.0)[:, 0, 0]


@pytest.mark.parametrize(
    "network",
    [
        Functional(lambda x, training: F.dropout(x, 0.3, training)),
        Functional(lambda x, training: F.dropout(x, p=0.3, training=training)),
        Functional(lambda x, _training: F.dropout(x)),
        Functional(lambda x, training: torch.dropout(x, 0.3, training)),
        Functional(lambda x, training: F.alpha_dropout(x, 0.3, training)),
        Functional(lambda x, _training: F.dropout(x, 0.3), training_only=True),
        Functional(attention),
    ],
    ids=["positional", "keyword", "always on", "torch", "alpha", "in training only", "attention"],
)
def test_functional_dropout_is_refused_with_advice(network):
    x = torch.rand(2, 1, 3, 3)
    for sample in MCDropout(network, 2):
        with pytest.raises(NetworkStateError, match=r"dropout.*Make it a layer: self\.dropout = nn\.Dropout"):
            sample(x)
    (sample,) = MCDropout(network, 1)
    with pytest.raises(NetworkStateError):
        torch.func.vmap(lambda image: sample(image[None]))(x)


def test_functional_dropout_with_probability_zero_is_harmless():
    for sample in MCDropout(Functional(lambda x, training: F.dropout(x, 0.0, training)), 2):
        sample(torch.rand(2, 1, 3, 3))


@pytest.mark.parametrize("layer", [nn.MultiheadAttention(4, 2, dropout=0.1), nn.LSTM(4, 4, 2, dropout=0.1)])
def test_layers_that_drop_out_inside_are_refused(layer):
    with pytest.raises(NetworkStateError, match="drops out on its own"):
        MCDropout(nn.Sequential(nn.Dropout(0.5), layer))


def test_a_dropout_layer_of_the_users_own_is_refused():
    class Own(nn.Dropout):
        def forward(self, input):
            return super().forward(input) + 1

    with pytest.raises(NetworkStateError, match="'0' drops out on its own"):
        MCDropout(nn.Sequential(Own(0.5)))


@pytest.mark.parametrize("network", [nn.Linear(2, 2), nn.Sequential(nn.Dropout(0.0))])
def test_a_network_without_dropout_is_refused(network):
    with pytest.raises(NetworkStateError, match="no dropout layer"):
        MCDropout(network)


def test_no_samples_are_refused():
    with pytest.raises(PosteriorError, match="samples is 0"):
        MCDropout(nn.Sequential(nn.Dropout(0.5)), 0)
