"""The command lines of README and docs run, with stand-ins that make them cheap."""

import re
import shlex
import sys

import pytest
import torch
from PIL import Image
from typer.main import get_command
from typer.testing import CliRunner

import dubium
import dubium.data
import dubium.web
from dubium.cli import app
from tests.doc_blocks import PAGES, ROOT, command_lines, page_name

RUNS = ("runs/mnist", "runs/imagenet", "RUN", "my-ensemble")
DATASETS = r"(mnist|svhn|cifar-10)(:test)?"
NETWORK = """
from torch import nn

def network():
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(16, 3))
    net.pretrained_cfg = {"input_size": (3, 24, 24), "crop_pct": 0.9, "mean": (0.5,) * 3, "std": (0.5,) * 3,
                          "interpolation": "bicubic"}
    return net
"""
NEEDS_A_NETWORK = ("data get", "data check")  # of cables: their options alone are checked
SLOW = ("train", "evaluate", "--engine ray", "compare")

COMMANDS = [
    (page, line)
    for page in PAGES
    if page.parent.name != "decisions"  # what was run at the time
    for line in command_lines(page)
    if line.startswith("dubium ") and "..." not in line
]


def make_cheap(line):
    """The command's words with stand-ins for runs, datasets and addresses, on few images."""
    words = shlex.split(line)[1:]
    for i in range(1, len(words)):
        before = words[i - 1]
        if words[i] in RUNS and before != "--out":
            words[i] = "demo"
        elif before in ("--dataset", "--top", "--members", "--seeds", "--epochs", "--scale"):
            cheap = {"--dataset": re.sub(DATASETS, "demo", words[i]), "--scale": "smoke", "--epochs": "1"}
            words[i] = cheap.get(before, "2")
        elif before == "--methods":
            words[i] = "grad"
    if "--address" in words:
        place = words.index("--address")
        del words[place : place + 2]
    return words + extra_options(words)


def extra_options(words):
    """Options that keep a command cheap and its output apart from that of the one before."""
    extra = {
        "explain": ["--fresh", "--top", "2"],
        "train": ["--scale", "smoke", "--members", "2", "--images", "32", "--option", "filters=2", "--threads", "1"],
        "train-vae": ["--epochs", "1"],
        "evaluate": ["--scale", "smoke", "--methods", "grad", "--threads", "1"],
        "serve": ["--no-browser"],
    }.get(words[0], [])
    pairs = [extra[i : i + 2] for i in range(0, len(extra), 2)] if words[0] != "explain" else [["--fresh"], extra[1:]]
    return [word for pair in pairs if pair[0] == "--option" or pair[0] not in words for word in pair]


@pytest.fixture
def workplace(tmp_path, monkeypatch):
    """A folder with what the pages speak of: photos, a network of one's own with weights, a folder of results."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "mine", raising=False)
    (tmp_path / "mine.py").write_text(NETWORK)
    names = {}
    exec(NETWORK, names)
    for file in ("a.pt", "b.pt"):
        torch.save(names["network"]().state_dict(), file)
    for number in range(6):
        photo = tmp_path / "photos" / "ab"[number % 2] / f"{number}.png"
        photo.parent.mkdir(parents=True, exist_ok=True)
        Image.effect_noise((32, 32), 40 + 20 * number).convert("RGB").save(photo)
    (tmp_path / "more").mkdir()
    Image.effect_noise((28, 28), 90).save(tmp_path / "more" / "one.png")
    dubium.explain_dataset("demo", dubium.data.load("demo"), "doubts", top=2)
    return tmp_path


def expand(words, folder):
    """Patterns of file names, as a shell expands them."""
    return [name for word in words for name in (sorted(map(str, folder.glob(word))) if "*" in word else [word])]


def check_options(words):
    """Parse the command without running it."""
    command, context = get_command(app), None
    while True:
        context = command.make_context(command.name, list(words), parent=context, resilient_parsing=False)
        if not hasattr(command, "commands"):
            return
        _, command, words = command.resolve_command(context, words)


def with_marks(page, line):
    is_slow = any(word in line for word in SLOW)
    return pytest.param(line, marks=[pytest.mark.slow] if is_slow else [], id=f"{page_name(page)}: {line}")


@pytest.mark.parametrize("line", [with_marks(page, line) for page, line in COMMANDS])
def test_a_command_line_of_the_pages_runs(line, workplace, monkeypatch):
    if any(line.startswith(f"dubium {words}") for words in NEEDS_A_NETWORK):
        check_options(shlex.split(line)[1:])
        return
    monkeypatch.setattr(dubium.web, "serve", lambda session, **options: None)  # it would wait for a browser
    found = CliRunner().invoke(app, expand(make_cheap(line), workplace))
    assert found.exit_code == 0, found.output


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CONTRIBUTING.md"], ids=page_name)
def test_every_make_target_exists(page):
    targets = {*re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)}
    named = {*re.findall(r"(?:^|`)make ([a-z]+)\b", page.read_text(), re.MULTILINE)}
    assert named <= targets
