"""Posteriors, VAEs, checkpoints and explanations that were made to hang us, to fill the memory, or to break us."""

import io
import json
import os
import zipfile

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import dubium
from dubium.errors import FileFormatError
from dubium.explanation import Explanation
from dubium.models import build, load_vae, save_vae, vae_dense
from dubium.posteriors import Gaussian, MCDropout, load_posterior, load_weights, save_posterior
from dubium.posteriors.files.record import FILE
from dubium.seals import MARK
from dubium.training.checkpoint import TrainingState, read_checkpoint, restore_state, save_state
from tests.limits import IS_LINUX, assert_refused

pytestmark = pytest.mark.skipif(not IS_LINUX, reason="processes are forked and measured as Linux does it")
OPTIONS = {"filters": 3, "units": 5, "size": 10}
CNN = {"name": "cnn", "options": OPTIONS}
DEEP = b"[" * 100_000
SMALL = 2**27


def small():
    return build("cnn", **OPTIONS).eval()


@pytest.fixture
def folder(tmp_path):
    save_posterior([small(), small()], tmp_path / "run", architecture=CNN)
    return tmp_path / "run"


def edit(folder, file=FILE, **changes):
    content = json.loads((folder / file).read_text())
    (folder / file).write_text(json.dumps(content | changes))


# posteriors


@pytest.mark.parametrize("samples", [10**12, 10_001, 1e3, True])
@pytest.mark.parametrize("make", [MCDropout, lambda network: Gaussian(network, {})])
def test_a_record_asks_for_a_bounded_number_of_samples(make, samples, tmp_path):
    save_posterior(make(small()), tmp_path, architecture=CNN)
    edit(tmp_path, sampling={"samples": samples, "seed": 0})
    assert_refused(lambda: list(load_posterior(tmp_path)), "posterior.json: 'sampling'", seconds=10)


@pytest.mark.parametrize(
    "changes",
    [
        {"sampling": {"samples": 2, "seed": 0, "more": 1}, "members": ["member-0.safetensors"]},
        {"sampling": {"samples": 2, "seed": 2**70}, "members": ["member-0.safetensors"]},
        {"input_shape": [3, 10**6, 10**6]},
        {"normalisation": {"mean": [10**400], "std": [1]}},
        {"normalisation": {"mean": [float("nan")], "std": [1]}},
        {"normalisation": {"mean": [0], "std": [1e-60]}},
        {"members": ["a\0.safetensors"]},
        {"members": [f"{'a' * 5000}.safetensors"]},
        {"architecture": {"name": ["cnn"]}},
        {"architecture": {"name": {}}},
        {"architecture": {"name": "cnn", "options": {"filters": -3}}},
        {"architecture": {"name": "cnn", "options": {"filters": "3"}}},
        {"architecture": {"name": "cnn", "options": {"filters": 2.5}}},
        {"architecture": {"name": "cnn", "options": {"dropout": 7}}},
        {"architecture": {"name": "cnn", "options": {"dropout": float("nan")}}},
        {"architecture": {"name": "cnn", "options": {"units": 10**15}}},
        {"architecture": {"name": "cnn", "options": {"units": 90_000, "filters": 90_000}}},
        {"architecture": {"name": "cnn", "options": {"size": 0}}},
        {"architecture": {"name": "cnn", "options": [1]}},
        {"architecture": {"name": "cnn", "options": {"size": [28, 28]}}},
        {"architecture": {"name": "cifar-resnet", "options": {"depth": 6 * 10**8 + 2}}},
        {"architecture": {"name": "vae-dense", "options": {"hidden": [1] * 10**5}}},
        {"classes": ["\ud800"]},
    ],
)
def test_a_record_of_nonsense_is_refused_by_name_and_at_once(changes, folder):
    edit(folder, **changes)
    assert_refused(lambda: load_posterior(folder), "", seconds=15, most=2**28)
    with pytest.raises(FileFormatError, match=r"posterior\.json|safetensors"):
        load_posterior(folder)


def test_a_record_that_nests_deeply_is_refused(folder):
    (folder / FILE).write_bytes(DEEP)
    with pytest.raises(FileFormatError, match=r"posterior\.json is damaged"):
        load_posterior(folder)


@pytest.mark.parametrize("name", [FILE, "member-0.safetensors"])
@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("/dev/zero")])
def test_a_pipe_or_a_device_in_a_posteriors_folder_is_refused(make, name, folder):
    (folder / name).unlink()
    make(folder / name)
    assert_refused(lambda: load_posterior(folder), f"{name} cannot be read", seconds=5, most=SMALL)


@pytest.mark.parametrize("dtype", [torch.complex64, torch.float8_e4m3fn])
def test_weights_of_other_numbers_are_refused(dtype, folder):
    tensors = {name: tensor.to(dtype) for name, tensor in small().state_dict().items()}
    save_file(tensors, folder / "member-0.safetensors")
    edit(folder, sha256={})
    with pytest.raises(FileFormatError, match=r"member-0\.safetensors.*is of type"):
        load_posterior(folder)


def test_mc_dropout_of_a_network_without_dropout_names_the_file(tmp_path):
    save_posterior(MCDropout(small()), tmp_path, architecture=CNN)
    edit(tmp_path, architecture={"name": "cnn", "options": {**OPTIONS, "dropout": 0.0}})
    with pytest.raises(FileFormatError, match=r"member-0\.safetensors is not of a network with dropout"):
        load_posterior(tmp_path)


def test_a_checkpoint_that_grows_is_refused(tmp_path):
    torch.save(nn.Linear(2, 2).state_dict(), tmp_path / "a.pt")
    with zipfile.ZipFile(tmp_path / "a.pt") as old:
        members = {info.filename: old.read(info) for info in old.infolist()}
    with zipfile.ZipFile(tmp_path / "a.pt", "w", zipfile.ZIP_DEFLATED, compresslevel=1) as new:
        for name, content in members.items():
            new.writestr(name, bytes(2**29) if name.endswith("data/0") else content)
    assert_refused(lambda: load_weights(nn.Linear(2, 2), tmp_path / "a.pt"), "a.pt", most=SMALL)


def test_a_checkpoint_without_names_is_refused(tmp_path):
    torch.save({1: torch.zeros(2)}, tmp_path / "a.pt")
    with pytest.raises(FileFormatError, match=r"a\.pt"):
        load_weights(nn.Linear(2, 2), tmp_path / "a.pt")


# VAEs


@pytest.fixture
def vae_folder(tmp_path):
    save_vae(vae_dense(size=8, hidden=(6,)), tmp_path, architecture="vae-dense", options={"size": 8, "hidden": [6]})
    return tmp_path


@pytest.mark.parametrize(
    "changes",
    [
        {"architecture": {"name": ["vae-dense"], "options": {}}},
        {"architecture": {"name": "vae-dense", "options": {"hidden": [90_000, 90_000]}}},
        {"architecture": {"name": "vae-dense", "options": {"latent": -1}}},
        {"architecture": {"name": "vae-conv", "options": {"size": 0}}},
        {"architecture": None},
        {"format": {}},
        {"training": 3},
    ],
)
def test_a_vae_of_nonsense_is_refused_by_name(changes, vae_folder):
    edit(vae_folder, "vae.json", **changes)
    assert_refused(lambda: load_vae(vae_folder), "vae", seconds=15, most=2**28)


def test_damage_to_a_vae_is_noticed(vae_folder):
    (vae_folder / "vae.json").write_bytes(DEEP)
    with pytest.raises(FileFormatError, match=r"vae\.json is damaged"):
        load_vae(vae_folder)


def test_a_flipped_bit_in_a_vae_is_noticed(vae_folder):
    flip(vae_folder / "vae.safetensors", -5)
    with pytest.raises(FileFormatError, match=r"vae\.safetensors is damaged"):
        load_vae(vae_folder)


def flip(path, at):
    content = bytearray(path.read_bytes())
    content[at] ^= 4
    path.write_bytes(content)


# checkpoints


@pytest.fixture
def checkpoint(tmp_path):
    network = small()
    save_state(tmp_path / "c.safetensors", network, torch.optim.SGD(network.parameters(), 0.1), TrainingState(3, [{}]))
    return tmp_path / "c.safetensors"


def test_a_flipped_bit_in_a_checkpoint_is_noticed(checkpoint):
    assert read_checkpoint(checkpoint)[1]["epochs"] == 3
    flip(checkpoint, -5)
    with pytest.raises(FileFormatError, match=r"c\.safetensors is damaged.*delete it to start again"):
        read_checkpoint(checkpoint)


@pytest.mark.parametrize(
    ("tensors", "header"),
    [
        ({"odd.weight": 1}, {"epochs": 1, "history": []}),
        ({"optimizer.x.step": 1}, {"epochs": 1, "history": []}),
        ({}, {"epochs": "1", "history": []}),
        ({}, {"epochs": -1, "history": []}),
        ({}, {"epochs": 1, "history": {}}),
        ({}, {"epochs": 1, "history": [1]}),
        ({}, {"history": []}),
        ({}, []),
        ({}, None),
    ],
)
def test_a_checkpoint_of_nonsense_is_refused(tensors, header, tmp_path):
    stored = {name: torch.zeros(shape) for name, shape in tensors.items()} or {"kept.a": torch.zeros(1)}
    metadata = None if header is None else {"progress": json.dumps(header)}
    save_file(stored, tmp_path / "c.safetensors", metadata=metadata)
    network = nn.Linear(2, 2)
    with pytest.raises(FileFormatError, match=r"c\.safetensors"):
        restore_state(tmp_path / "c.safetensors", network, torch.optim.SGD(network.parameters()))


def test_a_checkpoint_of_an_older_dubium_has_no_seal_and_is_read(tmp_path):
    save_file({"kept.a": torch.ones(1)}, tmp_path / "c.safetensors", {"progress": '{"epochs": 2, "history": []}'})
    assert read_checkpoint(tmp_path / "c.safetensors")[1] == {"epochs": 2, "history": []}


# explanations


@pytest.fixture
def explanation(tmp_path):
    zeros = {"total": torch.zeros(2, 4, 4)}
    result = Explanation({"total": torch.zeros(2)}, zeros, torch.rand(2, 3), torch.rand(5, 2, 3), "grad", {"a": 1})
    result.save(tmp_path / "e.safetensors")
    return tmp_path / "e.safetensors"


def test_a_flipped_bit_in_an_explanation_is_noticed_wherever_it_is(explanation):
    whole = explanation.read_bytes()
    for at in range(0, len(whole), 7):
        flip(explanation, at)
        if MARK in explanation.read_bytes():
            with pytest.raises(FileFormatError, match=r"e\.safetensors"):
                dubium.load(explanation)
        explanation.write_bytes(whole)
    assert dubium.load(explanation).options == {"a": 1}


@pytest.mark.parametrize(
    "changes",
    [
        {"method": None},
        {"method": 3},
        {"method": ""},
        {"options": []},
        {"input_shape": None},
        {"input_shape": ["a"]},
        {"input_shape": 3},
        {"format": [1]},
        {"format": None},
    ],
)
def test_an_explanation_without_a_method_or_with_nonsense_is_refused(changes, tmp_path):
    about = {"format": 1, "dubium": "0", "method": "grad", "options": {}, "input_shape": [2, 1, 4, 4]} | changes
    tensors = {"probs": torch.rand(2, 3), "members": torch.rand(5, 2, 3)}
    save_file(tensors, tmp_path / "e.safetensors", {"dubium": json.dumps(about)})
    with pytest.raises(FileFormatError, match=r"e\.safetensors"):
        dubium.load(tmp_path / "e.safetensors")


@pytest.mark.parametrize(
    "metadata", [{"dubium": "[" * 10**5}, {"dubium": "[]"}, {"dubium": "3"}, {"other": "{}"}, None]
)
def test_metadata_of_others_is_refused(metadata, tmp_path):
    save_file({"probs": torch.zeros(1, 2)}, tmp_path / "e.safetensors", metadata)
    with pytest.raises(FileFormatError, match=r"e\.safetensors"):
        dubium.load(tmp_path / "e.safetensors")


@pytest.mark.parametrize(
    "tensors",
    [
        {"probs": torch.rand(2), "members": torch.rand(5, 2)},
        {"probs": torch.rand(2, 3), "members": torch.rand(5, 3, 3)},
        {"probs": torch.rand(2, 3), "members": torch.rand(5, 2, 3), "maps/total": torch.rand(3, 4, 4)},
        {"probs": torch.rand(2, 3), "members": torch.rand(5, 2, 3), "scores/total": torch.rand(2, 1)},
        {"probs": torch.zeros(2, 3, dtype=torch.int64), "members": torch.zeros(5, 2, 3, dtype=torch.int64)},
    ],
)
def test_tensors_that_do_not_fit_each_other_are_refused(tensors, tmp_path):
    about = {"format": 1, "dubium": "0", "method": "grad", "options": {}, "input_shape": [2, 1, 4, 4]}
    save_file(tensors, tmp_path / "e.safetensors", {"dubium": json.dumps(about)})
    with pytest.raises(FileFormatError, match=r"e\.safetensors"):
        dubium.load(tmp_path / "e.safetensors")


def test_an_explanation_of_an_older_dubium_is_read(tmp_path):
    about = {"format": 1, "dubium": "0", "method": "grad", "options": {}, "input_shape": [2, 1, 4, 4]}
    tensors = {"probs": torch.rand(2, 3), "members": torch.rand(5, 2, 3)}
    save_file(tensors, tmp_path / "e.safetensors", {"dubium": json.dumps(about)})
    assert torch.equal(dubium.load(tmp_path / "e.safetensors").probs, tensors["probs"])


def test_a_header_of_a_hundred_megabytes_is_not_parsed(tmp_path):
    stream = io.BytesIO()
    stream.write((2**26).to_bytes(8, "little") + b"{" + b" " * (2**26 - 2) + b"}")
    (tmp_path / "e.safetensors").write_bytes(stream.getvalue())
    assert_refused(lambda: dubium.load(tmp_path / "e.safetensors"), "e.safetensors", most=SMALL)
