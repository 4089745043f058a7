"""The result files that the project ships: each can be traced, and none says where it was made."""

import json
import re
import socket
from pathlib import Path

import pytest

from dubium.reproduce.page import results_page
from dubium.reproduce.readme import readme_lines

RESULTS = Path(__file__).parents[2] / "results" / "cpu"
FILES = sorted(RESULTS.glob("*.json"))
ABSOLUTE = re.compile(r'(?:^|[\s"\'(=])(?:/[\w.-]+){2,}|[A-Za-z]:\\\\')


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_result_has_what_traces_it_and_no_path_or_host(file):
    text = file.read_text()
    content = json.loads(text)
    assert content["job"] == file.stem
    assert content["scale"] == "cpu"
    assert content["seed"] == 0
    assert content["command"].startswith(("dubium reproduce ", "python -m benchmarks."))
    assert re.fullmatch("[0-9a-f]{12}", content["commit"])
    assert content["machine"]["processor"]
    assert content["machine"]["cores"] >= 1
    assert {"dubium", "torch", "numpy", "python"} <= set(content["versions"])
    assert not ABSOLUTE.search(text)
    name = socket.gethostname()
    assert len(name) < 5 or name not in text


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_public_ensemble_has_its_architecture_and_accuracy(file):
    about = json.loads(file.read_text())["settings"].get("posterior", {})
    if "public" in about:
        assert about["architecture"]
        assert 0 < about["test"]["accuracy"] < 1
        assert about.get("sha256") or json.loads(file.read_text())["settings"]["weights"]


def test_the_page_and_the_readmes_table_are_those_that_follow_from_the_results():
    page = RESULTS.parents[1] / "docs" / "results.md"
    assert page.read_text() == results_page(page, RESULTS, "cpu")
    readme = (RESULTS.parents[1] / "README.md").read_text()
    assert "\n".join(readme_lines(RESULTS, "cpu")) in readme


def test_pictures_are_small():
    assert sum(picture.stat().st_size for picture in RESULTS.glob("*.png")) < 5_000_000


@pytest.mark.parametrize("text", ['"/home/me/data"', "at /mnt/disk/run", '"C:\\\\\\\\data"'])
def test_the_pattern_finds_paths(text):
    assert ABSOLUTE.search(text)
