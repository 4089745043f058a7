"""What the documents name exists: modules, functions, files, links."""

import re
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

import dubium

ROOT = Path(__file__).parents[1]
PAGES = [*ROOT.glob("docs/**/*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
SOURCE = "\n".join(path.read_text() for path in (ROOT / "src").rglob("*.py"))
FILES = {
    path.name for folder in ("src", "tests", "benchmarks", "docs", "examples") for path in (ROOT / folder).rglob("*.py")
}


def page_text(page):
    """The page without the code of numbered lists, whose made-up names `test_architecture.py` brings to life."""
    return re.sub(r"^   ```(?:python|text)\n.*?^   ```$", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)


def resolve(name):
    """The object called `dubium.a.b`: an attribute, or a module that is not imported yet."""
    found = dubium
    for depth, part in enumerate(name.split(".")[1:], start=2):
        if not hasattr(found, part):
            import_module(".".join(name.split(".")[:depth]))
        found = getattr(found, part)
    return found


pages = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())


@pages
def test_every_name_of_dubium_resolves(page):
    wrong = []
    for name in {*re.findall(r"(?<![\w/.-])dubium(?:\.[A-Za-z_]\w*)+", page_text(page))}:
        try:
            resolve(name)
        except (ImportError, AttributeError) as error:
            wrong.append(f"{name}: {error}")
    assert not wrong


@pages
def test_every_import_works(page):
    wrong = []
    for module, names in re.findall(r"^from (dubium[\w.]*) import ([\w, ]+)$", page_text(page), re.MULTILINE):
        wrong += [f"{module}.{name}" for name in names.split(", ") if not hasattr(import_module(module), name)]
    assert not wrong


@pages
def test_every_path_exists(page):
    text = re.sub(r"Write `[^`]+`", "", page_text(page))  # a file to be
    paths = {*re.findall(r"`((?:src|tests|docs|benchmarks|examples)/[^\s`*]+)`", text)}
    assert not [path for path in paths if not (ROOT / path).exists()]
    assert not [name for name in {*re.findall(r"`(?:[\w/]+/)?(\w+\.py)`", text)} if name not in FILES]


@pages
def test_every_benchmark_that_made_a_number_is_here(page):
    modules = {*re.findall(r"python -m (benchmarks[\w.]*\w)", page_text(page))}
    assert not [module for module in modules if find_spec(module) is None]


@pages
def test_every_link_leads_to_a_file(page):
    links = [link for link in re.findall(r"\]\(([^)#]+)\)", page_text(page)) if "://" not in link]
    assert not [link for link in links if not (page.parent / link).exists()]


@pytest.mark.parametrize("name", ["architecture.md", "decisions/core.md", "decisions/commands.md"])
def test_every_identifier_of_ours_is_in_the_source(name):
    names = {*re.findall(r"`((?:[A-Z]\w+|_?[a-z]+_\w+|_[a-z]+))`", page_text(ROOT / "docs" / name))}
    assert names
    assert not [name for name in names if not re.search(rf"\b{name}\b", SOURCE) and f"{name}.py" not in FILES]


def test_every_method_has_a_row_in_the_table_of_methods():
    table = re.search(r"^\| method .*?\n\n", (ROOT / "docs" / "methods.md").read_text(), re.MULTILINE | re.DOTALL)
    assert table
    rows = re.findall(r"^\| `([a-z-]+)` \|", table[0], re.MULTILINE)
    assert sorted(rows) == sorted(dubium.methods())
