"""What would make a posterior that is silently another one."""

import copy

import pytest
import torch
from torch import nn

import dubium
from dubium.errors import ImagesError, ImagesTypeError, NetworkStateError, OptionError, OutputError, PosteriorError
from dubium.posteriors import SWAG, Drawn, Gaussian, MCDropout, fit_laplace, mean_field_vi, sghmc
from dubium.training import Recipe
from tests.posteriors.third_party import imported


def normalised():
    return nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(32, 3))


def collect(make, times=3):
    swag = SWAG()
    for _ in range(times):
        swag.collect(make())
    return swag


BATCHES = [(torch.rand(4, 1, 6, 6), torch.tensor([0, 1, 2, 0]))] * 2


@pytest.mark.parametrize("batches", [(batch for batch in BATCHES), []])
def test_statistics_of_batch_norm_are_never_those_of_no_batch(batches):
    with pytest.raises(PosteriorError, match="not a generator"):
        collect(normalised).posterior(normalised(), samples=2, batches=batches)


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (lambda: nn.Linear(4, 3), r"shape \(2, 4\) for 'weight'; the Linear has \(3, 4\)"),
        (lambda: nn.Linear(4, 2, bias=False), "names 'bias', which the Linear does not have"),
        (lambda: nn.Bilinear(4, 4, 2), "shape"),
        (lambda: nn.PReLU(), "shape|names"),
    ],
)
def test_swag_is_of_the_architecture_that_was_collected(other, message):
    with pytest.raises(PosteriorError, match=message):
        collect(lambda: nn.Linear(4, 2)).posterior(other())


def test_swag_takes_no_weight_of_the_network_that_it_is_given():
    with pytest.raises(PosteriorError, match="SWAG has collected no bias"):
        collect(lambda: nn.Linear(4, 2, bias=False)).posterior(nn.Linear(4, 2))


def test_noise_on_what_is_no_parameter_is_refused():
    network = normalised()
    with pytest.raises(PosteriorError, match=r"names 1\.running_mean: no parameter"):
        Gaussian(network, {"1.running_mean": torch.ones(2)})
    with pytest.raises(PosteriorError, match=r"names 1\.running_mean: no parameter"):
        Gaussian(network, {}, {"1.running_mean": torch.ones(3, 2)})


@pytest.mark.parametrize("value", [-0.1, torch.nan])
def test_standard_deviations_are_not_negative(value):
    with pytest.raises(PosteriorError, match=r"std\['bias'\] has values below 0, or NaN"):
        Gaussian(nn.Linear(2, 2), {"bias": torch.tensor([0.1, value])})


@pytest.mark.parametrize("samples", [0, -1, 2.5, "3", True, None])
def test_samples_are_counted_in_whole_numbers(samples, unchecked):
    network = nn.Sequential(nn.Flatten(), nn.Dropout(), nn.Linear(36, 3))
    for make in (
        lambda: Gaussian(network, {}, samples=samples),
        lambda: MCDropout(network, samples=samples),
        lambda: fit_laplace(network, BATCHES, samples=samples),
    ):
        with pytest.raises(PosteriorError, match="a whole number, at least 1"):
            make()


@pytest.mark.parametrize(
    ("fit", "name", "value"),
    [
        (fit_laplace, "prior_precision", 0.0),
        (sghmc, "thinning", 0),
        (sghmc, "burn_in", -1),
        (sghmc, "prior_std", 0.0),
        (sghmc, "lr", -0.1),
        (mean_field_vi, "start_std", 0.0),
        (mean_field_vi, "prior_std", 0.0),
    ],
)
def test_numbers_out_of_range_are_refused_by_name(fit, name, value):
    with pytest.raises(OptionError, match=f"{name}={value}"):
        fit(nn.Sequential(nn.Flatten(), nn.Linear(36, 3)), BATCHES, **{name: value})


FITS = {
    "laplace": lambda network, batches: imported("laplace") and fit_laplace(network, batches, samples=1),
    "sghmc": lambda network, batches: sghmc(network, batches, samples=1, burn_in=0, thinning=1),
    "vi": lambda network, batches: mean_field_vi(network, batches, epochs=1, samples=1),
    "mitigate": lambda network, batches: dubium.mitigate(network, None, *batches[0], recipe=Recipe(epochs=1)),
}
SLIPS = {
    "too large": (
        torch.tensor([0, 1, 2, 30]),
        ImagesError,
        r"labels are 0 to 30; the network has 3 classes.* 0 to 2\.$",
    ),
    "from one": (torch.tensor([1, 2, 3, 1]), ImagesError, "labels are 1 to 3; .*count from 1. Then give labels - 1"),
    "below zero": (torch.tensor([0, 1, 2, -1]), ImagesError, "labels are -1 to 2"),
    "too few": (torch.tensor([0, 1, 2]), ImagesError, "4 images and 3 labels"),
    "one-hot": (torch.eye(3)[[0, 1, 2, 0]], ImagesError, r"labels are torch.float32 of shape \(4, 3\)"),
    "names": (["cat", "dog", "cat", "dog"], ImagesTypeError, "labels are a list that no tensor can be made of"),
}


@pytest.mark.parametrize("fit", FITS)
@pytest.mark.parametrize("slip", SLIPS)
def test_whatever_is_fitted_refuses_labels_that_are_no_classes_in_the_same_words(fit, slip, unchecked):
    labels, error, words = SLIPS[slip]
    with pytest.raises(error, match=words):
        FITS[fit](normalised(), [(BATCHES[0][0], labels)])


@pytest.mark.parametrize("fit", FITS)
def test_whatever_is_fitted_refuses_bytes_and_networks_that_end_in_a_softmax(fit, unchecked):
    x, labels = BATCHES[0]
    with pytest.raises(ImagesTypeError, match="x / 255"):
        FITS[fit](normalised(), [((255 * x).byte(), labels)])
    with pytest.raises(OutputError, match=r"look like probabilities.*leave out the last softmax"):
        FITS[fit](nn.Sequential(normalised(), nn.Softmax(1)), BATCHES)


@pytest.mark.parametrize("fit", FITS)
def test_whatever_is_fitted_takes_labels_of_any_whole_type(fit):
    x, labels = BATCHES[0]
    network = normalised()
    fitted = [FITS[fit](network, [(x, given)]) for given in (labels, labels.int(), labels.byte(), labels.tolist())]
    weights = [[*next(iter([one] if fit == "mitigate" else one)).parameters()] for one in fitted]
    for others in weights[1:]:
        assert all(map(torch.equal, others, weights[0]))


class Redrawn:
    """Draws anew on every pass: new modules, the same module with new weights, or the same weights with new masks."""

    def __init__(self, kind):
        self.kind, self.module = kind, normalised().eval()

    def __len__(self):
        return 3

    def __iter__(self):
        if self.kind == "all but the first":
            yield self.module
        for _ in range(2 if self.kind == "all but the first" else 3):
            network = copy.deepcopy(self.module) if self.kind == "masks" else normalised().eval()
            if self.kind == "masks":
                mask = torch.rand(1, 1, 4, 4) < 0.5
                network[1].register_forward_hook(lambda _layer, _args, output, mask=mask: output * mask)
            elif self.kind == "one module":
                self.module.load_state_dict(network.state_dict())
                network = self.module
            yield network


@pytest.mark.parametrize("kind", ["modules", "one module", "masks", "all but the first"])
@pytest.mark.parametrize("options", [{}, {"relevance": "grad"}, {"method": "auto"}, {"method": "random"}, None])
def test_a_posterior_that_is_another_on_every_pass_is_refused(kind, options):
    x = torch.rand(2, 1, 6, 6)
    with pytest.raises(PosteriorError, match="other networks on every pass"):
        dubium.uncertainty(Redrawn(kind), x) if options is None else dubium.explain(Redrawn(kind), x, **options)
    once = list(Redrawn("masks"))
    expected = dubium.explain(once, x, **(options or {}))
    found = dubium.explain(Drawn(once.__getitem__, samples=3), x, **(options or {}))  # new modules, the same networks
    assert torch.allclose(found.maps["total"], expected.maps["total"], rtol=1e-4)


def test_a_random_network_of_a_redrawn_posterior_is_called_random():
    class Random(nn.Sequential):
        def forward(self, x):
            return super().forward(x) + torch.rand(3)

    posterior = Drawn(lambda _: Random(normalised()).eval(), samples=2)
    with pytest.raises(NetworkStateError, match="Network 0 is random"):
        dubium.uncertainty(posterior, torch.rand(2, 1, 6, 6))


@pytest.mark.parametrize("dtype", [torch.float16, torch.float64])
def test_networks_of_any_type_are_the_same_on_every_pass(dtype):
    torch.manual_seed(0)
    networks, x = [normalised().eval() for _ in range(2)], torch.rand(2, 1, 6, 6, dtype=dtype)
    found = dubium.uncertainty(Drawn(lambda index: networks[index].to(dtype), samples=2), x)
    expected = dubium.uncertainty(networks, x)
    assert torch.allclose(found.scores["total"], expected.scores["total"])
