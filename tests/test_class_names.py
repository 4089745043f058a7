"""Names of classes: one for each class, in every place that takes them."""

from pathlib import Path

import pytest
import torch
from torch import nn

import dubium
from dubium.data import Dataset
from dubium.data.labels import match_labels
from dubium.errors import DubiumWarning, OptionError, UnknownNameError
from dubium.posteriors import Gaussian, MCDropout, posterior_record
from tests.data.official import write_idx
from tests.own_networks import say

EQUAL = ["cat", "crane", "crane"]


class Linear(nn.Sequential):
    def __init__(self, outputs=3, size=8):
        super().__init__(nn.Flatten(), nn.Dropout(0.5), nn.Linear(3 * size * size, outputs))


@pytest.fixture
def networks():
    torch.manual_seed(0)
    return [Linear().eval() for _ in range(2)]


@pytest.fixture
def x():
    return torch.rand(4, 3, 8, 8, generator=torch.Generator().manual_seed(0))


CALLS = {
    "explain": lambda networks, x: dubium.explain(networks, x, class_names=EQUAL),
    "explain_dataset": lambda networks, x: dubium.explain_dataset(networks, x, "out", class_names=EQUAL),
    "evaluate": lambda networks, x: dubium.evaluate(networks, x, ["grad"], scale="smoke", class_names=EQUAL),
    "save_posterior": lambda networks, _: dubium.save_posterior(networks, "out", classes=EQUAL),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_equal_names_are_warned_of(call, networks, x, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.warns(DubiumWarning, match=r"class(es|_names): classes 1, 2 are all called 'crane'\.") as said:
        call(networks, x)
    assert {Path(warning.filename).name for warning in said} == {"test_class_names.py"}


@pytest.mark.filterwarnings("default::dubium.errors.DubiumWarning")
def test_equal_names_are_warned_of_by_the_command(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = say("uncertainty", "demo", "--names", "a,b,a,d,e,f,g,h,i,a")
    assert "--names: classes 0, 2, 9 are all called 'a'. A label of that name is taken for the first of them." in found


def test_labels_of_a_dataset_with_the_same_equal_names_are_kept():
    data = Dataset(torch.zeros(3, 3, 8, 8), torch.tensor([2, 1, 0]), tuple(EQUAL), "birds", "all")
    assert match_labels(data, EQUAL, 3)[0].labels.tolist() == [2, 1, 0]


@pytest.mark.parametrize("text", ["classes.txt", "nowhere/classes.txt", "cat"])
def test_the_name_of_a_file_is_no_list_of_names(text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("classes.txt").write_text("\n".join("abcdefghij"))
    found = say("explain", "demo", "--names", text, code=2)
    assert f"--names is {text!r}; the names of all classes are needed" in found
    assert '--names "$(paste -sd, classes.txt)"' in found


@pytest.mark.parametrize(
    "make",
    [list, lambda networks: MCDropout(networks[0]), lambda networks: Gaussian(networks[0], {})],
    ids=["list", "dropout", "gaussian"],
)
def test_names_that_are_not_as_many_as_the_classes_are_not_saved(make, networks, tmp_path):
    refused = r"classes has 2 names \(a,b\), but the networks have 3 classes\. Give one name for each"
    with pytest.raises(OptionError, match=refused):
        dubium.save_posterior(make(networks), tmp_path, classes=["a", "b"], input_shape=(3, 8, 8))
    assert not [*tmp_path.iterdir()]
    dubium.save_posterior(make(networks), tmp_path, classes=["a", "b", "c"], input_shape=(3, 8, 8))


def test_names_are_saved_where_the_classes_cannot_be_counted(networks, tmp_path):
    one_logit, training = [Linear(1).eval()], [Linear().train()]
    for posterior, shape in ((networks, None), (one_logit, (3, 8, 8)), (training, (3, 8, 8)), (networks, (3, 9, 9))):
        dubium.save_posterior(posterior, tmp_path, classes=["a", "b"], input_shape=shape)
        assert posterior_record(tmp_path).classes == ["a", "b"]


def test_counting_classes_draws_no_random_numbers(networks, tmp_path):
    networks[0].register_forward_hook(lambda _, __, logits: logits + torch.rand(()))
    before = torch.get_rng_state()
    dubium.save_posterior(networks, tmp_path, classes=["a", "b", "c"], input_shape=(3, 8, 8))
    assert torch.equal(torch.get_rng_state(), before)


CLOTHES = "T-shirt/top,Trouser,Pullover,Dress,Coat,Sandal,Shirt,Sneaker,Bag,Ankle boot"
"""Of Fashion-MNIST."""


@pytest.fixture
def clothes(tmp_path, monkeypatch):
    """Ten images of Fashion-MNIST's, one of each class, and weights of networks for them."""
    write_idx(tmp_path / "data" / "fashion-mnist", "t10k", count=10)
    write_idx(tmp_path / "data" / "fashion-mnist", "train", count=10)
    monkeypatch.setenv("DUBIUM_DATA", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    architecture = {"name": "cnn", "options": {"filters": 2}}
    found = [dubium.models.cnn(filters=2).eval() for _ in range(2)]
    dubium.save_posterior(found, "saved", architecture=architecture, input_shape=(1, 28, 28))
    return found


SMOKE = ("--methods", "grad", "--scale", "smoke", "--images", 2, "--step", 10, "--out", "evaluated")
COMMANDS = {"explain": ("--top", 1, "--out", "explained"), "uncertainty": (), "evaluate blurring": SMOKE}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_misspelt_name_of_a_known_datasets_class_is_refused(command, clothes):
    words = (*command.split(), "saved", "--dataset", "fashion-mnist", *COMMANDS[command], "--names")
    refused = "No class of fashion-mnist is called 'Snaeker'. Did you mean 'Sneaker'? They are T-shirt/top, Trouser, "
    assert refused in say(*words, CLOTHES.replace("Sneaker", "Snaeker"), code=2)
    say(*words, CLOTHES)


def test_a_misspelt_name_of_a_known_datasets_class_is_refused_in_python(clothes):
    names = CLOTHES.replace("Dress", "Dres").split(",")
    with pytest.raises(UnknownNameError, match=r"'Dres'\. Did you mean 'Dress'\?"):
        dubium.explain_dataset(clothes, "fashion-mnist", "out", top=0, class_names=names)
    with pytest.raises(UnknownNameError, match=r"'Dres'\. Did you mean 'Dress'\?"):
        dubium.evaluate(clothes, "fashion-mnist", ["grad"], scale="smoke", class_names=names)


def test_names_of_other_classes_than_a_known_datasets_are_taken_and_said(clothes):
    words = ("uncertainty", "saved", "--dataset", "fashion-mnist", "--names")
    assert "dubium: Labels are not used: no class of the networks" in say(*words, "a,b,c,d,e,f,g,h,i,j")
    assert "not used" not in say(*words, CLOTHES)


def test_labels_of_a_known_dataset_are_matched_by_name_in_python_as_in_the_command(clothes):
    names = CLOTHES.split(",")[::-1]
    found = dubium.explain_dataset(clothes, "fashion-mnist", "out", top=0, class_names=names)
    assert [row.label for row in found.rows()] == list(range(10))[::-1]
