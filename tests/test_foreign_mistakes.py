"""Mistakes that ended in an exception of Python's or torch's, and now in one of dubium's that says what to do."""

from functools import partial

import numpy as np
import pytest
import torch
from torch import nn

import dubium
from dubium.attribution import Context, grad, ig, smoothgrad
from dubium.attribution._blur import blur_with_derivative
from dubium.attribution._paths import MOST_STEPS
from dubium.attribution.blur_ig import WEAKEST
from dubium.class_sampling import start_offsets
from dubium.errors import DubiumError
from dubium.evaluation.metrics.removal import removal_order
from dubium.posteriors import Drawn, Gaussian, MCDropout, WeightSamples
from dubium.types import Attribution


def network():
    return nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.Dropout(), nn.Flatten(), nn.Linear(256, 3)).eval()


pytestmark = pytest.mark.usefixtures("unchecked")
X = torch.rand(4, 1, 8, 8)
MISTAKES = {
    "an option of a partial": (
        {"method": partial(ig, step=5)},
        "No option of 'ig' called 'step'. Did you mean 'steps'",
    ),
    "an option of a partial relevance": ({"relevance": partial(ig, step=5)}, "No option of 'ig' called 'step'"),
    "layers": ({"method": "grad-cam", "layer": ["0"]}, "No layer called"),
    "rescales": ({"rescale": ["none"]}, "No rescale called"),
    "a number as start": ({"method": "ig", "start": 0.5}, "start is float; an image of shape"),
    "a huge blur": ({"method": "blur-ig", "sigma_max": 1e30}, "10000 pixels or fewer"),
    "a huge temperature": ({"tau1": 10**400}, "a number greater than 0 is needed"),
    "a function of C": ({"method": torch.add}, "It cannot be seen how add is called"),
    "no function as progress": ({"progress": 5}, "progress=5; a function of"),
    "a context of a partial": (
        {"method": partial(smoothgrad, samples=3, context=Context(seed=5))},
        "No option of 'smoothgrad' called 'context'. Available: samples, sigma. A context's seed= and memory= are",
    ),
    "a pair of fractions": ({"pair": torch.tensor([0.0, 1.0])}, "two different classes are needed"),
    "a fraction as seed": ({"seed": torch.tensor(1.0)}, "seed=tensor(1.); a whole number from"),
    "an array as seed": ({"seed": np.array([1, 2])}, "seed=array([1, 2]); a whole number from"),
    "a relative import": ({"method": ".mine:f"}, "The method '.mine:f' cannot be imported"),
    "steps beyond count": ({"method": "ig", "steps": 10**20}, "greater than 0 is needed, 1,000,000 at most"),
    "steps beyond count, in a text": ({"method": "blur-ig:steps=1e25"}, "greater than 0 is needed, 1,000,000 at most"),
    "steps that never end": ({"method": "guided-ig", "steps": 10**20}, "greater than 0 is needed, 1,000,000 at most"),
    "passes beyond count": ({"method": "auto", "passes": 10**20}, "passes=100000000000000000000; a whole number"),
    "samples beyond count": ({"method": "smoothgrad", "samples": 10**20}, "is needed, 1,000,000 at most"),
    "starts beyond count": ({"method": "delta-clue", "vae": 0, "starts": 10**20}, "is needed, 1,000,000 at most"),
    "a sparse start": ({"method": "ig", "start": X[0].to_sparse()}, "give a dense one: start.to_dense()"),
    "a start without values": ({"method": "ig", "start": X[0].to("meta")}, "give a dense one"),
    "extras that are nothing": (
        {"method": lambda network, x, target: Attribution(x.expand(-1, 3, -1, -1), None)},
        "returned an Attribution whose extras are a NoneType; a dict of tensors by name is needed",
    ),
    "hardly a blur": (
        {"method": "blur-ig", "sigma_max": 1e-20},
        "sigma_max=1e-20; 1e-06 or more and 10000 pixels or fewer",
    ),
    "endless noise": ({"method": "smoothgrad", "sigma": 1e300}, "sigma=1e+300; a number greater than 0 is needed, 1,0"),
    "an endless fall": (
        {"method": "auto", "net": 1e300},
        "net=1e+300; a number greater than 0 is needed, 1,000",
    ),
    "an array as normalize": ({"normalize": np.array([1, 2])}, "True or False is needed"),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_of_explain_is_said_in_words(name):
    options, words = MISTAKES[name]
    with pytest.raises(DubiumError) as error:
        dubium.explain([network(), network()], X, **options)
    assert words in str(error.value)


def test_images_of_a_type_without_arithmetic_are_refused():
    with pytest.raises(DubiumError, match="float8_e4m3fn, in which networks do not compute"):
        dubium.explain([network()], X.to(torch.float8_e4m3fn))


def test_a_name_that_is_no_text_is_refused():
    with pytest.raises(DubiumError, match="The method's name is 5"):
        dubium.register_method(5, lambda network, x, target: x)


@pytest.mark.parametrize("make", [MCDropout, partial(Gaussian, std={}), partial(Drawn, samples=2)])
def test_a_seed_that_is_no_number_is_refused(make):
    with pytest.raises(DubiumError, match="seed='a'; a whole number"):
        make(network(), seed="a")


def test_factors_without_a_direction_are_refused():
    with pytest.raises(DubiumError, match="has no direction"):
        Gaussian(network(), {}, factors={"4.bias": torch.zeros(0, 3)})


def test_a_target_without_its_axis_is_refused():
    with pytest.raises(DubiumError, match=r"The target gave \(.*needed: logits\[:, :1\] keeps"):
        grad(network(), X, lambda logits: logits[:, 0])


def test_completeness_of_no_images_is_empty():
    assert dubium.fullgrad_completeness(network(), X[:0]).shape == (0, 3)


def test_a_numpy_boolean_is_a_boolean():
    assert dubium.explain([network(), network()], X, normalize=np.True_).options["normalize"] is True


def test_weight_samples_do_not_go_on_training_with_their_network():
    model = network()
    other = {name: torch.zeros_like(tensor) for name, tensor in model.named_parameters()}
    posterior = WeightSamples(model, [dict(model.named_parameters()), other])
    before = [sample[4].bias.clone() for sample in posterior]
    with torch.no_grad():
        model[4].bias += 1
    assert all(torch.equal(sample[4].bias, bias) for sample, bias in zip(posterior, before, strict=True))


def test_draws_do_not_depend_on_the_default_type():
    found = start_offsets(3, seed=1), removal_order(torch.ones(1, 4, 4), seed=1)
    torch.set_default_dtype(torch.float64)
    try:
        again = start_offsets(3, seed=1), removal_order(torch.ones(1, 4, 4), seed=1)
    finally:
        torch.set_default_dtype(torch.float32)
    assert all(torch.equal(a, b) for a, b in zip(found, again, strict=True))


@pytest.mark.parametrize(
    "options",
    [
        {"method": "blur-ig", "steps": 100, "sigma_max": 1e-6},
        {"method": "smoothgrad", "samples": 3, "sigma": 1e6},
        {"method": "auto", "net": 1e6},
    ],
)
def test_the_last_number_that_is_taken_has_finite_maps(options):
    assert dubium.explain([network(), network()], X, **options).maps["total"].isfinite().all()


def test_the_weakest_blur_of_the_most_steps_has_a_finite_slope():
    for blurred in blur_with_derivative(X, torch.tensor([0.5 * WEAKEST / MOST_STEPS]), radius=1):
        assert blurred.isfinite().all()


class Size(tuple):
    """A tuple that is not made of its items alone."""

    def __new__(cls, height, width):
        return super().__new__(cls, (height, width))


class Sized(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.size = size

    def forward(self, x):
        return torch.tanh(x.view(-1, 1, *self.size)) + 1


def test_a_layer_may_have_a_tuple_of_a_class_of_its_own():
    def maps(size):
        torch.manual_seed(0)
        layers = [nn.Sequential(Sized(size), nn.Flatten(), nn.Linear(64, 3)).eval() for _ in range(2)]
        return dubium.explain(layers, X).maps["total"]

    assert torch.equal(maps(Size(8, 8)), maps((8, 8)))
