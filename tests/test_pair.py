"""`pair=(a, b)`: the doubt between two classes alone."""

import numpy as np
import pytest
import torch
from torch import nn

import dubium
from dubium import errors
from dubium.registry import CONTROL_NAMES
from tests.networks import ensemble, images, small_cnn

METHODS = [name for name in dubium.methods() if name not in CONTROL_NAMES]


def two_class_networks(networks, pair):
    """The same networks with a last layer that has the two classes alone."""
    small = []
    for network in networks:
        *body, head = network
        last = nn.Linear(head.in_features, 2)
        last.weight.data, last.bias.data = head.weight.data[list(pair)], head.bias.data[list(pair)]
        small.append(nn.Sequential(*body, last).eval())
    return small


@pytest.mark.parametrize("method", METHODS)
def test_a_pair_is_explained_as_networks_of_these_two_classes_are(method, cheap):
    networks, x = ensemble(small_cnn), images(2)
    found = dubium.explain(networks, x, method=method, pair=(2, 0), **cheap(method))
    expected = dubium.explain(two_class_networks(networks, (2, 0)), x, method=method, **cheap(method))
    for kind in ("total", "aleatoric", "epistemic"):
        torch.testing.assert_close(found.scores[kind], expected.scores[kind], rtol=1e-4, atol=1e-6)
        torch.testing.assert_close(found.maps[kind], expected.maps[kind], rtol=1e-3, atol=1e-5)
    torch.testing.assert_close(found.probs, expected.probs)
    assert found.options["pair"] == [2, 0]
    assert "pair" not in expected.options


def test_the_doubt_depends_on_the_difference_of_the_two_logits_alone():
    networks, x = ensemble(small_cnn), images(2)

    def shifted(logits):
        return logits + torch.tensor([0.0, 7.0, 0.0, -3.0])  # the other two

    first = dubium.explain(networks, x, method="auto", pair=(2, 0))
    other = dubium.explain(networks, x, method="auto", pair=(2, 0), output=shifted)
    torch.testing.assert_close(first.maps["epistemic"], other.maps["epistemic"])
    odds = torch.stack([network(x)[:, 2] - network(x)[:, 0] for network in networks]).detach()
    torch.testing.assert_close(first.members[..., 0], odds.sigmoid())


def test_classes_can_be_named():
    networks, x, names = ensemble(small_cnn), images(1), ["ant", "bee", "cat", "dog"]
    result = dubium.explain(networks, x, method="grad", pair=("dog", "ant"), class_names=names)
    assert result.class_names == ("dog", "ant")
    assert result.options["pair"] == [3, 0]


@pytest.mark.parametrize("pair", [(1, 1), (1,), 4, "ab", (0, -1), (True, 2), ("ant", "emu"), (0, 1.5)])
def test_other_things_than_two_classes_are_refused(pair, unchecked):
    with pytest.raises(errors.OptionError, match="two different classes"):
        dubium.explain(ensemble(small_cnn), images(1), pair=pair, class_names=["ant", "bee", "cat", "dog"])


def test_a_name_that_no_class_has_brings_near_ones(unchecked):
    names = ["ant", "bee", "cat", "dog"]
    with pytest.raises(errors.OptionError, match=r"'bea' is no class name. Did you mean 'bee'\?"):
        dubium.explain(ensemble(small_cnn), images(1), pair=("ant", "bea"), class_names=names)
    with pytest.raises(errors.OptionError, match=r"'x' is no class name. They are ant, bee, cat, dog\."):
        dubium.explain(ensemble(small_cnn), images(1), pair=("ant", "x"), class_names=names)


def test_classes_that_the_networks_do_not_have_are_refused():
    with pytest.raises(errors.OptionError, match="4 classes, numbered 0 to 3"):
        dubium.explain(ensemble(small_cnn), images(1), pair=(1, 4))
    with pytest.raises(errors.OptionError, match="one for each"):
        dubium.explain(ensemble(small_cnn), images(1), class_names=["ant", "bee"])


def test_outputs_that_are_no_logits_are_still_refused():
    networks = [nn.Sequential(network, nn.Softmax(-1)).eval() for network in ensemble(small_cnn)]
    with pytest.raises(errors.OutputError, match="probabilities"):
        dubium.explain(networks, images(1), pair=(0, 1))


@pytest.mark.parametrize("names", [{"ant", "bee", "cat", "dog"}, 4, "abcd", {"ant": 0, "bee": 1}, iter("abcd")])
def test_names_without_an_order_are_refused_before_anything_is_computed(names, unchecked):
    networks, passes = ensemble(small_cnn), []
    networks[0].register_forward_hook(lambda *_: passes.append(1))
    with pytest.raises(
        errors.OptionError, match=f"class_names is a {type(names).__name__}; a list of names in the order"
    ):
        dubium.explain(networks, images(1), class_names=names)
    assert not passes


@pytest.mark.parametrize("names", [["ant", "bee"], list("abcde")])
def test_too_few_or_too_many_names_are_refused_after_one_pass(names):
    networks, slopes = ensemble(small_cnn), []
    networks[0][0].register_full_backward_hook(lambda *_: slopes.append(1))
    networks[-1].register_forward_pre_hook(lambda *_: pytest.fail("the last network was asked, too"))
    with pytest.raises(errors.OptionError, match=rf"one for each of the networks' classes: 4, not {len(names)}"):
        dubium.explain(networks, images(1), method="grad", class_names=names)
    assert not slopes


@pytest.mark.parametrize("form", [tuple, np.array, lambda names: dict(enumerate(names))])
def test_names_come_in_any_form_that_has_an_order(form, unchecked):
    names = ["ant", "bee", "cat", "dog"]
    found = dubium.explain(ensemble(small_cnn), images(1), method="grad", class_names=form(names), pair=("dog", "ant"))
    assert found.class_names == ("dog", "ant")
    assert found.options["pair"] == [3, 0]
    assert dubium.explain(ensemble(small_cnn), images(1), method="grad", class_names=form(names)).class_names == (
        *names,
    )


def test_two_classes_of_one_name_are_told_apart_by_their_numbers():
    names = ["crane", "bee", "crane", "dog"]
    with (
        pytest.warns(errors.DubiumWarning, match="classes 0, 2 are all called 'crane'") as said,
        pytest.raises(errors.OptionError, match="classes 0, 2 are all called 'crane'"),
    ):
        dubium.explain(ensemble(small_cnn), images(1), pair=("crane", "dog"), class_names=names)
    with pytest.warns(errors.DubiumWarning, match="classes 0, 2"):
        found = dubium.explain(ensemble(small_cnn), images(1), method="grad", pair=(2, 3), class_names=names)
    assert found.class_names == ("crane", "dog")
    named = eval(str(said[0].message).partition("for all names: ")[2].rstrip("."), {"names": names})
    found = dubium.explain(ensemble(small_cnn), images(1), method="grad", pair=("crane 2", "dog"), class_names=named)
    assert found.class_names == ("crane 2", "dog")


class Squeezed(nn.Module):
    """Of one image, it returns logits without the axis of the batch."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Conv2d(1, 4, 12)

    def forward(self, x):
        return self.layer(x).squeeze()


@pytest.mark.parametrize("choice", [{"pair": (0, 1)}, {"output": "logits"}, {"output": lambda output: output}])
@pytest.mark.parametrize("count", [1, 2])
def test_a_network_that_squeezes_its_batch_is_taken_whatever_is_asked_of_its_output(count, choice):
    networks = [Squeezed().eval() for _ in range(2)]
    plain = [nn.Sequential(network.layer, nn.Flatten()).eval() for network in networks]
    found, expected = (dubium.explain(each, images(count), method="grad", **choice) for each in (networks, plain))
    torch.testing.assert_close(found.maps["total"], expected.maps["total"])
