"""Help, versions, completion and typing mistakes answer without importing what computes."""

import os
import subprocess
import sys

import pytest

import dubium
from dubium.choices import DATASETS, SCALES
from dubium.data import SOURCES
from dubium.training import RECIPES

HEAVY = ("torch", "numpy", "pyarrow", "matplotlib", "PIL", "ray", "gradio")
CALL = f"""
import sys
from dubium.cli import app
try:
    app(sys.argv[1:], prog_name="dubium")
except SystemExit as stopped:
    print("exit", stopped.code)
print("heavy", [name for name in {HEAVY!r} if name in sys.modules])
print("pydantic", "pydantic" in sys.modules)
"""
HELP = [
    [], ["demo"], ["explain"], ["uncertainty"], ["compare"], ["report"], ["serve"], ["train"], ["train-vae"], ["data"],
    ["data", "list"], ["data", "get"], ["data", "check"], ["evaluate"], ["evaluate", "blurring"],
    ["evaluate", "anomaly"], ["evaluate", "mitigation"], ["evaluate", "sanity"],
]  # fmt: skip
MISTAKES = [
    (["explian"], "No such command 'explian'"),
    (["explain", "--no-such-flag"], "No such option"),
    (["explain", "demo", "--method", "gard"], "Did you mean 'grad'"),
    (["explain", "demo", "--kinds", "total,epistemc"], "Did you mean 'epistemic'"),
    (["explain", "demo", "--fit", "strech"], "Did you mean 'stretch'"),
    (["explain", "demo", "--engine", "rya"], "Did you mean 'ray'"),
    (["explain", "--dataset", "demo"], "No posterior was named"),
    (["explain", "runs"], "No images were named"),
    (["uncertainty", "runs"], "No images were named"),
    (["train", "--dataset", "mnist", "--posterior", "ensmble"], "Did you mean 'ensemble'"),
    (["train", "--dataset", "mnist", "--scale", "cup"], "Did you mean 'cpu'"),
]


def call(*args, **environment):
    environment = {**os.environ, "NO_COLOR": "1", "COLUMNS": "200", **environment}
    done = subprocess.run([sys.executable, "-c", CALL, *args], capture_output=True, text=True, env=environment)
    return done.stdout + done.stderr


@pytest.mark.parametrize("command", HELP, ids=" ".join)
def test_help_is_light(command):
    said = call(*command, "--help")
    assert "Usage" in said
    assert "heavy []" in said


@pytest.mark.parametrize("command", [["--version"], ["--help"], ["explain", "--help"]], ids=" ".join)
def test_flags_that_are_not_given_are_not_parsed(command):
    assert "pydantic False" in call(*command)


def test_the_markers_of_a_readme_are_named_in_the_help():
    assert "from <!-- reproduce --> to <!-- end --> gets" in call("reproduce", "--help")


def test_the_version_is_light():
    said = call("--version")
    assert f"dubium {dubium.__version__}" in said
    assert "heavy []" in said


@pytest.mark.parametrize(
    ("args", "message"), MISTAKES, ids=lambda value: " ".join(value) if type(value) is list else ""
)
def test_typing_mistakes_are_light(args, message):
    said = call(*args)
    assert message in said
    assert "exit 2" in said
    assert "heavy []" in said


@pytest.mark.parametrize(("words", "expected"), [("dubium exp", "explain"), ("dubium explain --method gr", "grad-cam")])
def test_completion_is_light(words, expected):
    said = call(_DUBIUM_COMPLETE="complete_bash", COMP_WORDS=words, COMP_CWORD=str(words.count(" ")))
    assert expected in said
    assert "heavy []" in said


def test_importing_dubium_is_light_and_its_names_are_there():
    check = (
        "import sys, dubium; print('torch' in sys.modules, dubium.data.load('demo').name, len(dubium.methods()) > 9)"
    )
    found = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True).stdout
    assert found.split() == ["False", "demo", "True"]
    assert {*dubium.__all__} <= {*dir(dubium)}
    assert all(getattr(dubium, name) is not None for name in dubium.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = dubium.nothing


def test_the_names_of_options_are_those_of_the_tables():
    assert DATASETS == tuple(SOURCES) == tuple(RECIPES)
    assert all(tuple(scales) == SCALES for scales in RECIPES.values())
