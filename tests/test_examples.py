"""The examples run as they are: jupytext scripts, small enough for a test."""

import importlib.util
import os
import re
import subprocess
import sys

import pytest

from tests.doc_blocks import ROOT

EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
LIBRARIES = {"timm_and_hugging_face.py": ("timm", "transformers")}
SLOW = {"explain_and_mitigate.py", "compare_methods.py", "label_errors.py"}  # more than some seconds


RUN = (
    "import runpy, sys; from tests.posteriors import third_party; "  # torchvision imports beside a CPU build of torch
    "runpy.run_path(sys.argv[1], run_name='__main__')"
)


def with_marks(path):
    marks = [pytest.mark.libraries] * (path.name in LIBRARIES) + [pytest.mark.slow] * (path.name in SLOW)
    return pytest.param(path, marks=marks, id=path.name)


@pytest.mark.parametrize("path", [with_marks(path) for path in EXAMPLES])
def test_an_example_runs(path, tmp_path):
    missing = [name for name in LIBRARIES.get(path.name, ()) if importlib.util.find_spec(name) is None]
    if missing:
        pytest.skip(f"{', '.join(missing)} not installed")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    environment["PATH"] = os.pathsep.join([os.path.dirname(sys.executable), os.environ.get("PATH", "")])  # `dubium`
    command = [sys.executable, "-c", RUN, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_an_example_is_a_notebook_that_says_what_it_does(path):
    text = path.read_text()
    assert text.startswith("# %% [markdown]\n# # ")
    assert len(re.findall(r"^# %%$", text, re.MULTILINE)) >= 2


def test_every_example_is_listed():
    listed = (ROOT / "examples" / "README.md").read_text()
    assert [path.name for path in EXAMPLES if f"({path.name})" not in listed] == []
