"""The Python of docs/how-to runs, from top to bottom of each page."""

import re
from pathlib import Path

import matplotlib
import pytest

PAGES = sorted((Path(__file__).parents[1] / "docs" / "how-to").glob("*.md"))


def python_blocks(page):
    return re.findall(r"^```python\n(.*?)^```$", page.read_text(), re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_code_of_a_how_to_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    matplotlib.use("Agg")
    blocks = python_blocks(page)
    assert blocks
    names = {"__name__": "how_to"}
    for block in blocks:
        exec(compile(block, page.name, "exec"), names)
