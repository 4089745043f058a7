"""SGHMC keeps a trained network, or says that it did not."""

import pytest
import torch
from torch import nn

import dubium
import dubium.data
from dubium.errors import NetworkError, OptionError, OutputError
from dubium.posteriors import mean_field_vi, sghmc
from dubium.training.samplers import SGHMC_LR


@pytest.fixture(scope="module")
def digits():
    data = dubium.data.load("demo")
    return data.batch(slice(None)), data.labels


@pytest.fixture(scope="module")
def trained():
    pytest.importorskip("posteriors")
    return next(iter(dubium.load_posterior("demo")))


def batches(digits, size=16):
    return list(zip(*(part.split(size) for part in digits), strict=True))


def right_share(network, digits):
    images, labels = digits
    with torch.no_grad():
        return (network(images).argmax(1) == labels).float().mean().item()


def test_by_default_samples_fit_as_the_trained_network_does_and_differ(trained, digits):
    posterior = sghmc(trained, batches(digits), samples=3)
    assert min(right_share(network, digits) for network in posterior) > right_share(trained, digits) - 0.05
    members = dubium.uncertainty(posterior, digits[0]).members
    assert all((members[i] - members[j]).abs().max() > 0 for i, j in [(0, 1), (0, 2), (1, 2)])


def test_a_walk_that_loses_the_network_is_told_with_a_rate_to_try(trained, digits):
    with pytest.warns(UserWarning, match="SGHMC lost the network that it started from") as said:
        posterior = sghmc(trained, batches(digits), samples=3, lr=0.1)
    before, after = (100 * sum(right_share(n, digits) for n in each) / len(each) for each in ([trained], posterior))
    assert f"on {before:.0f} % of the training images, those sampled on {after:.0f} %" in str(said[0].message)
    assert "sghmc(network, batches, lr=0.01)" in str(said[0].message)


def test_a_training_walks_as_far_as_those_that_were_begun_before():
    assert SGHMC_LR == 0.1


class Named(nn.Module):
    def __init__(self, network):
        super().__init__()
        self.network = network

    def forward(self, x):
        return {"logits": self.network(x)}


@pytest.mark.parametrize("method", [sghmc, mean_field_vi])
def test_an_output_that_is_no_tensor_is_refused_in_words(method, trained, digits):
    with pytest.raises(OutputError, match=r"puts out a dict; a tensor of logits \(B, K\) is needed"):
        method(Named(trained), batches(digits))


class Halved(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x / 2

    @staticmethod
    def backward(ctx, slope):
        return slope / 2


class WithClassicFunction(nn.Module):
    def __init__(self, network):
        super().__init__()
        self.network = network

    def forward(self, x):
        return Halved.apply(self.network(x))


@pytest.mark.parametrize("fit", [sghmc, mean_field_vi])
def test_a_function_without_setup_context_is_refused_with_what_to_do(trained, digits, fit):
    with pytest.raises(NetworkError, match=r"without setup_context.*setup_context\(ctx, inputs, output\); or take"):
        fit(WithClassicFunction(trained).eval(), batches(digits), samples=1)


@pytest.mark.parametrize("fit", [sghmc, mean_field_vi])
def test_an_iterator_is_refused_without_a_count_of_what_is_left_of_it(trained, digits, fit):
    with pytest.raises(OptionError, match="other images when read again, as an iterator does") as said:
        fit(trained, iter(batches(digits)))
    assert not any(letter.isdigit() for letter in str(said.value))
