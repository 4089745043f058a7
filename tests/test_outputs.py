"""What of a network's output is taken as the logits."""

from collections import namedtuple
from dataclasses import dataclass
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor, nn

import dubium
from dubium import errors
from dubium.models import Normalized
from tests.networks import ensemble, images, randomised, small_cnn

KINDS = ("total", "aleatoric", "epistemic")


@dataclass
class Record:
    logits: Tensor
    hidden: Tensor | None = None


Pair = namedtuple("Pair", ["features", "scores"])


class Says(nn.Module):
    """A network whose logits come in something else."""

    def __init__(self, network, how):
        super().__init__()
        self.network, self.how, self.training = network, how, False

    def forward(self, x):
        return self.how(self.network(x))


def wrapped(networks, how):
    return [Says(network, how) for network in networks]


def wide(z):
    return torch.cat([z, z, z], 1)


FOUND = {
    "an attribute": lambda z: SimpleNamespace(logits=z, other=wide(z)),
    "a dataclass": lambda z: Record(z, wide(z)),
    "a key": lambda z: {"hidden": wide(z), "logits": z},
    "the only matrix of a dict": lambda z: {"loss": z.mean(), "scores": z, "tokens": z[:, None], "ids": z.argmax(1)},
    "the only matrix of a tuple": lambda z: (z, z.sum(), None, z[:, :1]),
    "the only matrix of a named tuple": lambda z: Pair(z[:, :, None], z),
    "a list of one": lambda z: [z],
}


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("name", FOUND)
@pytest.mark.parametrize("method", ["ua-backprop", "grad", "grad-cam"])
def test_logits_are_found_by_themselves(name, method):
    networks, x = ensemble(small_cnn), images(3)
    found = dubium.explain(wrapped(networks, FOUND[name]), x, method=method)
    expected = dubium.explain(networks, x, method=method)
    torch.testing.assert_close(found.maps, expected.maps, rtol=1e-4, atol=1e-7)
    torch.testing.assert_close(found.members, expected.members)


CHOSEN = {
    "a distribution": (lambda z: torch.distributions.Categorical(logits=z), None),
    "a key": (lambda z: {"a": wide(z), "b": z}, "b"),
    "a key before a word": (lambda z: {"a": wide(z).softmax(1), "probabilities": z}, "probabilities"),
    "an attribute": (lambda z: SimpleNamespace(logits=wide(z), head=z), "head"),
    "an index": (lambda z: (wide(z), z), 1),
    "a negative index": (lambda z: (wide(z), z), -1),
    "the index of a dict": (lambda z: {"a": wide(z), "b": z}, 1),
    "the index of a named tuple": (lambda z: Pair(wide(z), z), 1),
    "a function": (lambda z: [[wide(z)], [z]], lambda output: output[1][0]),
    "a word of a tensor": (lambda z: z, "logits"),
    "probabilities": (lambda z: z.softmax(1), "probabilities"),
    "probabilities that are called so": (
        lambda z: {"features": wide(z), "probabilities": z.softmax(1)},
        "probabilities",
    ),
    "probabilities in a dict": (lambda z: {"scores": z.softmax(1)}, "probabilities"),
}


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("name", CHOSEN)
def test_the_output_says_what_to_take(name):
    how, output = CHOSEN[name]
    networks, x = ensemble(small_cnn), images(2)
    found = dubium.explain(wrapped(networks, how), x, method="input-grad", output=output)
    scores = dubium.uncertainty(wrapped(networks, how), x, output=output)
    expected = dubium.explain(networks, x, method="input-grad")
    torch.testing.assert_close(found.maps, expected.maps, rtol=1e-3, atol=1e-6)
    torch.testing.assert_close(scores.members, expected.members)


def test_one_sigmoid_output_is_two_classes():
    networks, x = [network.double() for network in ensemble(lambda: small_cnn(classes=1))], images(2).double()
    for how in (lambda z: z, lambda z: z[:, 0]):
        result = dubium.explain(wrapped(networks, how), x, output="sigmoid", relevance="grad")
        probs = torch.stack([network(x)[:, 0].sigmoid() for network in networks]).detach()
        torch.testing.assert_close(result.members, torch.stack([1 - probs, probs], -1))
        torch.testing.assert_close(result.maps["total"].sum((1, 2)), result.scores["total"])
    of_probs = dubium.uncertainty(wrapped(networks, torch.sigmoid), x, output="probabilities")
    torch.testing.assert_close(of_probs.members, result.members)


SQUASHED = {
    "a sigmoid": torch.sigmoid,
    "a sigmoid without its axis": lambda z: z.sigmoid().squeeze(1),
    "a column of a softmax": lambda z: torch.cat([0 * z, z], 1).softmax(1)[:, 1:],
    "one of two columns": lambda z: torch.cat([0 * z, z], 1).softmax(1)[:, 1],
    "in another type": lambda z: z.float().sigmoid().double(),
}


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("name", SQUASHED)
@pytest.mark.parametrize("call", [dubium.explain, dubium.uncertainty])
def test_a_probability_is_not_taken_as_the_logit_of_a_sigmoid(name, call):
    networks, x = [network.double() for network in ensemble(lambda: small_cnn(classes=1))], images(2).double()
    with pytest.raises(errors.OutputError, match=r"network 0 ends in a (sigmoid|softmax) itself.*'probabilities'"):
        call(wrapped(networks, SQUASHED[name]), x, output="sigmoid")
    probs = torch.stack([network(x)[:, 0].sigmoid() for network in networks]).detach()
    result = call(wrapped(networks, SQUASHED[name]), x, output="probabilities")
    torch.testing.assert_close(result.members, torch.stack([1 - probs, probs], -1), atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("call", [dubium.explain, dubium.uncertainty])
@pytest.mark.parametrize("how", [lambda z: z.tanh() / 2 + 0.5, lambda z: 0.9 * z.sigmoid() + 0.05])
def test_what_may_be_a_probability_is_taken_as_a_logit_with_a_warning(how, call):
    networks, x = wrapped(ensemble(lambda: small_cnn(classes=1)), how), images(2)
    with pytest.warns(UserWarning, match="from 0 to 1, as if they had been through the sigmoid") as warned:
        result = call(networks, x, output="sigmoid")
    about = [str(one.message) for one in warned if "output='probabilities'" in str(one.message)]
    assert len(about) == 1  # for all networks of one structure
    probs = torch.stack([network(x)[:, 0].sigmoid() for network in networks]).detach()
    torch.testing.assert_close(result.members[..., 1], probs)


@pytest.mark.parametrize("call", [dubium.explain, dubium.uncertainty])
@pytest.mark.parametrize("images_in_all", [1, 3])
def test_logits_that_happen_to_lie_between_0_and_1_bring_no_warning(call, images_in_all):
    networks, x = ensemble(lambda: small_cnn(classes=1)), images(images_in_all)
    for network in networks:  # warnings are errors
        with torch.no_grad():
            network[-1].weight.mul_(1e-3)
            network[-1].bias.fill_(0.5)
    assert all(((network(x) > 0) & (network(x) < 1)).all() for network in networks)
    call(networks, x, output="sigmoid")


@pytest.mark.parametrize("call", [dubium.explain, dubium.uncertainty])
def test_another_image_may_show_that_outputs_are_logits(call):
    networks, x = [network.double() for network in ensemble(lambda: small_cnn(classes=1))], images(3).double()
    with torch.no_grad():
        for network in networks:
            network[-1].bias -= network(x)[0]
    far = wrapped(networks, lambda z: 1e4 * z + 0.5)
    assert [bool(0 <= z <= 1) for network in far for z in network(x)] == [True, False, False] * len(far)
    call(far, x, output="sigmoid")  # warnings are errors


@pytest.mark.filterwarnings("ignore:All networks give the same")
def test_probabilities_of_zero_are_finite_logits():
    class Certain(nn.Module):
        def forward(self, x):
            return torch.stack([x.mean((1, 2, 3)) * 0 + 1, x.mean((1, 2, 3)) * 0], 1)

    result = dubium.explain([Certain().eval()] * 2, images(2), output="probabilities", method="grad")
    assert all(maps.isfinite().all() for maps in result.maps.values())
    torch.testing.assert_close(result.probs[0], torch.tensor([1.0, 0.0]))


def test_fullgrad_is_complete_through_the_wrapper():
    network, x = randomised(small_cnn()), images(2)
    (said,) = wrapped([network], lambda z: {"logits": z, "more": wide(z)})
    assert dubium.fullgrad_completeness(said, x).max() < 1e-4
    assert dubium.fullgrad_completeness(said, x, output="more").shape == (2, 12)
    probs = nn.Sequential(network, nn.Softmax(-1)).eval()
    assert dubium.fullgrad_completeness(probs, x, output="probabilities").max() < 1e-4
    assert dubium.fullgrad_completeness(network, x, output=lambda z: z.tanh() + z[:, :1] * z).max() < 1e-4


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("how", "output", "message"),
    [
        (
            lambda z: {"a": z, "b": wide(z)},
            None,
            r"network 0.*'a' \(., 4\), 'b' \(., 12\).*output=.*--network-output on the command line",
        ),
        (lambda z: {"a": z.argmax(1)}, None, r"dict of 'a' \(.,\)"),
        (lambda z: {"a": z}, "c", r"no 'c' in a dict of 'a' \(., 4\).*--network-output"),
        (lambda z: (z,), 3, r"no part 3 in a tuple of 0 \(., 4\)"),
        (lambda z: z, 0, r"no part 0 in a tensor of shape \(., 4\)"),
        (lambda z: z, lambda z: [z], "returned a list"),
        (lambda z: z, "probabilities", "are not: some are negative"),
        (lambda z: z, "sigmoid", r"one logit an image.*\(., 4\)"),
        (lambda z: z.argmax(1)[:, None].expand(-1, 3), None, "int64"),
        (lambda z: z[:, :, None, None], None, "Segmentation and regression are not supported yet"),
        (lambda z: z[:, :, None, None], None, r"\(B, K, h, w\).*output=lambda z: z\.mean\(\(2, 3\)\)"),
        (lambda z: z[:, 0], None, r"output='sigmoid' .*output='probabilities' .*--network-output"),
        (lambda z: z[:, :1], None, r"K = 1.*output='sigmoid' .*output='probabilities' .*--network-output"),
    ],
)
def test_an_output_that_is_not_clear_is_refused_with_its_parts(how, output, message):
    for call in (dubium.explain, dubium.uncertainty):
        with pytest.raises(errors.OutputError, match=message):
            call(wrapped(ensemble(small_cnn), how), images(2), output=output)


def test_maps_of_classes_are_explained_as_the_refusal_says():
    networks, x = ensemble(small_cnn), images(2)
    maps = wrapped(networks, lambda z: torch.stack([z - 1, z + 1], 2)[..., None])  # (B, K, 2, 1)
    expected = dubium.explain(networks, x, method="grad").maps["total"]
    by_output = dubium.explain(maps, x, method="grad", output=lambda z: z.mean((2, 3)))
    by_layers = [nn.Sequential(one, nn.AdaptiveAvgPool2d(1), nn.Flatten()).eval() for one in maps]
    for found in (by_output, dubium.explain(by_layers, x, method="grad")):
        torch.testing.assert_close(found.maps["total"], expected, rtol=1e-3, atol=1e-6)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    "how",
    [
        lambda z: SimpleNamespace(last_hidden_state=z[:, None], pooler_output=z),
        lambda z: {"last_hidden_state": z[:, None], "pooler_output": z},
        lambda z: {"last_hidden_state": z},
    ],
)
def test_features_of_a_model_without_a_head_are_no_logits_unless_it_is_said(how):
    networks, x = ensemble(small_cnn), images(2)
    for call in (dubium.explain, dubium.uncertainty):
        with pytest.raises(
            errors.OutputError, match=r"no logits in .*ForImageClassification.*or say output='"
        ) as raised:
            call(wrapped(networks, how), x)
    name = str(raised.value).split("output='")[1].split("'")[0]
    found = dubium.uncertainty(wrapped(networks, how), x, output=name)
    torch.testing.assert_close(found.members, dubium.uncertainty(networks, x).members)


class Timm(nn.Module):
    """A network with timm's attributes and features."""

    num_classes, num_features, head_hidden_size = 0, 3, 4

    def __init__(self, head=None):
        super().__init__()
        self.body, self.head = small_cnn(), head or nn.Identity()
        self.eval()

    def forward(self, x):
        return self.head(self.body(x))


def test_a_timm_network_without_classes_is_refused_and_one_with_a_head_by_hand_is_not():
    x = images(2)
    for networks in ([Timm(), Timm()], [Normalized(Timm(), 0.5, 0.5).eval() for _ in range(2)]):
        with pytest.raises(
            errors.OutputError, match=r"4 outputs of network 0 are features: its num_classes is 0.*timm"
        ):
            dubium.explain(networks, x)
    with_heads = [Timm(nn.Linear(4, 5)), nn.Sequential(Timm(), nn.Linear(4, 5)).eval()]
    assert dubium.explain(with_heads, x, method="grad").probs.shape == (2, 5)
    assert dubium.uncertainty([Timm(), Timm()], x, output="logits").probs.shape == (2, 4)


@pytest.mark.usefixtures("unchecked")
def test_an_output_choice_of_another_type_is_refused():
    for output in (1.5, True, ["logits"]):
        with pytest.raises(errors.OptionError, match="output="):
            dubium.explain(ensemble(small_cnn), images(2), output=output)


def test_outputs_that_look_like_probabilities_pass_if_a_function_says_so():
    networks = [nn.Sequential(network, nn.Softmax(-1)).eval() for network in ensemble(small_cnn)]
    result = dubium.uncertainty(networks, images(2), output=lambda logits: logits)
    expected = torch.stack([network(images(2)).softmax(-1) for network in networks]).detach()
    torch.testing.assert_close(result.members, expected)


def test_a_users_method_sees_the_network_itself_and_layers_keep_their_names():
    networks, x, seen = ensemble(small_cnn), images(2), []

    def mine(network, x, target):
        seen.append(network)
        return dubium.attribution.grad(network, x, target)

    dubium.explain(networks, x, relevance=mine)
    assert set(map(id, seen)) == set(map(id, networks))
    said = wrapped(networks, lambda z: {"logits": z})
    by_name = dubium.explain(said, x, relevance="grad-cam", layer="network.0")
    torch.testing.assert_close(
        by_name.maps, dubium.explain(networks, x, relevance="grad-cam", layer="0").maps, rtol=1e-5, atol=1e-7
    )


@pytest.mark.parametrize("error", [AssertionError, ValueError, TypeError, IndexError])
@pytest.mark.parametrize("call", [dubium.explain, dubium.uncertainty])
def test_what_a_network_raises_about_its_images_is_named(error, call):
    def refuse(_logits):
        raise error("Input height (12) doesn't match model (224)")

    with pytest.raises(errors.NetworkError, match=r"Network 0.*\(2, 1, 12, 12\).*doesn't match model \(224\)"):
        call(wrapped(ensemble(small_cnn), refuse), images(2))


def test_logits_that_sum_to_1_by_chance_are_no_probabilities():
    x, networks = images(1, 1, 4), []
    for seed in range(2):
        network = randomised(nn.Sequential(nn.Flatten(), nn.Linear(16, 2)), seed)
        with torch.no_grad():
            network[1].bias += torch.tensor([[0.25, 0.75], [0.6, 0.4]][seed]) - network(x)[0]
        networks.append(network)
    assert dubium.uncertainty(networks, x).probs.shape == (1, 2)
    with pytest.raises(errors.OutputError, match="look like probabilities"):
        dubium.uncertainty(wrapped(networks, lambda logits: logits.softmax(-1)), x)
