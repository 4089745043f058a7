"""Whole protocols on posteriors whose every number is known."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dubium.cli.evaluate import app
from dubium.data import Dataset
from dubium.errors import OptionError, UnknownNameError
from dubium.evaluation.methods import parse_method, parse_methods
from dubium.evaluation.protocols import PROTOCOLS, Evaluation, run_protocol
from dubium.evaluation.protocols.blurring import BlurringOptions, evaluate_blurring
from dubium.evaluation.protocols.evaluation import metric_name, shard_slices
from dubium.evaluation.shards import ShardStore, file_name, method_shard
from dubium.ranking import most_uncertain
from dubium.registry import CONTROL_NAMES
from tests.evaluation.handmade import quarrel


def test_blurring_of_a_quarrel_over_one_pixel(tmp_path):
    x = torch.zeros(5, 1, 8, 8)
    x[[0, 2, 3], 0, 2, 3] = torch.tensor([0.8, 1.0, 0.9])  # the other two have no uncertainty
    data = Dataset(x, None, (), "quarrel", "test")
    evaluation = Evaluation(quarrel(), data, parse_methods(["grad"], 1), ("epistemic",), tmp_path)
    found = evaluate_blurring(evaluation, BlurringOptions(images=5, step=4.0))
    assert found["notes"] == ["2 images with no epistemic uncertainty are left out."]
    assert found["images"]["index"][:3] == [2, 3, 0]  # the most uncertain first
    exact = {"value": 1.0, "low": 1.0, "high": 1.0}
    assert found["results"]["grad"]["murr@2%"] == exact
    assert found["results"]["grad"]["murr@5%"] == exact
    assert found["results"]["grad"]["auc-urr@2%"]["value"] == pytest.approx(1 / 2)
    assert found["results"]["grad"]["auc-urr@5%"]["value"] == pytest.approx(1 / 4)
    assert found["images"]["values"]["grad"]["murr@5%"] == [1.0, 1.0, 1.0]
    assert found["curves"]["grad"]["5%"]["value"] == [0, 1, 1, 1]


def test_methods_are_parsed_once_each_with_the_control():
    parsed = parse_methods(["grad", " ua-backprop:rescale=none:tau2=.5", "grad"], 3)
    assert [method.label for method in parsed] == ["grad", "ua-backprop:rescale=none:tau2=.5", *CONTROL_NAMES]
    assert parsed[1].options == {"rescale": "none", "tau2": 0.5}
    assert "/" not in file_name(parse_method("grad", 1).label)


@given(st.text(max_size=8), st.text(max_size=8), st.sampled_from(["", "ig:start=[" + "0.5," * 60, "ä" * 90]))
def test_two_labels_never_share_a_folder(a, b, before):
    a, b = before + a, before + b
    assert (file_name(a) == file_name(b)) == (a == b)
    assert not {"/", "\\", ":", "\0"} & set(file_name(a))
    assert len(file_name(a).encode()) <= 150


def test_methods_that_shared_a_folder_are_evaluated_apart(tmp_path):
    methods = {label: {label: 1} for label in ("a:b", "a_b")}
    for _ in range(2):  # also when a killed evaluation goes on
        store = ShardStore.open(tmp_path, {"methods": methods})
        found = {
            label: store.compute_values(method_shard(label, 0), lambda label=label: {"label": label})
            for label in methods
        }
        assert found == {label: {"label": label} for label in methods}


def test_a_folder_of_an_earlier_version_goes_on_under_its_new_name(tmp_path):
    (tmp_path / "settings.json").write_text('{"methods": {"captum.attr:Occlusion:shape=[1,4]": {}, "grad": {}}}')
    old = tmp_path / "shards" / "captum.attr_Occlusion_shape=_1_4_"
    old.mkdir(parents=True)
    (old / "00000.json").write_text('{"curves": 1}')
    label = "captum.attr:Occlusion:shape=[1,4]"
    store = ShardStore.open(tmp_path, {"methods": {label: {}}})
    assert store.compute_values(method_shard(label, 0), dict) == {"curves": 1}
    assert not old.exists()


def test_a_new_method_does_not_take_the_folder_that_an_earlier_version_gave_another(tmp_path):
    (tmp_path / "settings.json").write_text('{"methods": {"a_b": {}}}')
    (tmp_path / "shards" / "a_b").mkdir(parents=True)
    (tmp_path / "shards" / "a_b" / "00000.json").write_text('{"of": "a_b"}')
    store = ShardStore.open(tmp_path, {"methods": {"a:b": {}}})
    assert store.compute_values(method_shard("a:b", 0), lambda: {"of": "a:b"}) == {"of": "a:b"}
    assert store.read_values(method_shard("a_b", 0)) == {"of": "a_b"}


def test_a_folder_in_which_an_earlier_version_mixed_two_methods_is_refused(tmp_path):
    (tmp_path / "settings.json").write_text('{"methods": {"a:b": {}, "a_b": {}}}')
    (tmp_path / "shards" / "a_b").mkdir(parents=True)
    with pytest.raises(OptionError, match="'a_b' and 'a:b' in one place: it cannot be continued"):
        ShardStore.open(tmp_path, {"methods": {"a:b": {}}})
    (tmp_path / "shards" / "a~5fb").mkdir()  # this version's: each has its own
    ShardStore.open(tmp_path, {"methods": {"a:b": {}}})


def test_shards_cover_everything_once():
    named = [(method_shard("grad", rows.start).stem, rows.start, rows.stop) for rows in shard_slices(25)]
    assert named == [
        ("00000", 0, 10),
        ("00010", 10, 20),
        ("00020", 20, 25),
    ]


def test_the_most_uncertain_come_first_and_equal_ones_in_order():
    assert most_uncertain(torch.tensor([1.0, 3.0, 3.0, 2.0]), 3).tolist() == [1, 2, 3]


def test_the_plain_name_is_the_epistemic_kind():
    assert [metric_name("iou", kind) for kind in ("epistemic", "total")] == ["iou", "iou/total"]


def evaluation_of(x, out, labels=None):
    data = Dataset(x, labels, ("a", "b"), "quarrel", "test")
    return Evaluation(quarrel(), data, parse_methods(["grad"], 1), ("epistemic", "total"), out, other_data=data)


def test_every_protocol_of_the_table_can_be_run_by_its_name(tmp_path):
    x, labels = torch.rand(26, 1, 12, 12, generator=torch.Generator().manual_seed(0)), torch.arange(26) % 2
    for name in PROTOCOLS:
        options = {"masks": torch.ones(26, 12, 12, dtype=torch.bool)} if name == "masks" else {}
        summary = run_protocol(name, evaluation_of(x, tmp_path / name, labels), scale="smoke", **options)
        assert summary["protocol"] == name
        metrics = set(summary["results"]["grad"])
        assert {name.removesuffix("/total") for name in metrics if name.endswith("/total")} < metrics
        assert (tmp_path / name / "images.csv").exists()


def test_every_protocol_has_a_command():
    shown = [command for command in app.registered_commands if not command.hidden]
    commands = {command.name or command.callback.__name__ for command in shown}
    assert commands == (PROTOCOLS.keys() - {"masks"}) | {"all"}  # `anomaly --masks`


def test_maps_that_were_deleted_after_their_curves_were_computed_are_made_again(tmp_path):
    x = torch.zeros(3, 1, 8, 8)
    x[:, 0, 2, 3] = torch.tensor([0.8, 1.0, 0.9])
    evaluation = evaluation_of(x, tmp_path, torch.tensor([0, 1, 0]))
    run_protocol("blurring", evaluation, scale="smoke")
    whole = {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()}
    for file in [*tmp_path.glob("shards/grad/*.safetensors"), *tmp_path.glob("shards/*/*-truth.json")]:
        file.unlink()
    run_protocol("blurring", evaluation, scale="smoke")
    assert {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()} == whole


def test_an_unknown_protocol_or_option_is_named(tmp_path):
    evaluation = evaluation_of(torch.rand(4, 1, 8, 8), tmp_path)
    with pytest.raises(UnknownNameError, match=r"No protocol called .bluring.\. Did you mean .blurring."):
        run_protocol("bluring", evaluation)
    with pytest.raises(UnknownNameError, match=r"No option of this protocol called .boxes.\. Did you mean .box."):
        run_protocol("anomaly", evaluation, boxes=3)


def test_a_posterior_without_doubt_has_no_sanity_check(tmp_path):
    with pytest.raises(OptionError, match="no image to average over"):
        run_protocol("sanity", evaluation_of(torch.zeros(4, 1, 8, 8), tmp_path), scale="smoke")
