import glob
import os
import re
import warnings
from argparse import ArgumentTypeError, Namespace
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn
from torch.serialization import get_safe_globals, safe_globals

import dubium.data
from dubium.errors import (
    DataNotFoundError,
    DubiumWarning,
    FileFormatError,
    OptionError,
    PosteriorError,
    PosteriorTypeError,
)
from dubium.posteriors import load_posterior, load_weights, posterior_record


def net():
    return nn.Sequential(nn.Flatten(), nn.Linear(4, 2))


@pytest.fixture
def x():
    return torch.rand(3, 1, 2, 2, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("suffix", ["safetensors", "pt", "pth"])
@pytest.mark.parametrize("architecture", [net, net(), lambda: net()], ids=["function", "network", "lambda"])
def test_networks_come_back_from_their_files(suffix, architecture, tmp_path, x):
    networks, files = [net(), net()], [tmp_path / f"{index}.{suffix}" for index in range(2)]
    for network, file in zip(networks, files, strict=True):
        (save_file if suffix == "safetensors" else torch.save)(network.state_dict(), file)
    loaded = load_weights(architecture, [files[0], str(files[1])])
    for network, again in zip(networks, loaded, strict=True):
        assert torch.equal(again(x), network(x))
        assert not again.training
    scaled = load_weights(architecture, files[0], mean=0.5, std=[0.25])
    assert torch.equal(scaled[0](x), networks[0]((x - 0.5) / 0.25))


@pytest.mark.parametrize("wrap", [lambda s: {"state_dict": s, "epoch": 3}, lambda s: {"model": s}])
def test_checkpoints_of_training_scripts_are_understood(wrap, tmp_path, x):
    network = net()
    torch.save(wrap(network.state_dict()), tmp_path / "a.pt")
    assert torch.equal(load_weights(net, tmp_path / "a.pt")[0](x), network(x))


def test_the_arguments_in_a_checkpoint_of_timms_script_are_let_through_and_nothing_else(tmp_path, x):
    network, file = net(), tmp_path / "a.pt"
    allowed = set(get_safe_globals())  # of a set, whose order may change
    torch.save({"state_dict": network.state_dict(), "args": Namespace(lr=0.1, model="resnet18")}, file)
    assert torch.equal(load_weights(net, file)[0](x), network(x))
    assert set(get_safe_globals()) == allowed
    with safe_globals([Namespace]):  # by the user
        load_weights(net, file)
        assert Namespace in get_safe_globals()
    for args in (Namespace(folder=Path("runs")), ArgumentTypeError()):
        torch.save({"state_dict": network.state_dict(), "args": args}, file)
        with pytest.raises(
            FileFormatError, match=r"its Python objects \((pathlib\S*|argparse.ArgumentTypeError)\), such"
        ):
            load_weights(net, file)


def test_patterns_and_commas_are_answered_with_the_list_to_give(tmp_path, x, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("a.pt", "b.pt"):
        torch.save(net().state_dict(), name)
    for given in ("*.pt", "[ab].pt", "a.pt,b.pt"):
        with pytest.raises(FileFormatError, match=r"cannot be read: .* load_weights") as refused:
            load_weights(net, given)
        line = str(refused.value).rpartition(": ")[2].rstrip(".")
        assert len(eval(line, {"load_weights": load_weights, "Net": net, "glob": glob})) == 2


@pytest.mark.parametrize("whole", [False, True])
def test_a_refused_checkpoint_is_converted_by_the_line_in_the_message(whole, tmp_path, x, monkeypatch):
    monkeypatch.chdir(tmp_path)
    network = net()
    torch.save(network if whole else {"state_dict": network.state_dict(), "out": Path("runs")}, "a.pt")
    with pytest.raises(FileFormatError) as refused:
        load_weights(net, "a.pt")
    line = str(refused.value).split("If you trust the file: ")[1].split(";")[0]
    eval(line.replace("['state_dict']", ".state_dict()") if whole else line)
    assert torch.equal(load_weights(net, "weights.pt")[0](x), network(x))


@pytest.mark.parametrize("names", [("state_dict", "state_dict_ema"), ("model", "model_ema")])
def test_averaged_weights_beside_the_raw_ones_are_said_once_and_how_to_take_them(names, tmp_path, x, monkeypatch):
    monkeypatch.chdir(tmp_path)
    raw, averaged = net(), net()
    for file in ("a.pt", "b.pt"):
        torch.save(dict(zip(names, (raw.state_dict(), averaged.state_dict()), strict=True)), file)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("default")
        loaded = load_weights(net, ["a.pt", "b.pt"])
    assert all(torch.equal(network(x), raw(x)) for network in loaded)
    (warning,) = said
    message = str(warning.message)
    assert message.startswith(f"A weight file has averaged weights, {names[1]!r}, beside those of {names[0]!r}, which")
    eval(message.split("give that file: ")[1].removesuffix("."), {"torch": torch, "file": "a.pt"})
    assert torch.equal(load_weights(net, "averaged.pt")[0](x), averaged(x))


class Wrapped(nn.Module):
    def __init__(self):
        super().__init__()
        self.module = net()

    def forward(self, x):
        return self.module(x)


def with_prefix(network, prefix):
    return {prefix + name: tensor for name, tensor in network.state_dict().items()}


@pytest.mark.parametrize("prefix", ["module.", "_orig_mod.", "network.", "network._orig_mod.", "lit.model."])
def test_a_prefix_of_all_names_is_taken_off(prefix, tmp_path, x):
    network = net()
    torch.save({"state_dict": with_prefix(network, prefix)}, tmp_path / "a.ckpt")
    save_file(with_prefix(network, prefix), tmp_path / "a.safetensors")
    for again in load_weights(net, [tmp_path / "a.ckpt", tmp_path / "a.safetensors"]):
        assert torch.equal(again(x), network(x))


def test_a_network_that_has_the_prefix_itself_keeps_it(tmp_path, x):
    network = Wrapped()
    for name, prefix in (("a.pt", ""), ("b.pt", "module.")):
        torch.save(with_prefix(network, prefix), tmp_path / name)
    for again in load_weights(Wrapped, [tmp_path / "a.pt", tmp_path / "b.pt"]):
        assert torch.equal(again(x), network(x))


def test_weights_among_others_are_not_guessed_and_the_message_names_their_prefix(tmp_path, x):
    network, file = net(), tmp_path / "a.pt"
    torch.save({**with_prefix(network, "network."), "loss.weight": torch.ones(2)}, file)
    with pytest.raises(FileFormatError, match=r"under 'network\.', and others beside them: loss\.weight") as refused:
        load_weights(net, file)
    advice = str(refused.value).split("torch.save(")[1].removesuffix(", file).")
    torch.save(eval(advice, {"state": torch.load(file)}), file)  # what the message says
    assert torch.equal(load_weights(net, file)[0](x), network(x))
    torch.save({**with_prefix(network, "network."), **with_prefix(network, "ema.")}, file)
    with pytest.raises(FileFormatError, match=r"under 'network\.' and under 'ema\.'"):
        load_weights(net, file)


def test_names_that_do_not_fit_are_shown_beside_those_that_are_missing(tmp_path):
    torch.save(
        {"stem.weight": torch.ones(2), "stem.bias": torch.ones(2), "head.bias": torch.ones(2)}, tmp_path / "a.pt"
    )
    with pytest.raises(
        FileFormatError, match=r"1\.weight is missing; stem\.weight is not expected; 1\.bias is missing"
    ):
        load_weights(net, tmp_path / "a.pt")
    torch.save({**net().state_dict(), "ema.1.weight": torch.ones(2, 4), "ema.1.bias": torch.ones(2)}, tmp_path / "a.pt")
    with pytest.raises(FileFormatError, match=r"Sequential: ema\.1\.weight is not expected; ema\.1\.bias"):
        load_weights(net, tmp_path / "a.pt")


class Evil:
    def __reduce__(self):
        return os.mkdir, ("evil",)


@pytest.mark.parametrize("content", [Evil(), {"a": Evil()}, net(), 3, {}, {"a": 1}])
def test_a_checkpoint_with_more_than_tensors_is_refused_and_runs_nothing(content, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.save(content, "a.pt")
    with pytest.raises(FileFormatError, match=r"a\.pt"):
        load_weights(net, "a.pt")
    assert not Path("evil").exists()


@pytest.mark.parametrize("name", ["a.pt", "a.safetensors"])
def test_a_damaged_or_missing_file_is_named(name, tmp_path):
    with pytest.raises(FileFormatError, match=f"{name} cannot be read"):
        load_weights(net, tmp_path / name)
    (tmp_path / name).write_bytes(b"PK\x03\x04 nonsense")
    with pytest.raises(FileFormatError, match=f"{name} is damaged"):
        load_weights(net, tmp_path / name)


POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:abc\nsize 12\n"
NO_WEIGHTS = {
    "a pointer of Git LFS": (POINTER, "is a pointer of Git LFS.* Run `git lfs pull`"),
    "a text": (b"hello", "is damaged, or no weight file: it is a text, which begins with 'hello'"),
    "a web page": (
        b"<!DOCTYPE html><p>Sign in</p>",
        "begins with '<!DOCTYPE html.*It is a web page: download the file",
    ),
    "nothing": (b"", "is damaged: it is empty. Was it written or copied whole"),
}


@pytest.mark.parametrize("suffix", ["pt", "safetensors"])
@pytest.mark.parametrize("what", NO_WEIGHTS)
def test_what_is_no_weight_file_is_called_what_it_is(what, suffix, tmp_path):
    content, message = NO_WEIGHTS[what]
    (tmp_path / f"a.{suffix}").write_bytes(content)
    with pytest.raises(FileFormatError, match=message) as refused:
        load_weights(net, tmp_path / f"a.{suffix}")
    assert "weights_only" not in str(refused.value)


def test_half_of_a_checkpoint_is_called_so(tmp_path):
    torch.save(net().state_dict(), tmp_path / "a.pt")
    content = (tmp_path / "a.pt").read_bytes()
    (tmp_path / "a.pt").write_bytes(content[: len(content) // 2])
    with pytest.raises(FileFormatError, match=r"its end is missing.*Copy it again"):
        load_weights(net, tmp_path / "a.pt")


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_a_compiled_network_is_converted_by_the_line_in_the_message(tmp_path, x, monkeypatch):
    monkeypatch.chdir(tmp_path)
    network = net()
    torch.jit.trace(network, x).save("a.pt")
    with pytest.raises(FileFormatError, match=r"compiled by torch\.jit, with code, which is not run") as refused:
        load_weights(net, "a.pt")
    exec(str(refused.value).partition("Its weights alone: ")[2].rstrip("."), {"torch": torch})
    assert torch.equal(load_weights(net, "weights.pt")[0](x), network(x))


@pytest.mark.parametrize("read", [lambda folder: load_weights(net, folder), load_posterior])
def test_a_folder_of_weight_files_is_answered_with_their_names(read, tmp_path):
    networks = [net(), net()]
    for index, network in enumerate(networks):
        torch.save(network.state_dict(), tmp_path / f"{index}.pt")
    with pytest.raises(FileFormatError, match="It has weight files, which are named so: 'module:function@") as refused:
        read(str(tmp_path))
    call = re.search(r"dubium\.load_weights\(function, (.*)\) in Python", str(refused.value))
    assert len(load_weights(net, eval(call[1], {"glob": glob, "sorted": sorted}))) == 2


@pytest.mark.parametrize(
    ("first", "second", "common"),
    [
        (torch.float16, torch.float32, torch.float32),
        (torch.float32, torch.float64, torch.float64),
        (torch.float16, torch.bfloat16, torch.float32),
    ],
)
def test_files_of_different_types_are_loaded_in_the_type_that_holds_all(first, second, common, tmp_path):
    files = [tmp_path / "a.pt", tmp_path / "b.pt", tmp_path / "c.pt"]
    for file, dtype in zip(files, (first, second, first), strict=True):
        torch.save(net().to(dtype).state_dict(), file)
    with pytest.warns(DubiumWarning, match=rf"a\.pt {first}, .*b\.pt {second}\): all networks .* in {common}"):
        networks = load_weights(net, files)
    assert {parameter.dtype for network in networks for parameter in network.parameters()} == {common}
    assert torch.equal(networks[0][1].weight, torch.load(files[0])["1.weight"].to(common))


def test_wrong_numbers_of_things_are_refused(tmp_path):
    save_file(net().state_dict(), tmp_path / "a.safetensors")
    with pytest.raises(PosteriorError, match="2 architectures for 1 weight files"):
        load_weights([net, net], [tmp_path / "a.safetensors"])
    with pytest.raises(PosteriorError, match="No weight files"):
        load_weights(net, [])
    with pytest.raises(OptionError, match="give both"):
        load_weights(net, tmp_path / "a.safetensors", mean=0.5)
    with pytest.raises(PosteriorTypeError, match="gave a int"):
        load_weights(lambda: 3, tmp_path / "a.safetensors")
    with pytest.raises(FileFormatError, match=r"1\.weight has shape \(2, 4\) instead of \(3, 4\)"):
        load_weights(nn.Sequential(nn.Flatten(), nn.Linear(4, 3)), tmp_path / "a.safetensors")


def needs_width(width):
    return nn.Linear(width, 2)


def broken():
    raise RuntimeError("no such block")


def several():
    return [net(), net()]


@pytest.mark.parametrize(
    ("architecture", "message"),
    [
        (needs_width, r"test_weight_files:needs_width' raised TypeError: .*'width'"),
        (broken, r"test_weight_files:broken' raised RuntimeError: no such block\."),
        (f"{__name__}:broken", r"test_weight_files:broken' raised RuntimeError: no such block\."),
        (several, r"test_weight_files:several' gave a list; .* need no weight files: leave these out"),
        ("syntax_mistake:network", r"'syntax_mistake:network' cannot be imported: .* SyntaxError.*line 1"),
        ("raises_at_once:network", r"cannot be imported: raises_at_once raised ZeroDivisionError: division by zero"),
    ],
)
def test_what_a_users_factory_does_wrong_is_said_of_it_by_name(architecture, message, tmp_path, monkeypatch):
    save_file(net().state_dict(), tmp_path / "a.safetensors")
    (tmp_path / "syntax_mistake.py").write_text("def network(:")
    (tmp_path / "raises_at_once.py").write_text("1 / 0")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises((OptionError, PosteriorTypeError), match=message):
        load_weights(architecture, tmp_path / "a.safetensors")


def test_a_function_that_needs_arguments_is_told_how_to_be_given(tmp_path):
    save_file(net().state_dict(), tmp_path / "a.safetensors")
    with pytest.raises(
        OptionError, match=r"'width'\. A function without arguments is needed\. In Python: lambda: timm"
    ):
        load_weights(needs_width, tmp_path / "a.safetensors")
    for factory in (broken, type):  # one without arguments, and one whose arguments are not known
        with pytest.raises(OptionError) as refused:
            load_weights(factory, tmp_path / "a.safetensors")
        assert "without arguments" not in str(refused.value)


def test_a_name_that_other_libraries_have_too_is_said_to_be_ours(tmp_path):
    save_file(net().state_dict(), tmp_path / "a.safetensors")
    with pytest.raises(FileFormatError, match=r"'resnet18' is dubium's own; .*lambda: timm\.create_model\('resnet18'"):
        load_weights("resnet18", tmp_path / "a.safetensors")


def test_the_files_floating_type_is_kept(tmp_path):
    save_file(net().double().state_dict(), tmp_path / "a.safetensors")
    (network,) = load_weights(net, tmp_path / "a.safetensors", 0.5, 0.5)
    assert network(torch.rand(1, 1, 2, 2, dtype=torch.float64)).dtype == torch.float64


def test_a_name_that_is_nowhere_says_where_it_was_looked_for(tmp_path, monkeypatch):
    monkeypatch.setenv("DUBIUM_MODELS", str(tmp_path))
    (tmp_path / "mine").mkdir()
    (tmp_path / "notes").mkdir()
    (tmp_path / "mine" / "posterior.json").write_text("{}")
    with pytest.raises(FileFormatError, match="'svhn-cnn' here, nor under DUBIUM_MODELS, which has mine"):
        load_posterior("svhn-cnn")
    monkeypatch.delenv("DUBIUM_MODELS")
    with pytest.raises(FileFormatError, match=r"DUBIUM_MODELS.*is not set"):
        load_posterior("svhn-cnn")
    with pytest.raises(
        FileFormatError, match=r"not set\. Networks .* module:function@a\.pt,b\.pt .*load_weights\(function,"
    ):
        load_posterior("resnet18@a.pt")


def resnet(depth, classes, shortcut):
    return {"name": "cifar-resnet", "options": {"depth": depth, "classes": classes, "shortcut": shortcut}}


PUBLIC = {
    "cifar10-resnet20": ("cifar-10", 5, 0.90, resnet(20, 10, "pad"), (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    "cifar100-resnets": (
        *("cifar-100", 4, 0.70, [resnet(depth, 100, "conv") for depth in (20, 32, 44, 56)]),
        *((0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)),
    ),
    "svhn-cnn": ("svhn", 5, 0.89, "svhn-cnn", 0.5, 0.5),
}


@pytest.mark.parametrize("name", PUBLIC)
def test_public_ensembles_load_by_name_and_by_one_call_and_reach_their_accuracy(name):
    dataset, members, accuracy, architecture, mean, std = PUBLIC[name]
    if "DUBIUM_MODELS" not in os.environ:
        pytest.skip("DUBIUM_MODELS is not set: no public ensembles at hand")
    folder = Path(os.environ["DUBIUM_MODELS"]) / name
    posterior = load_posterior(name)
    record = posterior_record(name)
    assert len(posterior) == members
    x = torch.rand(2, *record.input_shape)
    again = load_weights(architecture, sorted(folder.glob("*.safetensors")), mean=mean, std=std)
    assert all(torch.equal(a(x), b(x)) for a, b in zip(posterior, again, strict=True))
    try:
        data = dubium.data.load(dataset, "test")
    except DataNotFoundError as error:
        pytest.skip(f"no {dataset} to measure accuracy on: {error}")
    rows = slice(0, 300)
    with torch.inference_mode():
        probs = sum(network(data.batch(rows)).softmax(-1) for network in posterior)
    assert (probs.argmax(-1) == data.labels[rows]).float().mean() > accuracy


def test_a_whole_network_is_refused_in_words_of_ours(tmp_path):
    torch.save(nn.Sequential(nn.Linear(2, 2)), tmp_path / "whole.pt")
    with pytest.raises(FileFormatError, match=r"a whole network, are not loaded\. Save the weights alone") as refused:
        load_weights(net, [tmp_path / "whole.pt"])
    assert "\x1b" not in str(refused.value)
