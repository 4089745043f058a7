"""Results of other images, labels, networks, methods or versions are never taken for those that were asked for."""

import contextlib
import importlib.util
import json
import sys
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn
from typer.testing import CliRunner

import dubium
from dubium import registry
from dubium.cli import app
from dubium.data import Dataset, load
from dubium.errors import FileFormatError, OptionError
from dubium.evaluation.methods import parse_methods
from dubium.evaluation.protocols import PROTOCOLS, Evaluation, run_protocol
from dubium.fingerprint import method_fingerprint, posterior_digests
from dubium.models import cnn
from dubium.posteriors import MCDropout
from dubium.run import Settings, explain_dataset, open_work
from tests import piles


@pytest.fixture
def pile(tmp_path):
    named = {"run": piles.posterior(tmp_path / "posterior")}, {"dataset": piles.arrays(tmp_path / "images.npz")}
    return Settings(*named, top=2, batch=4, threads=1)


def arrays(path):
    with np.load(path) as content:
        return dict(content)


def change_file(path, name):
    """One image, or one label, becomes another; names, numbers and shapes stay."""
    content = arrays(path)
    content[name] = content[name].copy()
    content[name][0] = (content[name][0] + 1) % 3
    np.savez(path, **content)


def evaluation(tmp_path, **changes):
    torch.manual_seed(0)
    data = load(piles.arrays(tmp_path / "images.npz"))
    networks = piles.networks()
    found = Evaluation(networks, data, parse_methods(["grad"], 1, control=False), ("epistemic",), tmp_path / "out")
    return replace(found, other_data=data, **changes)


@pytest.mark.parametrize("part", ["images", "labels"])
def test_evaluate_refuses_other_images_and_labels_under_the_same_name(pile, tmp_path, part):
    command = ["evaluate", "blurring", pile.posterior["run"], "--dataset", pile.images["dataset"], "--scale", "smoke"]
    command += ["--methods", "grad", "--threads", "1", "--out", str(tmp_path / "out")]
    assert CliRunner().invoke(app, command).exit_code == 0
    change_file(pile.images["dataset"], part)
    found = CliRunner().invoke(app, command)
    assert found.exit_code == 2
    assert "data.sha256 is" in found.output


@pytest.mark.parametrize("part", ["images", "labels"])
def test_explain_refuses_other_images_and_labels_under_the_same_name(pile, tmp_path, part):
    explain_dataset(open_work(pile), tmp_path / "out")
    explain_dataset(open_work(pile), tmp_path / "out")
    change_file(pile.images["dataset"], part)
    with pytest.raises(OptionError, match=r"images\.sha256 is"):
        explain_dataset(open_work(pile), tmp_path / "out")


def test_the_data_besides_the_images_count_too(tmp_path):
    first = evaluation(tmp_path)
    run_protocol("anomaly", first, scale="smoke")
    data = first.data
    brighter = Dataset(data.images // 2, data.labels, data.classes, data.name, data.split)
    with pytest.raises(OptionError, match=r"patch data\.sha256 is"):
        run_protocol("anomaly", replace(first, other_data=brighter), scale="smoke")


def test_masks_of_the_same_size_are_told_apart(tmp_path):
    first = evaluation(tmp_path)
    masks = torch.zeros(20, 12, 12, dtype=torch.bool)
    masks[:, 0] = True
    run_protocol("masks", first, masks=masks, images=20)
    with pytest.raises(OptionError, match="mask data is"):
        run_protocol("masks", first, masks=masks.flip(1), images=20)


def test_networks_that_share_weights_are_told_apart_by_masks_rate_and_layers():
    torch.manual_seed(0)
    network = cnn(filters=2, dropout=0.3).eval()

    def digest(networks):
        return tuple(posterior_digests(networks).values())

    found = {digest(MCDropout(network, samples=2, seed=seed)) for seed in (0, 1)}
    for module in network.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.4
    found.add(digest(MCDropout(network, samples=2, seed=0)))
    plain = nn.Linear(2, 2)
    found |= {digest([nn.Sequential(plain, layer)]) for layer in (nn.ReLU(), nn.GELU())}
    assert len(found) == 5
    assert digest([plain]) == digest([plain])
    assert digest([plain])[1] is None  # as before there was a second digest


class Scaled(nn.Module):
    def __init__(self, scale, is_buffer=False, seed=0):
        super().__init__()
        torch.manual_seed(seed)
        self.linear, self.calls, self.cache = nn.Linear(144, 3), 0, {}
        if is_buffer:
            self.register_buffer("scale", torch.tensor(scale), persistent=False)
        else:
            self.scale = scale

    def forward(self, x):
        self.calls += 1
        self.cache[tuple(x.shape)] = x
        self.remember(x)
        factor = self.scale.factor if isinstance(self.scale, SimpleNamespace) else self.scale
        factor = factor[0] if isinstance(factor, tuple | list) else factor
        logits = self.linear(x.flatten(1))
        return factor(logits) if callable(factor) else factor * logits

    def remember(self, x):
        self.last = x.sum()
        self.register_buffer("mean", x.mean(), persistent=False)


def lambda_of(factor):
    return lambda logits: factor * logits


SCALES = {
    "number": (1.0, 2.0),
    "tensor": (torch.tensor(1.0), torch.tensor(2.0)),
    "tuple": ((1.0, 0), (2.0, 0)),
    "list": ([1.0, "a"], [2.0, "a"]),
    "config": (SimpleNamespace(factor=1.0, empty=[]), SimpleNamespace(factor=2.0, empty=[])),
    "function": (torch.relu, torch.sigmoid),
    "lambda": (lambda_of(1.0), lambda_of(2.0)),
    "partial": (partial(torch.mul, other=1.0), partial(torch.mul, other=2.0)),
}


@pytest.mark.parametrize("kind", [*SCALES, "buffer"])
def test_networks_that_differ_in_an_attribute_are_told_apart_and_what_forward_sets_does_not_matter(kind):
    pair = [Scaled(scale, is_buffer=kind == "buffer").eval() for scale in SCALES.get(kind, SCALES["number"])]
    before = [posterior_digests([network]) for network in pair]
    assert before[0]["weights"] == before[1]["weights"]
    assert before[0]["network attributes"] != before[1]["network attributes"]
    for network in pair:
        network(torch.rand(2, 1, 12, 12))
    assert [posterior_digests([network]) for network in pair] == before


def test_attention_of_another_number_of_heads_is_told_apart():
    found = []
    for heads in (1, 2):
        torch.manual_seed(0)
        found.append(posterior_digests([nn.MultiheadAttention(4, heads)]))
    assert found[0]["weights"] == found[1]["weights"]
    assert found[0] != found[1]


@pytest.mark.parametrize("is_buffer", [False, True])
def test_folders_are_not_continued_with_another_attribute(tmp_path, is_buffer):
    x = torch.rand(4, 1, 12, 12)
    soft, sharp = ([Scaled(scale, is_buffer, seed).eval() for seed in range(2)] for scale in (1.0, 20.0))
    dubium.explain_dataset(soft, x, tmp_path / "a", method="grad", top=1)
    dubium.evaluate(soft, x, ["grad"], "removal", tmp_path / "b", scale="smoke")
    dubium.explain_dataset(soft, x, tmp_path / "a", method="grad", top=1)  # though it has counted its passes
    dubium.evaluate(soft, x, ["grad"], "removal", tmp_path / "b", scale="smoke")
    with pytest.raises(OptionError, match="network attributes is"):
        dubium.explain_dataset(sharp, x, tmp_path / "a", method="grad", top=1)
    with pytest.raises(OptionError, match="network attributes is"):
        dubium.evaluate(sharp, x, ["grad"], "removal", tmp_path / "b", scale="smoke")


def test_folders_that_did_not_record_attributes_are_continued_where_there_are_none(pile, tmp_path):
    for networks, is_refused in (
        (piles.networks(), False),
        ([Scaled(1.0, seed=seed).eval() for seed in range(2)], True),
    ):
        out = tmp_path / str(is_refused)
        dubium.explain_dataset(networks, torch.rand(4, 1, 12, 12), out, method="grad", top=1)
        file = out / "run.json"
        content = json.loads(file.read_text())
        del content["network attributes"]
        file.write_text(json.dumps(content))
        x = torch.rand(4, 1, 12, 12)
        match = "did not record network attributes" if is_refused else r"images\.sha256 is"
        with pytest.raises(OptionError, match=match):
            dubium.explain_dataset(networks, x, out, method="grad", top=1)


CODE = """
import torch
from torch import nn


class Net(nn.Module):
    slope = 1.0

    def __init__(self, seed):
        super().__init__()
        torch.manual_seed(seed)
        self.layer = nn.Linear(144, 3)

    def forward(self, x):
        return self.slope * self.layer(x.flatten(1).relu())


def unrelated():
    return 1
"""


@pytest.mark.parametrize(
    ("edit", "is_same"),
    [
        (("relu()", "sigmoid()"), False),
        (("slope = 1.0", "slope = 2.0"), False),
        (("return 1", "return 2"), True),
        (("import torch\n", "import math\nimport torch\n"), True),
    ],
)
def test_folders_are_continued_with_the_same_code_of_the_networks_alone(tmp_path, edit, is_same):
    x = torch.rand(4, 1, 12, 12)
    for index, text in enumerate((CODE, CODE.replace(*edit))):
        (tmp_path / f"code{index}").mkdir()
        file = tmp_path / f"code{index}" / "edited_code.py"
        file.write_text(text)
        spec = importlib.util.spec_from_file_location("edited_code", file)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        networks = [module.Net(seed).eval() for seed in range(2)]
        with contextlib.nullcontext() if is_same or index == 0 else pytest.raises(OptionError, match="network code is"):
            dubium.explain_dataset(networks, x, tmp_path / "a", method="grad", top=1)
        with contextlib.nullcontext() if is_same or index == 0 else pytest.raises(OptionError, match="network code is"):
            dubium.evaluate(networks, x, ["grad"], "removal", tmp_path / "b", scale="smoke")


class TwoHeads(nn.Module):
    def __init__(self, seed):
        super().__init__()
        torch.manual_seed(seed)
        self.a, self.b = nn.Linear(144, 3), nn.Linear(144, 5)

    def forward(self, x):
        return self.a(x.flatten(1)), self.b(x.flatten(1))


@pytest.mark.parametrize("outputs", [(0, 1), (lambda parts: parts[0], lambda parts: parts[1])])
def test_an_evaluation_of_one_output_is_not_continued_with_another(tmp_path, outputs):
    x, networks = torch.rand(4, 1, 12, 12), [TwoHeads(seed).eval() for seed in range(2)]
    for _ in range(2):
        dubium.evaluate(networks, x, ["grad"], "removal", tmp_path, scale="smoke", output=outputs[0])
    with pytest.raises(OptionError, match="network attributes is"):
        dubium.evaluate(networks, x, ["grad"], "removal", tmp_path, scale="smoke", output=outputs[1])


def test_networks_given_without_a_digest_are_told_apart(tmp_path):
    first = evaluation(tmp_path)
    run_protocol("blurring", first, scale="smoke")
    with pytest.raises(OptionError, match="weights is"):
        run_protocol("blurring", replace(first, posterior=piles.networks(2)), scale="smoke")


def test_another_version_of_a_method_or_protocol_is_not_continued(pile, tmp_path, monkeypatch):
    first = evaluation(tmp_path)
    run_protocol("blurring", first, scale="smoke")
    explain_dataset(open_work(pile), tmp_path / "explained")
    monkeypatch.setitem(registry.METHOD_VERSIONS, "grad", 2)
    monkeypatch.setitem(registry.METHOD_VERSIONS, "fullgrad", 2)
    with pytest.raises(OptionError, match=r"methods\.grad\.grad is 1 there, 2 here"):
        run_protocol("blurring", first, scale="smoke")
    with pytest.raises(OptionError, match=r"method\.fullgrad is 1 there, 2 here"):
        explain_dataset(open_work(pile), tmp_path / "explained")
    other = replace(first, methods=parse_methods(["input-grad"], 1, control=False))
    run_protocol("blurring", other, scale="smoke")  # added: what is there of other methods does not matter
    monkeypatch.setitem(PROTOCOLS, "blurring", replace(PROTOCOLS["blurring"], version=2))
    with pytest.raises(OptionError, match=r"protocol\.version is 1 there, 2 here"):
        run_protocol("blurring", other, scale="smoke")


def test_a_methods_own_objects_and_code_count(tmp_path, monkeypatch):
    torch.manual_seed(0)
    vaes = [nn.Linear(2, 2) for _ in range(2)]
    assert len({json.dumps(method_fingerprint("clue", {"vae": vae})) for vae in vaes}) == 2
    starts = [[torch.zeros(1, 2, 2)], [torch.ones(1, 2, 2)], ["white", torch.ones(1, 2, 2)]]
    assert len({json.dumps(method_fingerprint("ig", {"start": start})) for start in starts}) == 3
    assert method_fingerprint("ig", {"start": ["white", "black"]}) == {"ig": 1}
    assert method_fingerprint("auto", {}) == {"blur-path": 1, "net": 1}  # not what it was without `net`
    assert method_fingerprint("ua-backprop", {"relevance": "ig"}) == {"ua-backprop": 1, "ig": 1}
    monkeypatch.syspath_prepend(str(tmp_path))
    found = []
    for factor in (1, 2):
        (tmp_path / "own_method.py").write_text(f"def maps(network, x, target):\n    return {factor} * x[:, :1]\n")
        sys.modules.pop("own_method", None)
        found.append(method_fingerprint("own_method:maps", {})["own_method:maps"])
    assert len(set(found)) == 2
    assert None not in found


def test_folders_of_earlier_versions_are_refused_with_the_reason(pile, tmp_path):
    first = evaluation(tmp_path)
    run_protocol("blurring", first, scale="smoke")
    file = first.out / "settings.json"
    old = {name: value for name, value in json.loads(file.read_text()).items() if name not in ("data", "methods")}
    file.write_text(json.dumps(old))
    with pytest.raises(OptionError, match="earlier version of dubium, which did not record data, methods"):
        run_protocol("blurring", first, scale="smoke")
    explain_dataset(open_work(pile), tmp_path / "explained")
    file = tmp_path / "explained" / "run.json"
    file.write_text(
        json.dumps({name: value for name, value in json.loads(file.read_text()).items() if name != "method"})
    )
    with pytest.raises(OptionError, match=r"earlier version of dubium, which did not record method.*--fresh"):
        explain_dataset(open_work(pile), tmp_path / "explained")


def test_results_whose_settings_are_lost_are_not_deleted(pile, tmp_path):
    explain_dataset(open_work(pile), tmp_path / "out")
    before = sorted((tmp_path / "out" / "results").iterdir())
    (tmp_path / "out" / "run.json").write_text('{"settings": {')
    with pytest.raises(FileFormatError, match=r"run\.json.*missing or damaged.*--fresh"):
        explain_dataset(open_work(pile), tmp_path / "out")
    assert sorted((tmp_path / "out" / "results").iterdir()) == before
