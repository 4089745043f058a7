import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import dubium
from dubium.attribution._budget import images_per_pass
from dubium.errors import NetworkStateError, PosteriorError
from dubium.posteriors import MCDropout
from tests.networks import images, randomised, small_cnn


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
        self.dropout, self.linear = nn.Dropout(0.0), nn.Identity()
        self.function, self.training_only = function, training_only

    def forward(self, x):
        x = self.dropout(x.flatten(1))
        if self.training or not self.training_only:
            x = self.function(x, self.training)
        return self.linear(x)


def attention(x, training):
    q = x.unflatten(1, (1, 10, 20))
    return F.scaled_dot_product_attention(0 * q, q, q, dropout_p=0.3 if training else 0.0).flatten(1)


FUNCTIONS = {
    "positional": Functional(lambda x, training: F.dropout(x, 0.3, training)),
    "keyword": Functional(lambda x, training: F.dropout(x, p=0.3, training=training)),
    "always on": Functional(lambda x, _training: F.dropout(x, 0.3)),
    "torch": Functional(lambda x, training: torch.dropout(x, 0.3, training)),
    "in place": Functional(lambda x, training: F.dropout(x * 1, 0.3, training, True)),
    "in training only": Functional(lambda x, _training: F.dropout(x, 0.3), training_only=True),
    "channels": Functional(lambda x, training: F.dropout1d(x[:, :, None], 0.3, training)[:, :, 0]),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functional_dropout_has_fixed_masks(name):
    ones = torch.ones(4, 1, 20, 10)
    out = torch.stack([sample(ones) for sample in MCDropout(FUNCTIONS[name], 10)])
    torch.testing.assert_close(out.unique(), torch.tensor([0.0, 1 / 0.7]))
    assert (out > 0).float().mean().item() == pytest.approx(0.7, abs=0.03)
    assert torch.equal(out[:, :1].expand_as(out), out)  # all images have the sample's one mask
    assert not torch.equal(out[0], out[1])
    again = torch.stack([sample(ones[:1]) for sample in MCDropout(FUNCTIONS[name], 10)])
    assert torch.equal(again, out[:, :1])


def test_functional_alpha_dropout_gives_the_two_values_that_torch_gives():
    network = Functional(lambda x, training: F.alpha_dropout(x, 0.4, training))
    x = torch.full((1, 1, 50, 10), 0.7, dtype=torch.float64)
    torch.manual_seed(0)
    (sample,) = MCDropout(network, 1)
    torch.testing.assert_close(sample(x).unique(), nn.AlphaDropout(0.4).train()(x).unique())


def test_dropout_in_attention_drops_weights():
    (sample,) = MCDropout(Functional(attention), 1)
    x = torch.rand(3, 1, 10, 20, dtype=torch.float64)
    weights = sample(torch.eye(10, 20)[None, None].double()).view(10, 20)[:, :10]  # what each row takes of each other
    torch.testing.assert_close(weights.unique(), torch.tensor([0.0, 0.1 / 0.7]).double())
    torch.testing.assert_close(sample(x).view(3, 10, 20), weights @ x[:, 0])


def test_two_calls_of_a_function_have_two_masks():
    (sample,) = MCDropout(Functional(lambda x, on: F.dropout(F.dropout(x, 0.5, on), 0.5, on)), 1)
    kept = (sample(torch.ones(1, 1, 50, 40)) > 0).float().mean().item()
    assert kept == pytest.approx(0.25, abs=0.03)


class Encoder(nn.Module):
    """Tokens of 4 pixels each through layers of torch's that drop out inside."""

    def __init__(self, batch_first, layer):
        super().__init__()
        self.layer, self.batch_first, self.head = layer, batch_first, nn.Linear(4, 3)

    def forward(self, x):
        tokens = x.flatten(1).unflatten(1, (-1, 4))
        tokens = tokens if self.batch_first else tokens.transpose(0, 1)
        out = (
            self.layer(tokens, tokens, tokens) if isinstance(self.layer, nn.MultiheadAttention) else self.layer(tokens)
        )
        out = out[0] if isinstance(out, tuple) else out
        return self.head(out.mean(1 if self.batch_first else 0))


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("kind", ["attention", "encoder", "lstm"])
def test_layers_that_drop_out_inside_have_fixed_masks(kind, batch_first):
    torch.manual_seed(0)
    layers = {
        "attention": lambda: nn.MultiheadAttention(4, 2, dropout=0.4, batch_first=batch_first),
        "encoder": lambda: nn.TransformerEncoder(
            nn.TransformerEncoderLayer(4, 2, 8, dropout=0.4, batch_first=batch_first), 2, enable_nested_tensor=False
        ),
        "lstm": lambda: nn.LSTM(4, 4, 3, dropout=0.4, batch_first=batch_first),
    }
    network, x = Encoder(batch_first, layers[kind]()).double().eval(), torch.rand(5, 1, 4, 4, dtype=torch.float64)
    posterior = MCDropout(network, 3)
    out = torch.stack([sample(x) for sample in posterior])
    assert torch.equal(torch.stack([sample(x) for sample in posterior]), out)
    torch.testing.assert_close(torch.stack([sample(x[2:3]) for sample in posterior]), out[:, 2:3])
    with torch.no_grad():  # torch's fast path leaves out dropout
        torch.testing.assert_close(torch.stack([sample(x) for sample in posterior]), out)
    assert (out - network(x)).abs().amin(0).amax() > 1e-6
    many = torch.stack([sample(x[:1]) for sample in MCDropout(network, 400)])[:, 0]
    rng_mean = torch.stack([network.train()(x[:1]).detach() for _ in range(400)])[:, 0]
    error = (many.var(0) / 400 + rng_mean.var(0) / 400).sqrt()
    assert ((many.mean(0) - rng_mean.mean(0)).abs() < 5 * error).all()  # the distribution is that of training mode
    torch.testing.assert_close(many.std(0), rng_mean.std(0), rtol=0.3, atol=1e-6)


def test_stochastic_depth_stays_off():
    class Path(nn.Module):
        def forward(self, x):
            return x * x.new_empty(len(x), 1, 1, 1).bernoulli_(0.5) / 0.5 if self.training else x

    network = nn.Sequential(Path(), nn.Flatten(), nn.Dropout(0.5)).eval()
    for sample in MCDropout(network, 5):
        assert set(sample(torch.ones(4, 1, 10, 10)).unique().tolist()) == {0.0, 2.0}


def test_samples_with_functional_dropout_are_explained_and_left_alone():
    network = randomised(small_cnn())
    with_function = nn.Sequential(network[:5], FunctionalDropout(), network[5:]).eval()
    posterior, x = MCDropout(with_function, 3), images(2)
    result = dubium.explain(posterior, x)
    torch.testing.assert_close(result.maps["total"].sum((1, 2)), result.scores["total"])
    members = torch.stack([sample(x).softmax(-1) for sample in posterior]).detach()
    torch.testing.assert_close(result.members, members)
    assert max(dubium.fullgrad_completeness(sample, x).max() for sample in posterior) < 1e-4


class FunctionalDropout(nn.Module):
    def forward(self, x):
        return F.dropout2d(x, 0.5, self.training)


def test_masks_of_functions_fit_images_of_several_sizes():
    (sample,) = MCDropout(nn.Sequential(FunctionalDropout(), nn.Flatten()), 1)
    small, large = torch.ones(1, 6, 2, 2), torch.ones(2, 6, 3, 3)
    first = sample(small)
    assert sample(large).shape == (2, 54)
    assert torch.equal(sample(small), first)


def test_a_network_whose_functions_drop_nothing_is_refused_at_its_first_pass():
    for sample in MCDropout(Functional(lambda x, training: F.dropout(x, 0.0, training)), 2):
        with pytest.raises(NetworkStateError, match="no dropout layer"):
            sample(torch.rand(2, 1, 3, 3))


def test_masks_that_do_not_grow_with_the_images_are_refused():
    network = Functional(lambda x, training: x * F.dropout(torch.ones(len(x) ** 2, 9), 0.5, training)[: len(x)])
    (sample,) = MCDropout(network, 1)
    with pytest.raises(NetworkStateError, match=r"cannot be fixed. Make it a layer: self\.dropout = nn\.Dropout"):
        sample(torch.rand(2, 1, 3, 3))


def test_a_dropout_layer_of_the_users_own_is_refused():
    class Own(nn.Dropout):
        def forward(self, input):
            return super().forward(input) + 1

    with pytest.raises(NetworkStateError, match="'0' drops out on its own"):
        MCDropout(nn.Sequential(Own(0.5)))


@pytest.mark.parametrize("network", [nn.Linear(2, 2), nn.Sequential(nn.Dropout(0.0))])
def test_a_network_without_dropout_is_refused(network):
    with pytest.raises(NetworkStateError, match=r"no dropout layer.*drop_rate=0\.1 of timm.*hidden_dropout_prob=0\.1"):
        MCDropout(network)


def test_no_samples_are_refused():
    with pytest.raises(PosteriorError, match="samples is 0"):
        MCDropout(nn.Sequential(nn.Dropout(0.5)), 0)


class Checkpointed(nn.Module):
    """Dropout inside of an activation checkpoint: a layer that is called twice, or functions."""

    def __init__(self, reentrant, by_function):
        super().__init__()
        self.first, self.head = nn.Conv2d(1, 6, 3), nn.Linear(6 * 36, 3)
        self.drop, self.reentrant, self.by_function = nn.Dropout(0.5), reentrant, by_function

    def dropped(self, features):
        return F.dropout(features, 0.5, self.training) if self.by_function else self.drop(features)

    def part(self, features):
        return self.dropped(features.tanh())

    def forward(self, x):
        features = self.first(x)
        for _ in range(2):
            if self.reentrant is None:
                features = self.part(features)
            else:
                features = checkpoint(self.part, features, use_reentrant=self.reentrant)
        return self.head(features.flatten(1))


@pytest.mark.parametrize("by_function", [False, True])
@pytest.mark.parametrize("reentrant", [False, True])
def test_a_checkpoint_does_not_draw_other_masks_in_the_backward_pass(reentrant, by_function):
    x = images(2, size=8)
    plain, other = (MCDropout(randomised(Checkpointed(kind, by_function)), 3) for kind in (None, reentrant))
    for method in ("grad", "auto", "ua-backprop"):
        expected, found = (dubium.explain(each, x, method=method).maps["epistemic"] for each in (plain, other))
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)
    leaves = [x.clone().requires_grad_() for _ in range(2)]
    for leaf, posterior in zip(leaves, (plain, other), strict=True):
        next(iter(posterior))(leaf).sum().backward()
    torch.testing.assert_close(leaves[1].grad, leaves[0].grad)


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoints_work_as_before_outside_of_a_sample(reentrant):
    next(iter(MCDropout(Checkpointed(reentrant, False), 1)))(images(1, size=8))
    calls, leaf = [], torch.ones(2, requires_grad=True)
    checkpoint(lambda x: calls.append(1) or x.exp(), leaf, use_reentrant=reentrant).sum().backward()
    assert len(calls) == 2  # once more in the backward pass
    torch.testing.assert_close(leaf.grad, torch.ones(2).exp())


def test_functional_dropout_of_features_has_a_bias():
    """`F.feature_alpha_dropout` adds a constant where it drops, so that FullGrad must not take it for homogeneous."""
    network = Functional(lambda x, training: F.feature_alpha_dropout(x, 0.5, training))
    for sample in MCDropout(randomised(network), 4):
        assert dubium.fullgrad_completeness(sample, torch.rand(2, 1, 3, 3)).max() < 1e-5


def test_what_is_tried_to_find_dropout_does_not_count_as_memory():
    x = torch.rand(2, 1, 64, 64)
    sizes = [images_per_pass(network, x.repeat(32, 1, 1, 1), None, 2**24) for network in MCDropout(Wide(), 2)]
    assert sizes[0] == sizes[1]  # the first has found what the second knows


class Wide(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.head = nn.Conv2d(1, 16, 3), nn.Linear(16, 3)

    def forward(self, x):
        return self.head(F.dropout(self.first(x), 0.5, self.training).mean((2, 3)))
