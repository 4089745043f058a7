"""What fresh readers suspected and showed: each was wrong once."""

import pytest
import torch
from torch import nn
from torch.autograd.graph import get_gradient_edge
from torch.nn import functional as F

import dubium
from dubium.attribution import grad
from dubium.attribution._autograd.graph import Graph
from dubium.attribution._autograd.hidden_calls import show_hidden_calls
from dubium.attribution._gradients import Backward
from dubium.attribution.fullgrad import FullGradPass
from dubium.errors import NetworkStateError
from tests.networks import images, randomised, small_cnn


class Head(nn.Module):
    """A convolution, something of the subclass's, and a dense layer."""

    def __init__(self):
        super().__init__()
        self.conv, self.dense = nn.Conv2d(1, 4, 3), nn.Linear(4, 3)

    def forward(self, x):
        return self.dense(self.between(F.relu(self.conv(x))).mean((2, 3)))


class Centres(Head):
    """Subtracts the mean of the batch, if its options say so."""

    def __init__(self, options):
        super().__init__()
        self.options = options

    def between(self, h):
        return h - h.mean(0, keepdim=True) if "batch" in str(self.options) else h


class Options:
    def __init__(self, mode):
        self.mode = mode

    def __str__(self):
        return self.mode


@pytest.mark.parametrize("make", [lambda mode: {"mode": mode}, lambda mode: [{"mode": mode}], Options])
def test_networks_that_differ_in_an_option_inside_an_object_are_each_checked(make):
    networks = [randomised(Centres(make(mode))) for mode in ("alone", "batch")]
    with pytest.raises(NetworkStateError, match="Network 1 mixes"):
        dubium.explain(networks, images(3))


class Squares(nn.Module):
    def forward(self, x):
        return x.square()


def test_a_class_whose_forward_was_exchanged_is_looked_at_again(monkeypatch):
    class Activation(nn.ReLU):
        pass

    network, x = randomised(nn.Sequential(nn.Conv2d(1, 4, 3), Activation(), nn.Flatten(), nn.Linear(400, 3))), images(1)
    assert dubium.fullgrad_completeness(network, x).max() < 1e-4
    monkeypatch.setattr(Activation, "forward", lambda _self, h: F.softplus(h))
    assert dubium.fullgrad_completeness(network, x).max() < 1e-4


@pytest.mark.parametrize("name", ["bias", "weight"])
def test_an_attribute_that_is_called_like_a_parameter_is_none(name):
    class Pools(Head):
        def __init__(self):
            super().__init__()
            self.pool = nn.AvgPool2d(2)
            setattr(self.pool, name, True)

        def between(self, h):
            return self.pool(h) * 1.0

    network, x = randomised(Pools()), images(1)
    assert dubium.fullgrad_completeness(network, x).max() < 1e-5


class Joins(Head):
    def between(self, h):
        return torch.cat([h[:, :2], h[:, 2:] * 2], 1)


def test_networks_that_join_features_are_walked_together():
    passes = [FullGradPass(randomised(Joins(), seed), images(1)) for seed in range(2)]
    assert passes[0].walk_key() == passes[1].walk_key()


class CallsAnother(nn.Module):
    """Has no child that torch knows, and calls a layer of the network."""

    def __init__(self, layers):
        super().__init__()
        self.layers = layers

    def forward(self, h):
        return F.softplus(self.layers[0](h))


def test_a_layer_that_another_one_calls_counts_once():
    class Borrows(Head):
        def __init__(self):
            super().__init__()
            self.inner = nn.Conv2d(4, 4, 1)
            self.outer = CallsAnother([self.inner])

        def between(self, h):
            return self.outer(h)

    assert dubium.fullgrad_completeness(randomised(Borrows()), images(1)).max() < 1e-5


def test_a_graph_serves_for_several_ways_back():
    forward_pass = FullGradPass(randomised(small_cnn()), images(2))
    graph, cotangents = forward_pass.graph, torch.eye(5)[:, None, None, : forward_pass.output.shape[1]]
    cotangents = cotangents.expand(-1, -1, len(forward_pass.leaf), -1)
    (alone,) = Backward(forward_pass.output, forward_pass.edges[:1], [torch.clone], [graph])(cotangents)
    reductions = [torch.clone] * len(forward_pass.edges)
    among_others = Backward(forward_pass.output, forward_pass.edges, reductions, [graph])(cotangents)[0]
    again = Backward(forward_pass.output, forward_pass.edges[:1], [torch.clone], [graph])(cotangents)[0]
    torch.testing.assert_close(among_others, alone)
    torch.testing.assert_close(again, alone, rtol=0, atol=0)


def test_calls_are_shown_to_the_outer_block_again_after_an_inner_one():
    class Doubles(torch.autograd.Function):
        @staticmethod
        def forward(_ctx, x):
            return 2 * x

    seen = []

    def shown(name):
        return show_hidden_calls(lambda function, args, kwargs: seen.append(name) or function(*args, **kwargs))

    with shown("outer"):
        with shown("inner"):
            Doubles.apply(torch.ones(1))
        Doubles.apply(torch.ones(1))
    assert Doubles.apply(torch.ones(1)) == 2
    assert seen[-1] == "outer"
    assert "inner" in seen


def test_an_edge_outside_of_a_graph_is_not_found():
    x = torch.rand(2, requires_grad=True)
    graph = Graph([get_gradient_edge(x * 2)], {get_gradient_edge(x).node})
    assert graph.find_output(get_gradient_edge(x * 3)) is None


class Autocasts(nn.Module):
    """A convolution and its BatchNorm compute in types of their own."""

    def __init__(self, bias):
        super().__init__()
        self.conv, self.norm, self.dense = nn.Conv2d(1, 4, 3, bias=bias), nn.BatchNorm2d(4), nn.Linear(4, 3)

    def forward(self, x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.dense(F.relu(self.norm(self.conv(x))).mean((2, 3))).float()


@pytest.mark.parametrize("bias", [True, False])
def test_gradients_under_autocast_are_autograds(bias):
    network, x = randomised(Autocasts(bias)), images(2)
    leaf = x.clone().requires_grad_()
    expected = [torch.autograd.grad(logits.sum(), leaf, retain_graph=True)[0] for logits in network(leaf).T]
    found = grad(network, x, lambda logits: logits)
    torch.testing.assert_close(found, torch.stack(expected, 1).abs().mean(2), rtol=0.05, atol=1e-3)
    result = dubium.explain([network, randomised(Autocasts(bias), 1)], x, kinds="total")
    assert result.maps["total"].isfinite().all()


def occlusion(network, x, target):
    """A relevance that asks for no gradient."""
    scores = [(target(network(x)) - target(network(x * (torch.arange(x.shape[3]) != k)))).abs() for k in range(12)]
    return torch.stack(scores, -1)[:, :, None].expand(-1, -1, x.shape[2], -1)


def test_the_options_of_a_result_are_those_of_ua_backprop_where_its_relevance_has_some_of_the_same_name():
    def sharpened(network, x, target, *, tau2=9.0, power=2):
        return occlusion(network, x, target) / tau2

    result = dubium.explain([randomised(small_cnn())], images(1), relevance=sharpened, kinds="total")
    assert (result.options["tau2"], result.options["power"]) == (0.3, 2)
