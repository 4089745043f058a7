"""Methods of a user's own by name, and `evaluate` and `explain_dataset` on images of a user's own."""

import json
from functools import partial

import pytest
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset
from typer.testing import CliRunner

import dubium
from dubium.attribution import blur_path
from dubium.cli import app
from dubium.data import Dataset as Images
from dubium.data.samples import as_dataset
from dubium.errors import ImagesError, ImagesTypeError, OptionError, OutputError, UnknownNameError
from dubium.evaluation.methods import label_methods
from dubium.image_checks import check_images
from dubium.registry import CONTROL_NAMES, REGISTERED
from dubium.run import open_results
from dubium.types import Attribution
from tests.networks import ensemble, images, small_cnn


def brightest(network, x, target, *, power=1.0):
    return x.sum(1).pow(power)[:, None].expand(-1, target(network(x)).shape[1], -1, -1)


def brightest_by_place(network, x, target=None, power=1.0, context=None):
    return brightest(network, x, target, power=power)


@pytest.mark.parametrize("method", [brightest_by_place, partial(brightest_by_place, power=1.0)])
def test_arguments_after_the_target_are_options_with_or_without_a_star(networks, x, method):
    found = dubium.explain(networks, x, method=method, power=3)
    assert found.options == {"power": 3}
    assert torch.equal(found.maps["total"], dubium.explain(networks, x, method=brightest, power=3).maps["total"])
    with pytest.raises(UnknownNameError, match="No option of 'brightest_by_place' called 'powre'"):
        dubium.explain(networks, x, method=method, powre=3)


class Samples(Dataset):
    def __init__(self, x, form):
        self.x, self.form = x, form

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        return self.form(self.x[index], index % 3)


class Pair(nn.Module):
    def __init__(self, network):
        super().__init__()
        self.network = network

    def forward(self, x):
        return {"hidden": x.flatten(1), "logits": self.network(x)}


@pytest.fixture
def networks():
    torch.manual_seed(0)
    return [nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 3)).eval() for _ in range(3)]


@pytest.fixture
def x():
    return torch.rand(12, 1, 8, 8, generator=torch.Generator().manual_seed(1))


@pytest.fixture
def registered():
    dubium.register_method("brightest", brightest)
    return "brightest"


def test_a_registered_method_has_its_name_everywhere(registered, networks, x):
    assert registered in dubium.methods()
    result = dubium.explain(networks, x, method=registered, power=2.0)
    assert result.method == registered
    assert result.options == {"power": 2.0}
    torch.testing.assert_close(result.maps["total"], x[:, 0] ** 2)
    with pytest.raises(UnknownNameError, match="power"):
        dubium.explain(networks, x, method=registered, pwer=2.0)


def test_options_may_follow_a_name_wherever_a_method_is_named(registered, networks, x, tmp_path):
    mine = f"{__name__}:brightest"
    expected = dubium.explain(networks, x, method=registered, power=3)
    for text in (f"{mine}:power=3", f"{registered}:power=3"):
        found = dubium.explain(networks, x, method=text)
        assert found.options == {"power": 3}
        torch.testing.assert_close(found.maps["total"], expected.maps["total"])
        results = dubium.explain_dataset(networks, x, tmp_path / text.replace(":", "-"), method=text, top=2)
        assert results.about["settings"]["method"] == text.removesuffix(":power=3")
        assert results.about["settings"]["options"] == {"power": 3}
        assert text in dubium.evaluate(networks, x, [text], scale="smoke", images=3, step=10.0)["results"]
    ig = dubium.explain(networks, x, method="ig:steps=7:start=black")
    assert ig.options["steps"] == 7
    torch.testing.assert_close(
        ig.maps["total"], dubium.explain(networks, x, method="ig", steps=7, start="black").maps["total"]
    )
    for text in (f"ua-backprop:relevance={mine}:power=3", f"ua-backprop:power=3:relevance={mine}"):
        torch.testing.assert_close(
            dubium.explain(networks, x, method=text).maps["total"],
            dubium.explain(networks, x, relevance=brightest, power=3).maps["total"],
        )
    torch.testing.assert_close(
        dubium.explain(networks, x, relevance=f"{mine}:power=3").maps["total"],
        dubium.explain(networks, x, relevance=brightest, power=3).maps["total"],
    )


def own_layer(network, x, target, *, layer=1):
    return brightest(network, x, target, power=layer)


@pytest.mark.parametrize("name", ["0", "3.10", '"0"'])
@pytest.mark.parametrize("method", ["grad-cam", "ua-backprop:relevance=grad-cam", "captum.attr:LayerGradCam"])
def test_a_layer_that_is_called_by_a_number_can_be_named_in_a_text(x, name, method):
    convs = [nn.Sequential(*[nn.Conv2d(1, 1, 3, padding=1) for _ in range(11)]) for _ in range(2)]
    networks = [
        nn.Sequential(nn.Conv2d(1, 1, 3), nn.ReLU(), nn.ReLU(), conv, nn.Flatten(), nn.Linear(36, 3)).eval()
        for conv in convs
    ]
    found = dubium.explain(networks, x[:2], method=f"{method}:layer={name}")
    what = {"relevance": "grad-cam"} if "relevance" in method else {"method": method.partition(":relevance")[0]}
    expected = dubium.explain(networks, x[:2], **what, layer=name.strip('"'))
    assert torch.equal(found.maps["total"], expected.maps["total"])


def test_an_option_of_ones_own_that_is_called_layer_may_be_a_number(networks, x, monkeypatch):
    monkeypatch.setitem(REGISTERED, "own-layer", own_layer)
    expected = dubium.explain(networks, x, method=own_layer, layer=2).maps["total"]
    for options in ({"method": "own-layer:layer=2"}, {"method": f"{__name__}:own_layer:layer=2"}):
        assert torch.equal(dubium.explain(networks, x, **options).maps["total"], expected)


def test_values_in_a_text_are_read_as_python_writes_them(networks, x):
    found = dubium.explain(networks, x, method="ua-backprop:normalize=False:tau1=None:classes=2e0").options
    assert (found["normalize"], found["tau1"], found["classes"]) == (False, 0.08, 2)
    assert dubium.explain(networks, x[:1], method="ig:steps=1e1").options["steps"] == 10


def test_captums_attribute_alone_is_answered_with_the_class_to_give(networks, x):
    attr = pytest.importorskip("captum.attr")
    saliency = attr.Saliency(networks[0])
    for function in (saliency.attribute, attr.Saliency.attribute, partial(saliency.attribute, abs=False)):
        said = r"Saliency\.attribute was given .* class Saliency, .* the object alone, Saliency\(network\)"
        for call in (
            lambda function=function: dubium.explain(networks, x, method=function),
            lambda function=function: dubium.explain(networks, x, relevance=function),
            lambda function=function: dubium.register_method("mine", function),
        ):
            with pytest.raises(OptionError, match=said):
                call()

    class Mine:
        def attribute(self, network, x, target):
            return brightest(network, x, target)

    assert dubium.explain(networks, x, method=Mine().attribute).method == "attribute"


def test_mistakes_in_a_methods_text_are_named(networks, x):
    with pytest.raises(OptionError, match=r"power is given twice: in method='.*power=3'"):
        dubium.explain(networks, x, method=f"{__name__}:brightest:power=3", power=2)
    with pytest.raises(UnknownNameError, match="pwer"):
        dubium.explain(networks, x, method=f"{__name__}:brightest:pwer=3")
    with pytest.raises(OptionError, match="has the part 'fast'"):
        dubium.explain(networks, x, method="ig:steps=7:fast")
    with pytest.raises(UnknownNameError, match="Did you mean 'brightest'"):
        dubium.explain(networks, x, method=f"{__name__}:brigtest")
    with pytest.raises(UnknownNameError, match="'igg'"):
        dubium.explain(networks, x, method="igg:steps=7")


def test_maps_of_channels_are_not_taken_for_maps_of_targets(x):
    torch.manual_seed(0)
    networks = [nn.Sequential(nn.Flatten(), nn.Linear(3 * 64, 3)).eval() for _ in range(2)]
    colours, calls = torch.cat([x, x / 2, x / 3], 1), []

    def by_channel(network, x, target):
        calls.append(len(x))
        x = x.clone().requires_grad_()
        return torch.autograd.grad(target(network(x)).sum(), x)[0].abs()  # (B, C, H, W): one map a channel

    for of in ({"method": by_channel}, {"relevance": by_channel}):
        with pytest.raises(OutputError, match=r"by_channel returned \(B, C, H, W\).*also for one target"):
            dubium.explain(networks, colours, **of)
    expected = dubium.explain(networks, colours, method=brightest, kinds="total").maps["total"]
    state = torch.get_rng_state()
    torch.testing.assert_close(dubium.explain(networks, colours, method=brightest).maps["total"], expected)
    assert torch.equal(state, torch.get_rng_state())


def test_a_fixed_number_of_maps_is_not_taken_for_maps_of_targets(networks, x):
    def three(network, x, target):
        return x.abs().expand(-1, 3, -1, -1)

    with pytest.raises(OutputError, match="three returned 3 maps an image also for one target"):
        dubium.explain(networks, x, method=three)


def divides_by_nothing(network, x, target):
    return brightest(network, x, target) / (len(x) % 0)


@pytest.mark.parametrize("argument", ["method", "relevance"])
@pytest.mark.parametrize("classes", ["all", 1])
def test_a_method_of_ones_own_changes_neither_images_nor_modes(networks, x, argument, classes):
    def careless(network, x, target):
        found = target(network(x))
        x -= x.mean()
        network.train()
        return x.abs().mean(1, keepdim=True).repeat(1, found.shape[1], 1, 1)

    def careful(network, x, target):
        return careless(network, x.clone(), target)

    before, options = x.clone(), {"classes": classes} if argument == "relevance" else {}
    found = dubium.explain(networks, x, **{argument: careless}, **options)
    assert torch.equal(x, before)
    assert not any(module.training for network in networks for module in network.modules())
    expected = dubium.explain(networks, x, **{argument: careful}, **options)
    assert torch.equal(found.maps["total"], expected.maps["total"])


def test_a_users_method_may_call_networks_in_training_mode_and_their_statistics_come_back(x):
    networks = [nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.AdaptiveAvgPool2d(1), nn.Flatten()).eval()]
    before = [buffer.clone() for network in networks for buffer in network.buffers()]
    seen = []

    def in_training_mode(network, x, target):
        network.networks[0].train()
        found = target(network(x))
        seen.append(network.networks[0][1].running_mean.clone())
        network.networks[0][1].running_var = torch.zeros(4)
        return x.abs().mean(1, keepdim=True).repeat(1, found.shape[1], 1, 1)

    dubium.explain(networks, x, method=in_training_mode, kinds="total")
    after = [buffer for network in networks for buffer in network.buffers()]
    assert not torch.equal(seen[0], before[0])
    assert all(map(torch.equal, after, before))


def test_an_error_in_a_users_method_names_the_line(networks, x):
    line = divides_by_nothing.__code__.co_firstlineno + 1
    for method in (divides_by_nothing, f"{__name__}:divides_by_nothing"):
        with pytest.raises(
            OptionError, match=rf"raised ZeroDivisionError in test_own_methods\.py, line {line}: .*zero"
        ) as refused:
            dubium.explain(networks, x, method=method)
        assert isinstance(refused.value.__cause__, ZeroDivisionError)


def test_a_function_that_is_defined_again_replaces_itself(networks, x):
    cell = "def mine(network, x, target):\n    return x.expand(-1, target(network(x)).shape[1], -1, -1) + {added}"
    try:
        for added in (1, 2):  # a notebook's cell that is edited and run again
            namespace = {"__name__": "__main__"}
            exec(cell.format(added=added), namespace)
            dubium.register_method("from-a-cell", namespace["mine"])
            maps = dubium.explain(networks, x, method="from-a-cell", kinds="total").maps["total"]
            torch.testing.assert_close(maps, x[:, 0] + added)
        dubium.register_method("from-a-cell", partial(namespace["mine"]))
    finally:
        REGISTERED.pop("from-a-cell", None)


def test_names_that_are_taken_or_no_names_are_refused(registered):
    for name in ("grad", "auto", "ua-backprop"):
        with pytest.raises(OptionError, match=r"already\. Choose another name\.$"):
            dubium.register_method(name, brightest)
    with pytest.raises(OptionError, match=r"already.*or say replace=True, which replaces .*\.brightest"):
        dubium.register_method(registered, dubium.attribution.grad)
    dubium.register_method(registered, dubium.attribution.grad, replace=True)
    with pytest.raises(OptionError, match=r"already.*or say replace=True"):
        dubium.register_method(registered, brightest)
    dubium.register_method(registered, brightest, replace=True)
    with pytest.raises(OptionError, match="already"):
        dubium.register_method("grad", brightest, replace=True)
    for name in ("a:b", "a,b", ""):
        with pytest.raises(OptionError, match="letters"):
            dubium.register_method(name, brightest)
    with pytest.raises(OptionError, match="network, x, target"):
        dubium.register_method("wrong", lambda network: network)
    with pytest.raises(OptionError, match="Captum class"):
        dubium.register_method("wrong", "grad")


def test_a_method_of_ones_own_may_differentiate(networks, x):
    def slopes(network, x, target):
        x = x.clone().requires_grad_()
        scores = target(network(x))
        found = [torch.autograd.grad(scores[:, t].sum(), x, retain_graph=True)[0] for t in range(scores.shape[1])]
        return torch.stack(found, 1).abs().mean(2)

    def named(network, x, target):
        scores = target(network(x.clone().requires_grad_()))  # with its graph
        return Attribution(scores[..., None, None].expand(-1, -1, *x.shape[2:]), {"scores": scores})

    found = dubium.explain(networks, x, method=named)
    assert not found.maps["total"].requires_grad
    assert not found.extras["scores"]["total"].requires_grad

    for of in ({"method": slopes}, {"relevance": slopes}, {"relevance": slopes, "classes": 2}):
        expected = dubium.explain(networks, x, **{name: "grad" if of[name] is slopes else of[name] for name in of})
        maps = dubium.explain(networks, x, **of).maps["total"]
        torch.testing.assert_close(maps, expected.maps["total"])
        assert not maps.requires_grad


def test_what_a_method_of_ones_own_raises_is_said_to_be_its(networks, x):
    def squares(network, x, target):
        raise TypeError("no squares today")

    for of in ({"method": squares}, {"relevance": squares, "classes": 2}):
        words = r"The method squares raised TypeError in test_own_methods\.py, line \d+: no squares today"
        with pytest.raises(OptionError, match=words) as raised:
            dubium.explain(networks, x, **of)
        assert isinstance(raised.value.__cause__, TypeError)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.int64, torch.bool])
def test_maps_of_any_type_of_numbers_become_those_of_the_images(dtype, networks, x):
    def halves(network, x, target):
        maps = (x.sum(1)[:, None] > 0.5).expand(-1, target(network(x)).shape[1], -1, -1)
        return Attribution(maps.to(dtype), {"size": maps.double().sum((2, 3)), "count": maps.sum((2, 3))})

    exact = (x.sum(1) > 0.5).to(x.dtype)
    found = dubium.explain(networks, x, method=halves)
    assert torch.equal(found.maps["total"], exact)
    assert found.maps["total"].dtype == found.extras["size"]["total"].dtype == x.dtype
    assert found.extras["count"]["total"].dtype == torch.int64
    for options in ({}, {"classes": 2}):
        plain = dubium.explain(networks, x, relevance=lambda *args: halves(*args).maps.to(x.dtype), **options)
        torch.testing.assert_close(dubium.explain(networks, x, relevance=halves, **options).maps, plain.maps)


@pytest.mark.parametrize(
    ("maps", "extra", "message"),
    [
        (torch.zeros(4, 3, 8, 8, dtype=torch.complex64), None, r"returned torch\.complex64 \(4, 3, 8, 8\); maps"),
        (torch.zeros(4, 3, 8, 8), torch.zeros(4), r"returned \(4,\) as 'more'; a tensor \(4, 3, \.\.\.\) is needed"),
        (torch.zeros(4, 3, 8, 8), [1.0], r"returned list as 'more'; a tensor \(4, 3, \.\.\.\) is needed"),
    ],
)
def test_maps_and_extras_that_are_none_are_refused(maps, extra, message, networks, x):
    def wrong(network, x, target):
        return maps if extra is None else Attribution(maps, {"more": extra})

    with pytest.raises(OutputError, match=message):
        dubium.explain(networks, x[:4], method=wrong)


def test_maps_that_fit_no_image_are_refused_where_classes_differ_by_image(networks, x):
    rows = iter([torch.zeros(1, 2, 8, 8), *[torch.zeros(3)] * len(x)])
    for given in ([1.0], torch.zeros(2, 2, 8, 8), torch.zeros(8), rows):

        def wrong(network, x, target, given=given):
            return next(given) if given is rows else given

        with pytest.raises(OutputError, match=r"wrong returned .*; maps .* are needed"):
            dubium.explain(networks, x, relevance=partial(wrong), classes=2)


def test_a_loader_given_to_explain_is_sent_to_explain_dataset(x):
    for given in (
        DataLoader(Samples(x, lambda image, _label: image)),
        Samples(x, lambda image, _label: image),
        "photos",
    ):
        with pytest.raises(ImagesTypeError, match=r"dubium\.explain_dataset"):
            check_images(given)


def test_a_function_that_is_called_like_a_method_of_ours_is_the_users(networks, x):
    def edges(network, x, target):
        return brightest(network, x, target)

    maps = dubium.explain(networks, x, method=edges, kinds="total").maps["total"]
    torch.testing.assert_close(maps, x.sum(1))  # as they are: those of `edges`, the control, are scaled to the score


def test_a_relevance_of_ones_own_may_return_an_attribution_where_classes_differ_by_image(networks, x):
    def named(network, x, target):
        return Attribution(brightest(network, x, target), {})

    expected = dubium.explain(networks, x, relevance=brightest, classes=2).maps["total"]
    torch.testing.assert_close(dubium.explain(networks, x, relevance=named, classes=2).maps["total"], expected)


def test_methods_are_labelled_by_name_and_options():
    found = label_methods(["grad", "ig:steps=3", brightest, (brightest, {"power": 2.0})], 1)
    assert [method.label for method in found] == [
        "grad",
        "ig:steps=3",
        "brightest",
        "brightest:power=2.0",
        *CONTROL_NAMES,
    ]
    with pytest.raises(OptionError, match="Two of the methods"):
        label_methods([brightest, brightest], 1)
    with pytest.raises(UnknownNameError, match="pwer"):
        label_methods([(brightest, {"pwer": 2.0})], 1)


def test_evaluate_gives_what_the_command_gives(tmp_path):
    options = {"scale": "smoke", "images": 4, "step": 5.0}
    mine = dubium.evaluate("demo", "demo", ["grad", brightest], out=tmp_path / "python", **options)
    words = ["evaluate", "blurring", "demo", "--methods", "grad", "--scale", "smoke", "--images", "4", "--step", "5"]
    found = CliRunner().invoke(app, [*words, "--out", str(tmp_path / "command")])
    assert found.exit_code == 0, found.output
    theirs = json.loads((tmp_path / "command" / "summary.json").read_text())
    assert mine["results"]["grad"] == theirs["results"]["grad"]
    assert mine["results"].keys() == theirs["results"].keys() | {"brightest"}
    assert json.loads((tmp_path / "python" / "summary.json").read_text())["results"] == mine["results"]
    assert {"summary.json", "index.html", "results.csv", "comparisons.csv"} <= {
        file.name for file in (tmp_path / "python").iterdir()
    }


def test_evaluate_takes_images_in_memory_and_outputs_that_are_no_tensors(networks, x):
    options = {"methods": ["grad"], "scale": "smoke", "images": 3, "step": 10.0}
    plain = dubium.evaluate(networks, x, **options)
    wrapped = [Pair(network).eval() for network in networks]
    for posterior, given in ((wrapped, {}), (wrapped, {"output": "logits"})):
        found = dubium.evaluate(posterior, (x, torch.zeros(12, dtype=torch.long)), **options, **given)
        for metric, cell in plain["results"]["grad"].items():
            assert found["results"]["grad"][metric]["value"] == pytest.approx(cell["value"], rel=1e-5)
    with pytest.raises(dubium.errors.NetworkStateError, match="training mode"):
        dubium.evaluate([network.train() for network in networks], x, **options)


FORMS = {
    "pairs": lambda image, label: (image, label),
    "dicts": lambda image, label: {"pixel_values": image, "labels": torch.tensor(label)},
    "pictures": lambda image, label: (Image.fromarray((image[0] * 255).round().byte().numpy()), label),
}


@pytest.mark.parametrize("form", FORMS)
def test_torch_datasets_and_loaders_become_datasets(form, x):
    samples = Samples((x * 255).round() / 255, FORMS[form])
    for given in (samples, DataLoader(samples, batch_size=5, shuffle=True)):
        data = as_dataset(given)
        torch.testing.assert_close(data.batch(slice(None)), samples.x)
        assert data.labels.tolist() == [index % 3 for index in range(12)]
    assert as_dataset(Samples(x, lambda image, _label: image)).labels is None


def test_data_that_is_no_images_is_refused(x):
    class Endless(IterableDataset):
        def __iter__(self):
            return iter(x)

    with pytest.raises(ImagesTypeError, match="Endless"):
        as_dataset(Endless())
    with pytest.raises(ImagesError, match="different shapes"):
        as_dataset(Samples([x[0], x[0, :, :4]], FORMS["pairs"]))
    with pytest.raises(ImagesError, match="labels"):
        as_dataset((x, torch.zeros(3, dtype=torch.long)))
    with pytest.raises(ImagesTypeError, match="a tensor of shape"):
        as_dataset(Samples(x[:, 0], FORMS["pairs"]))


def test_explain_dataset_takes_class_names_as_explain_does(tmp_path, networks, x):
    given = {"method": "grad", "top": 1, "class_names": {2: "c", 0: "a", 1: "b"}}
    for _ in range(2):
        results = dubium.explain_dataset(networks, x, tmp_path, **given)
    assert results.about["classes"] == ["a", "b", "c"]
    with pytest.raises(OptionError, match="class_names is a str; a list of names"):
        dubium.explain_dataset(networks, x, tmp_path / "text", class_names="abc")


def test_explain_dataset_is_explain_image_by_image(tmp_path, networks, x):
    loader = DataLoader(Samples(x, FORMS["pairs"]), batch_size=4)
    options = {"top": 3, "kinds": ["epistemic"], "class_names": ["a", "b", "c"]}
    results = dubium.explain_dataset(networks, loader, tmp_path, **options)
    expected = dubium.explain(networks, x, kinds="epistemic")
    assert len(results) == 12
    assert results.explained_count() == 3
    best = expected.scores["epistemic"].argsort(descending=True)[:3].tolist()
    rows = {row.id: row for row in open_results(tmp_path).rows(results.explained)}
    assert sorted(rows) == sorted(best)
    for index, row in rows.items():
        torch.testing.assert_close(torch.tensor(row.map_epistemic), expected.maps["epistemic"][index])
        assert row.label == index % 3
    again = dubium.explain_dataset(networks, loader, tmp_path, **options)
    assert len(again) == 12
    with pytest.raises(OptionError, match="register_method"):
        dubium.explain_dataset(networks, loader, tmp_path / "other", method=brightest)


def test_changed_samples_are_not_taken_for_the_old_ones(tmp_path, networks, x):
    dubium.explain_dataset(networks, Samples(x, FORMS["pairs"]), tmp_path, top=1)
    for other in (Samples(x + 0.01, FORMS["pairs"]), Samples(x, lambda image, label: (image, 2 - label))):
        with pytest.raises(dubium.errors.DubiumError, match=str(tmp_path)):
            dubium.explain_dataset(networks, other, tmp_path, top=1)


MODULE = """
import torch
from torch import nn

def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 3))

def data():
    x = torch.rand(9, 1, 8, 8, generator=torch.Generator().manual_seed(1))
    return [(image, index % 3) for index, image in enumerate(x)]
"""


def test_the_command_line_takes_own_networks_data_and_methods(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own_things.py").write_text(MODULE)
    for number in (0, 1):
        torch.manual_seed(number)
        torch.save(nn.Sequential(nn.Flatten(), nn.Linear(64, 3)).state_dict(), tmp_path / f"{number}.pt")
    common = ["--dataset", "own_things:data"]
    words = ["evaluate", "blurring", *common, "--scale", "smoke", "--images", "3", "--step", "10", "--methods", "grad"]
    one = CliRunner().invoke(app, [*words, "own_things:network@0.pt,1.pt", "--out", "one"])
    two = CliRunner().invoke(
        app, [*words, "--posterior", "own_things:network", "--weights", "0.pt", "1.pt", "--out", "two"]
    )
    assert (one.exit_code, two.exit_code) == (0, 0), one.output + two.output
    first, second = (json.loads((tmp_path / name / "summary.json").read_text())["results"] for name in ("one", "two"))
    assert first == second
    found = CliRunner().invoke(app, ["explain", "own_things:network@*.pt", *common, "--top", "2", "--out", "three"])
    assert found.exit_code == 0, found.output
    assert open_results(tmp_path / "three").explained_count() == 2
    wrong = CliRunner().invoke(app, ["explain", "own_things:network@none*.pt", *common, "--out", "four"])
    assert wrong.exit_code == 2
    assert "none*.pt" in wrong.output


def test_images_of_a_dubium_dataset_stay_as_they_are(x):
    data = Images(x, None, (), "mine", "all")
    assert as_dataset(data) is data


def test_an_option_of_both_ua_backprop_and_its_relevance_is_refused():
    def relevance(network, x, target, *, normalize=False):
        return x.mean(1, keepdim=True).expand(-1, target(network(x)).shape[1], -1, -1)

    networks, x = ensemble(small_cnn), images(2)
    with pytest.raises(OptionError, match="'normalize' is an option of ua-backprop and of its relevance relevance"):
        dubium.explain(networks, x, relevance=relevance, normalize=True)
    dubium.explain(networks, x, relevance=relevance)


def test_explain_dataset_takes_a_folder_of_images_of_several_sizes(networks, tmp_path):
    names, sizes = ["a", "b", "c"], [(8, 8), (12, 9), (20, 16), (8, 8)]
    for index, (height, width) in enumerate(sizes):
        folder = tmp_path / "photos" / names[index % 3]
        folder.mkdir(parents=True, exist_ok=True)
        pixels = torch.randint(0, 256, (height, width), generator=torch.Generator().manual_seed(index))
        Image.fromarray(pixels.byte().numpy()).save(folder / f"{index}.png")
    given = {"method": "grad", "kinds": "epistemic", "class_names": names}
    with pytest.raises(OptionError, match=r"differ in size.*input_shape=\(3, 224, 224\) in Python"):
        dubium.explain_dataset(networks, tmp_path / "photos", tmp_path / "unsaid", **given)
    results = dubium.explain_dataset(
        networks, str(tmp_path / "photos"), tmp_path / "out", input_shape=(1, 8, 8), **given
    )
    rows = sorted(results.rows(), key=lambda row: row.path)
    assert [(row.path.split("photos")[1], row.label) for row in rows] == [
        ("/a/0.png", 0), ("/a/3.png", 0), ("/b/1.png", 1), ("/c/2.png", 2),
    ]  # fmt: skip
    x = torch.randint(0, 256, (1, 1, 8, 8), generator=torch.Generator().manual_seed(0)) / 255
    assert rows[0].epistemic == pytest.approx(float(dubium.uncertainty(networks, x).scores["epistemic"]), rel=1e-4)


@pytest.mark.parametrize("data", [42, None, object()])
def test_what_is_no_dataset_is_refused_by_name(data, networks, tmp_path):
    with pytest.raises(ImagesTypeError, match=f"The data is a {type(data).__name__}; a tensor"):
        dubium.explain_dataset(networks, data, tmp_path)


@pytest.mark.parametrize("form", [lambda m: m.float(), lambda m: 255 * m.byte(), lambda m: m.numpy(), lambda m: m])
def test_masks_are_taken_in_any_numbers(form, networks, x):
    masks = torch.zeros(12, 8, 8, dtype=torch.bool)
    masks[:, 2:4, 3:6] = True
    exact = dubium.evaluate(networks, x, ["grad"], "masks", masks=masks, scale="smoke")
    found = dubium.evaluate(networks, x, ["grad"], "masks", masks=form(masks), scale="smoke")
    assert found["results"] == exact["results"]


@pytest.mark.parametrize("protocol", ["causes", "mitigation"])
def test_images_without_labels_are_told_how_to_have_them(protocol, networks, x):
    with pytest.raises(OptionError, match=r"^The images have no labels, so that n.* give \(images, labels\)"):
        dubium.evaluate(None if protocol == "causes" else networks, x, ["grad"], protocol, scale="smoke")


class Augmented(Samples):
    def __getitem__(self, index):
        image, label = super().__getitem__(index)
        return (image.flip(-1) if torch.rand(()) < 0.5 else image), label


def test_a_dataset_with_a_random_transform_is_refused_before_anything_is_computed(networks, x, tmp_path):
    with pytest.raises(ImagesError, match=r"Sample \d+ .* another image each time.*a random transform"):
        dubium.explain_dataset(networks, Augmented(x, FORMS["pairs"]), tmp_path)
    assert not (tmp_path / "run.json").exists()


class Damaged(Samples):
    error = OSError

    def __getitem__(self, index):
        if index == 3:
            raise self.error("image file is truncated")
        return super().__getitem__(index)


def test_samples_that_cannot_be_read_are_skipped_as_files_are_and_others_are_named(networks, x, tmp_path):
    with pytest.warns(UserWarning, match="1 file could not be read: Sample 3"):
        results = dubium.explain_dataset(networks, Damaged(x, FORMS["pairs"]), tmp_path / "out", method="grad", top=2)
    assert len(results) == 11
    assert results.skipped() == [{"path": "sample 3", "reason": SKIPPED}]
    for error in (ValueError, ZeroDivisionError, IndexError):
        wrong = type("Wrong", (Damaged,), {"error": error})(x, FORMS["pairs"])
        with pytest.raises(ImagesError, match=f"Sample 3 of the dataset raised {error.__name__}: image file is"):
            dubium.explain_dataset(networks, wrong, tmp_path / error.__name__)


SKIPPED = "Sample 3 of the dataset cannot be read: image file is truncated"


def test_results_of_other_settings_are_deleted_where_fresh_says_so(networks, x, tmp_path):
    first = dubium.explain_dataset(networks, x, tmp_path, method="grad", top=1)
    with pytest.raises(OptionError, match=r"--fresh \(fresh=True in Python\)"):
        dubium.explain_dataset(networks, x[:5], tmp_path, method="grad", top=1)
    assert len(first) == 12
    assert len(dubium.explain_dataset(networks, x[:5], tmp_path, method="grad", top=1, fresh=True)) == 5


@pytest.mark.parametrize(
    "method",
    [blur_path, partial(blur_path, passes=8), "dubium.attribution:blur_path"],
    ids=["function", "partial", "path"],
)
def test_a_builtin_that_is_given_as_a_function_is_the_builtin(networks, x, method):
    expected = dubium.explain(networks, x, method="blur-path", passes=8)
    options = {} if isinstance(method, partial) else {"passes": 8}
    result = dubium.explain(networks, x, method=method, **options)
    assert (result.method, result.options) == (expected.method, expected.options)
    for kind in result.maps:
        assert torch.equal(result.maps[kind], expected.maps[kind])


@pytest.mark.parametrize("value", ["false", 0.5])
def test_normalize_is_true_or_false(networks, x, value):
    with pytest.raises(OptionError, match="True or False is needed"):
        dubium.explain(networks, x, normalize=value)
    assert dubium.explain(networks, x, normalize=None).options["normalize"] is True  # the default


def write_folders(folder, names, sizes=(8,)):
    for number, name in enumerate(names):
        (folder / name).mkdir(parents=True)
        for index in range(4):
            size = sizes[(number + index) % len(sizes)]
            Image.new("L", (size, size), 40 * number + 9 * index).save(folder / name / f"{index}.png")
    return folder


def test_evaluate_takes_a_folder_of_several_sizes(networks, tmp_path):
    folder = write_folders(tmp_path / "photos", ["cat", "dog"], sizes=(8, 12))
    with pytest.raises(ImagesError, match="input_shape= in Python"):
        dubium.evaluate(networks, folder, ["grad"], scale="smoke")
    found = dubium.evaluate(networks, folder, ["grad"], scale="smoke", images=4, step=5.0, input_shape=(1, 8, 8))
    assert "grad" in found["results"]
    with pytest.raises(OptionError, match="images in memory are taken as they are"):
        dubium.evaluate(networks, torch.rand(4, 1, 8, 8), ["grad"], scale="smoke", input_shape=(1, 8, 8))


def test_folders_that_are_taken_as_classes_by_their_order_are_named(networks, x, tmp_path):
    count = dubium.uncertainty(networks, x[:1]).probs.shape[1]
    names = ["cat", "dog", "misc", "owl", "pig", "yak"][:count]
    folder = write_folders(tmp_path / "photos", names)
    words = f"The folders are taken as the networks' classes, in this order: {','.join(names)}"
    found = dubium.evaluate(networks, folder, ["grad"], scale="smoke", images=4, step=5.0)
    assert any(words in note for note in found["notes"])
    with pytest.warns(UserWarning, match=words):
        dubium.explain_dataset(networks, folder, tmp_path / "out", method="grad", top=1)
    dubium.explain_dataset(networks, folder, tmp_path / "named", method="grad", top=1, class_names=names)  # no warning
    found = dubium.evaluate(
        networks, folder, ["grad"], scale="smoke", images=4, step=5.0, class_names=[*names[1:], "bat"]
    )
    assert any("is called cat, as " in note for note in found["notes"])


@pytest.mark.parametrize("call", [dubium.evaluate, dubium.explain_dataset])
def test_a_processors_output_is_told_to_give_its_images(networks, x, tmp_path, call):
    given = [tmp_path] if call is dubium.explain_dataset else [["grad"]]
    with pytest.raises(
        ImagesTypeError, match=r"a dict of pixel_values\. Give one of its parts: .* data\['pixel_values'\]"
    ):
        call(networks, {"pixel_values": x}, *given)
