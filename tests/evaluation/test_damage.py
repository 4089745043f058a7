"""Folders of evaluations that are damaged, or that somebody else wrote."""

import json
import os

import pytest
import torch
from safetensors.torch import save_file

from dubium.errors import FileFormatError
from dubium.evaluation.shards import ShardStore, score_shard
from dubium.evaluation.summary import EvaluationSummary, read_summary
from dubium.report.evaluation import write_evaluation_page
from dubium.report.protocols import write_figures
from dubium.seals import MARK
from tests.limits import IS_LINUX, assert_refused

NAME = score_shard("total", 0)


@pytest.fixture
def store(tmp_path):
    return ShardStore.open(tmp_path, {"seed": 1})


def flip_everywhere(path, read, step=3):
    """Flip a bit of each `step`-th byte in turn: an error of ours, by name."""
    whole = path.read_bytes()
    for at in range(0, len(whole), step):
        content = bytearray(whole)
        content[at] ^= 1 << at % 8
        path.write_bytes(content)
        if MARK in content:
            with pytest.raises(FileFormatError, match=path.name):
                read()
    path.write_bytes(whole)
    return read()


def test_every_flipped_bit_in_values_is_noticed(store):
    store.compute_values(NAME, lambda: {"scores": [0.25, 3.0]})
    path = next(store.folder.rglob("00000.json"))
    assert flip_everywhere(path, lambda: store.read_values(NAME), 1) == {"scores": [0.25, 3.0]}


def test_every_flipped_bit_in_tensors_is_noticed(store):
    store.compute_tensors(NAME, lambda: {"maps": torch.ones(2, 3)})
    path = next(store.folder.rglob("00000.safetensors"))
    assert flip_everywhere(path, lambda: store.read_tensors(NAME), 1)["maps"].equal(torch.ones(2, 3))


def test_shards_of_an_older_dubium_are_read(store):
    folder = store.folder / "shards" / NAME.folder
    folder.mkdir(parents=True)
    (folder / f"{NAME.stem}.json").write_text('{"scores": [1.0]}')
    save_file({"maps": torch.ones(2)}, folder / f"{NAME.stem}.safetensors")
    assert store.read_values(NAME) == {"scores": [1.0]}
    assert store.read_tensors(NAME)["maps"].equal(torch.ones(2))


@pytest.mark.parametrize("content", [b"", b"[" * 10**5, b"\xff", b"3", b'{"values": {}}', b'{"seal": 1}', b"[]"])
def test_values_of_nonsense_are_refused(content, store):
    folder = store.folder / "shards" / NAME.folder
    folder.mkdir(parents=True)
    (folder / f"{NAME.stem}.json").write_bytes(content)
    with pytest.raises(FileFormatError, match=r"00000\.json"):
        store.compute_values(NAME, dict)


@pytest.mark.parametrize("content", [b"", b"rubbish" * 9, bytes(100), b"\x02" + bytes(7) + b"{}"])
def test_tensors_of_nonsense_are_refused(content, store):
    folder = store.folder / "shards" / NAME.folder
    folder.mkdir(parents=True)
    (folder / f"{NAME.stem}.safetensors").write_bytes(content)
    if content.endswith(b"{}"):
        assert store.read_tensors(NAME) == {}
        return
    with pytest.raises(FileFormatError, match=r"00000\.safetensors"):
        store.read_tensors(NAME)


@pytest.mark.skipif(not IS_LINUX, reason="processes are forked and measured as Linux does it")
@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("/dev/zero")])
def test_settings_that_are_a_pipe_or_a_device_are_refused(make, tmp_path):
    make(tmp_path / "settings.json")
    assert_refused(lambda: ShardStore.open(tmp_path, {}), "settings.json", seconds=5)


@pytest.mark.parametrize("methods", [3, True, 0.5, "grad", ["grad"]])
def test_settings_whose_methods_are_nonsense_are_refused_by_name(methods, tmp_path):
    (tmp_path / "settings.json").write_text(json.dumps({"methods": methods}))
    with pytest.raises(FileFormatError, match=r"settings\.json is damaged: its methods"):
        ShardStore.open(tmp_path, {"methods": {"grad": {"grad": 1}}})


def test_settings_with_infinity_are_refused_by_name_when_a_method_is_added(tmp_path):
    (tmp_path / "settings.json").write_text('{"methods": {"random": {"random": Infinity}}}')
    with pytest.raises(FileFormatError, match=r"settings\.json is damaged"):
        ShardStore.open(tmp_path, {"methods": {"grad": {"grad": 1}}})


@pytest.fixture
def summary(tmp_path):
    return EvaluationSummary("sanity", {"seed": 0}, {}, {}).write(tmp_path)


def test_every_flipped_bit_in_the_summary_is_noticed(summary, tmp_path):
    assert flip_everywhere(tmp_path / "summary.json", lambda: read_summary(tmp_path)) == summary


GOOD = {"protocol": "sanity", "settings": {}, "versions": {}, "results": {}, "notes": [], "comparisons": []}


@pytest.mark.parametrize(
    "changes",
    [
        {"protocol": 3},
        {"protocol": ["sanity"]},
        {"settings": []},
        {"results": {"grad": 3}},
        {"results": {"grad": {"aurr": {"value": "1"}}}},
        {"results": {"grad": {"aurr": {"value": 1, "low": None, "high": 1}}}},
        {"results": []},
        {"notes": 3},
        {"notes": [{}]},
        {"comparisons": [3]},
        {"comparisons": [{"metric": "aurr"}]},
        {"versions": [[]]},
        {"versions": {"torch": {}}},
        {"better": {"aurr": 3}},
    ],
)
def test_a_summary_of_nonsense_is_refused(changes, tmp_path):
    (tmp_path / "summary.json").write_text(json.dumps(GOOD | changes))
    for read in (read_summary, write_evaluation_page, write_figures):
        with pytest.raises(FileFormatError, match=r"summary\.json"):
            read(tmp_path)


def test_a_summary_that_nests_deeply_is_refused(tmp_path):
    (tmp_path / "summary.json").write_bytes(b"[" * 10**5)
    for read in (read_summary, write_evaluation_page):
        with pytest.raises(FileFormatError, match=r"summary\.json is damaged"):
            read(tmp_path)


def test_links_and_other_files_are_not_embedded_in_the_page(summary, tmp_path):
    secret = tmp_path.parent / "secret.txt"
    secret.write_text("TOPSECRET")
    (tmp_path / "figure.png").symlink_to(secret)
    page = write_evaluation_page(tmp_path).read_text()
    assert 'alt="figure"' not in page
    (tmp_path / "figure.png").unlink()
    (tmp_path / "figure.png").write_text("TOPSECRET")
    with pytest.raises(FileFormatError, match=r"figure\.png"):
        write_evaluation_page(tmp_path)


@pytest.mark.parametrize("protocol", ["blurring", "anomaly", "removal", "causes", "mitigation"])
def test_figures_of_a_folder_without_its_shards_are_an_error_of_ours(protocol, tmp_path):
    (tmp_path / "summary.json").write_text(json.dumps(GOOD | {"protocol": protocol}))
    with pytest.raises(FileFormatError):
        write_figures(tmp_path)
