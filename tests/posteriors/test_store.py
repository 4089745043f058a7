import hashlib
import json
import sys

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from dubium.errors import FileFormatError, OptionError, PosteriorError, UnknownNameError
from dubium.models import ARCHITECTURES, Normalized, build
from dubium.posteriors import Gaussian, MCDropout, WeightSamples, load_posterior, posterior_record, save_posterior
from dubium.posteriors.files.record import FILE
from tests.posteriors.cases import CASES, MARKED, SIZE, cnn

OPTIONS = {"filters": 3, "units": 5, "size": 10}
CNN = {"name": "cnn", "options": OPTIONS}


def small():
    return build("cnn", **OPTIONS).eval()


@pytest.fixture
def x():
    return torch.rand(2, 1, 10, 10, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def folder(tmp_path):
    save_posterior([small(), small()], tmp_path / "run", architecture=CNN)
    return tmp_path / "run"


def logits(posterior, x):
    return torch.stack([network(x) for network in posterior])


def edit(folder, **changes):
    content = json.loads((folder / FILE).read_text())
    (folder / FILE).write_text(json.dumps(content | changes))


@pytest.mark.parametrize("name", MARKED)
def test_every_kind_comes_back_as_the_same_functions(name, tmp_path):
    torch.manual_seed(0)
    _, make = CASES[name](tmp_path)
    posterior = make()
    save_posterior(posterior, tmp_path / "run")
    loaded = load_posterior(tmp_path / "run", architectures(name, posterior))
    x = torch.rand(2, 1, SIZE, SIZE, dtype=torch.float64)
    assert torch.equal(logits(loaded, x), logits(posterior, x))
    assert not any(module.training for network in loaded for module in network.modules())


def architectures(name, posterior):
    """A network to copy; where layers were replaced, or dropout is saved as such, the user's own function."""
    if isinstance(posterior, MCDropout):
        return lambda: cnn(dropout=0.4)
    network = next(iter(posterior))
    return getattr(network, "network", network) if isinstance(network, Normalized) else network


def test_names_shapes_and_training_are_remembered(folder):
    save_posterior(
        [small()],
        folder,
        architecture=CNN,
        kind="snapshot",
        classes=list("abcdefghij"),
        input_shape=(1, 10, 10),
        training={"epochs": 3},
    )
    record = posterior_record(folder)
    assert (record.kind, record.classes, record.input_shape) == ("snapshot", [*"abcdefghij"], [1, 10, 10])
    assert (record.training, record.architecture, record.normalisation) == ({"epochs": 3}, CNN, None)


@pytest.mark.parametrize(
    "make",
    [
        lambda: [Normalized(small(), 0.3, 0.7).eval() for _ in range(2)],
        lambda: MCDropout(Normalized(small(), [0.3], [0.7]), 3, seed=4),
        lambda: Gaussian(Normalized(small(), 0.3, 0.7), {"network.conv1.bias": torch.ones(3)}, samples=3, seed=4),
        lambda: WeightSamples(Normalized(small(), 0.3, 0.7), [{"network.conv1.bias": torch.rand(3)} for _ in range(3)]),
    ],
)
def test_normalisation_is_part_of_the_posterior(make, tmp_path, x):
    posterior = make()
    save_posterior(posterior, tmp_path, architecture=CNN)
    assert posterior_record(tmp_path).normalisation == {"mean": [pytest.approx(0.3)], "std": [pytest.approx(0.7)]}
    assert torch.equal(logits(load_posterior(tmp_path), x), logits(posterior, x))


def test_members_may_differ_in_architecture(tmp_path, x):
    described = [CNN, {"name": "cnn3", "options": OPTIONS}]
    networks = [build(a["name"], **a["options"]).eval() for a in described]
    save_posterior(networks, tmp_path, architecture=described)
    assert torch.equal(logits(load_posterior(tmp_path), x), logits(networks, x))
    with pytest.raises(PosteriorError, match="2 architectures for 1 networks"):
        save_posterior(networks[:1], tmp_path, architecture=described)


def test_what_samples_share_is_saved_and_held_once(tmp_path):
    network = small()
    posterior = WeightSamples(network, [{"conv1.bias": torch.rand(3)} for _ in range(5)])
    save_posterior(posterior, tmp_path, architecture=CNN)
    assert set(load_file(tmp_path / "member-3.safetensors")) == {"conv1.bias"}
    first, second = list(load_posterior(tmp_path))[:2]
    assert first.dense1.weight is second.dense1.weight
    assert first.conv1.bias is not second.conv1.bias


def test_samples_with_shared_weights_of_a_wrapped_network_are_not_loaded_without_what_differs(tmp_path):
    samples = [{"0.1.bias": torch.zeros(2)}, {"0.1.bias": torch.ones(2)}]
    inner = nn.Sequential(nn.Flatten(), nn.Linear(4, 2))
    save_posterior(WeightSamples(nn.Sequential(inner), samples), tmp_path / "run")
    with pytest.raises(FileFormatError, match=r"1\.weight is missing; 0\.1\.weight is not expected"):
        load_posterior(tmp_path / "run", lambda: inner)


@pytest.mark.parametrize("name", [name for name in ARCHITECTURES if not name.startswith("vae")])
def test_every_architecture_of_ours_is_loaded_by_its_name(name, tmp_path):
    save_posterior([build(name)], tmp_path, architecture=name)
    assert len(load_posterior(tmp_path)) == 1


def test_building_networks_leaves_the_random_state_as_it_was(folder):
    before = torch.get_rng_state()
    load_posterior(folder)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.fixture
def own_module(tmp_path, monkeypatch):
    """A module of the user's that says when it is imported."""
    (tmp_path / "own_nets.py").write_text(
        "from torch import nn\ndef make(width=4):\n    return nn.Sequential(nn.Flatten(), nn.Linear(width, 2))\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "own_nets", raising=False)
    return "own_nets:make"


def test_a_users_architecture_is_imported_only_when_the_caller_names_it(own_module, tmp_path):
    network = nn.Sequential(nn.Flatten(), nn.Linear(4, 2)).eval()
    save_posterior([network], tmp_path / "run", architecture=own_module)
    with pytest.raises(OptionError, match=r"load_posterior\(folder, architecture='own_nets:make'\)"):
        load_posterior(tmp_path / "run")
    assert "own_nets" not in sys.modules
    x = torch.rand(1, 1, 2, 2)
    assert torch.equal(logits(load_posterior(tmp_path / "run", own_module), x), logits([network], x))
    options = {"path": own_module, "options": {"width": 4}}
    assert torch.equal(logits(load_posterior(tmp_path / "run", options), x), logits([network], x))


def test_a_posterior_saved_without_architecture_asks_for_it(tmp_path):
    save_posterior([nn.Linear(2, 2)], tmp_path)
    with pytest.raises(OptionError, match=r"torch\.nn\.modules\.linear:Linear"):
        load_posterior(tmp_path)
    assert len(load_posterior(tmp_path, lambda: nn.Linear(2, 2))) == 1
    edit(tmp_path, architecture=None)
    with pytest.raises(OptionError, match="does not say"):
        load_posterior(tmp_path)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("no_such_module:make", "cannot be imported"),
        ("json:no_such_name", "cannot be imported"),
        ("json:__name__", "not a function"),
        ("json:dumps", "cannot be built"),
        ({"option": 1}, "expected"),
    ],
)
def test_an_architecture_that_cannot_be_had_is_an_error(given, message, folder):
    with pytest.raises(OptionError, match=message):
        load_posterior(folder, given)


def test_a_flipped_bit_is_noticed(folder):
    file = folder / "member-1.safetensors"
    data = bytearray(file.read_bytes())
    data[-3] ^= 1
    file.write_bytes(data)
    with pytest.raises(FileFormatError, match=r"member-1\.safetensors is not the file.*SHA-256"):
        load_posterior(folder)


@pytest.mark.parametrize("damage", [b"", b"not a tensor", None])
def test_a_damaged_file_without_checksum_is_named_too(damage, folder):
    file = folder / "member-0.safetensors"
    file.write_bytes(file.read_bytes()[:-40] if damage is None else damage)
    edit(folder, sha256={})
    with pytest.raises(FileFormatError, match=r"member-0\.safetensors is damaged"):
        load_posterior(folder)


def test_a_missing_file_is_named(folder):
    (folder / "member-1.safetensors").unlink()
    with pytest.raises(FileFormatError, match=r"member-1\.safetensors cannot be read: No such file"):
        load_posterior(folder)


def test_weights_of_another_network_are_told_apart(folder):
    save_file({"conv1.weight": torch.zeros(3, 1, 4, 4), "extra": torch.zeros(1)}, folder / "member-0.safetensors")
    edit(folder, sha256={})
    with pytest.raises(FileFormatError, match=r"member-0.*conv1\.bias is missing.*and \d+ more"):
        load_posterior(folder)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": 2}, "format 2"),
        ({"kind": "oracle"}, "'kind' is 'oracle'; expected one of ensemble"),
        ({"members": []}, "'members'"),
        ({"members": ["../member-0.safetensors"]}, "'members'.*in this folder"),
        ({"members": ["/etc/passwd"]}, "'members'"),
        ({"members": [""]}, "'members'"),
        ({"members": ["member-0.safetensors", "member-0.safetensors"]}, "stands twice"),
        ({"shared": "../../x.safetensors"}, "'shared'"),
        ({"sampling": {"samples": 0, "seed": 1}}, "'sampling'"),
        ({"sampling": {"samples": 2, "seed": 1}}, "one member, not 2"),
        ({"classes": [1]}, "'classes'"),
        ({"input_shape": [0]}, "'input_shape'"),
        ({"normalisation": {"mean": [1], "std": [0]}}, "'normalisation'"),
        ({"normalisation": {"mean": [1], "std": [1, 2]}}, "'normalisation'"),
        ({"training": 3}, "'training'"),
        ({"sha256": {"a": 1}}, "'sha256'"),
        ({"architecture": [CNN]}, "1 architectures for 2 members"),
        ({"architecture": {"name": "no-such-net"}}, "no-such-net"),
        ({"architecture": "cnn"}, "expected one of"),
        ({"architecture": {"name": "cnn", "options": {"no": 1}}}, "cannot be built"),
    ],
)
def test_a_foreign_record_is_refused(changes, message, folder):
    edit(folder, **changes)
    with pytest.raises((FileFormatError, OptionError), match=message):
        load_posterior(folder)


@pytest.mark.parametrize("content", ["", "{", "[]", '"text"', "[" * 100_000, "\udcff"])
def test_a_record_that_is_not_ours_is_refused(content, folder):
    (folder / FILE).write_bytes(content.encode(errors="surrogateescape"))
    with pytest.raises(FileFormatError, match=r"posterior\.json"):
        load_posterior(folder)


def test_a_folder_without_record_is_refused(tmp_path):
    with pytest.raises(FileFormatError, match=r"posterior\.json cannot be read.*is a folder with this file"):
        load_posterior(tmp_path)


def test_a_training_that_is_not_finished_is_called_so(tmp_path):
    (tmp_path / "training.json").write_text("{}")
    with pytest.raises(
        FileFormatError, match=r"training in .* is not finished: .* same `dubium train` command goes on"
    ):
        load_posterior(tmp_path)


def test_a_gaussian_of_another_network_is_refused(tmp_path):
    save_posterior(Gaussian(small(), {"conv1.bias": torch.ones(3)}), tmp_path, architecture=CNN)
    tensors = load_file(tmp_path / "gaussian.safetensors")
    for wrong in ({"std/conv9.bias": torch.ones(3)}, {"other/conv1.bias": torch.ones(3)}, {"factors/x": torch.ones(0)}):
        save_file(tensors | wrong, tmp_path / "gaussian.safetensors")
        edit(tmp_path, sha256={})
        with pytest.raises(FileFormatError, match=r"gaussian\.safetensors"):
            load_posterior(tmp_path)


def test_the_record_is_written_last(folder, monkeypatch):
    def broken(*_args):
        raise OSError("disk full")

    before = (folder / FILE).read_bytes()
    monkeypatch.setattr("dubium.posteriors.files.save.write_record", broken)
    with pytest.raises(OSError, match="disk full"):
        save_posterior([small()], folder, architecture=CNN)
    assert (folder / FILE).read_bytes() == before
    with pytest.raises(FileFormatError, match="interrupted"):  # the old record, the new weights: told apart
        load_posterior(folder)


def test_weights_without_a_record_are_kept(tmp_path):
    networks, own = [small() for _ in range(2)], b"somebody's own"
    (tmp_path / "member-1.safetensors").write_bytes(own)
    with pytest.raises(OptionError, match=r"member-1\.safetensors is there without a posterior\.json"):
        save_posterior(networks, tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["member-1.safetensors"]
    assert (tmp_path / "member-1.safetensors").read_bytes() == own


def test_a_posterior_whose_saving_was_stopped_is_saved_again(tmp_path):
    networks = [small() for _ in range(2)]
    save_posterior(networks, tmp_path)
    (tmp_path / "posterior.json").unlink()
    (tmp_path / "member-1.safetensors").unlink()
    save_posterior(networks, tmp_path)
    assert (tmp_path / "posterior.json").exists()


def test_files_hold_no_more_than_they_say(folder):
    record = json.loads((folder / FILE).read_text())
    assert sorted(file.name for file in folder.iterdir()) == sorted([FILE, *record["members"]])
    for name, digest in record["sha256"].items():
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == digest


@pytest.mark.parametrize(
    ("save", "error", "message"),
    [
        (lambda path: save_posterior([], path), PosteriorError, "empty"),
        (lambda path: save_posterior([nn.Linear(2, 2)], path, kind="oracle"), UnknownNameError, "oracle"),
        (lambda path: save_posterior([nn.Linear(2, 2)], path, training={"net": nn.Linear}), OptionError, "JSON"),
        (lambda path: save_posterior(list(MCDropout(small(), 2)), path), PosteriorError, "MCDropout object itself"),
        (lambda path: save_posterior(MCDropout(small(), 2), path, kind="ensemble"), OptionError, "one of mc-dropout"),
        (
            lambda path: save_posterior([Normalized(small(), 0.5, 0.5), small()], path),
            PosteriorError,
            "1 of 2 networks are Normalized",
        ),
    ],
)
def test_what_cannot_be_saved_is_refused_and_leaves_nothing(save, error, message, tmp_path):
    with pytest.raises(error, match=message):
        save(tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_demo_is_the_embedded_ensemble_unless_a_folder_is_called_so(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert len(load_posterior("demo")) == 5
    save_posterior([small(), small()], tmp_path / "demo", architecture=CNN)
    assert len(load_posterior("demo")) == 2


def test_results_in_a_folder_called_demo_do_not_hide_the_embedded_ensemble(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "demo" / "results").mkdir(parents=True)
    assert len(load_posterior("demo")) == 5
