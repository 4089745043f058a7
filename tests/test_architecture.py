"""docs/architecture.md: its pictures are compared with the code, its lists are followed to the letter."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

import dubium
from dubium.attribution._layout_rules import remembered_layouts
from tests.test_layers import LAYERS, imported

ROOT = Path(__file__).parents[1]
PACKAGE = Path(dubium.__file__).parent
TEXT = (ROOT / "docs" / "architecture.md").read_text()
PACKAGES, WAY = re.findall(r"```mermaid\n(.*?)```", TEXT, re.DOTALL)
GROUND = {*LAYERS[-1]}  # what all others stand on, and what the picture leaves out
LISTS = {  # heading -> what the tests of the new thing have in their names
    "A method": "power",
    "A relevance": "root",
    "A posterior": "scaled",
    "A dataset": "letters",
    "A protocol": "peak",
    "A command": "tally",
}
GENERAL = ("imports_point_down", "names_of_options", "every_kind_has_a_trainer")


def edges(picture):
    return {(a, b) for a, b in re.findall(r"(\w+)(?:\[[^\]]*\])? -->(?:\|[^|]*\|)? (\w+)", picture)}


def labels(picture):
    return dict(re.findall(r'(\w+)\["([^"]*)"\]', picture))


def reach(graph, start):
    found, waiting = set(), [*graph.get(start, ())]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += graph.get(name, ())
    return found


def package_imports():
    """Which room imports from which; explanation and what it calls, and is called by, are one."""
    graph, result = {}, dict.fromkeys(("figures", "notebook", "regions"), "explanation")
    for path in PACKAGE.rglob("*.py"):
        own = path.relative_to(PACKAGE).with_suffix("").parts[0]
        names = {result.get(name, name) for name in imported(path)}
        if own not in GROUND and own not in ("__init__", "__main__"):
            own = result.get(own, own)
            graph.setdefault(own, set()).update(names - GROUND - {own})
    return graph


def test_the_packages_are_drawn_as_they_import():
    graph = package_imports()
    without_detours = {
        (a, b) for a, names in graph.items() for b in names if not any(b in reach(graph, c) for c in names - {b})
    }
    assert edges(PACKAGES) == without_detours
    assert {*labels(PACKAGES)} == {name for edge in without_detours for name in edge}


def test_what_lies_below_all_packages_is_named():
    below = TEXT.partition("Below all of them")[2].partition("\n## ")[0]
    assert {*re.findall(r"`(\w+)`", below)} == GROUND


def calls_between_modules(call):
    """Pairs (module of the caller, module of the function), as paths below the package, with others left out."""
    found = set()

    def module(frame):
        path = Path(frame.f_code.co_filename)
        return path.relative_to(PACKAGE).as_posix() if path.is_relative_to(PACKAGE) else None

    def profile(frame, event, _argument):
        if event == "call" and module(frame):
            caller = frame.f_back
            while caller and not module(caller):
                caller = caller.f_back
            if caller:
                found.add((module(caller), module(frame)))

    sys.setprofile(profile)
    try:
        call()
    finally:
        sys.setprofile(None)
    return found


def test_one_images_way_is_drawn_as_it_is_called():
    posterior, x = dubium.load_posterior("demo"), dubium.data.load("demo").batch([0])
    dubium.explain(posterior, x)  # modules are imported, which is no part of the way
    remembered_layouts.cache_clear()  # layouts are found once
    called = calls_between_modules(lambda: dubium.explain(posterior, x))
    path = labels(WAY)
    assert {(path[a], path[b]) for a, b in edges(WAY)} <= called
    beside = TEXT.partition("Beside the way")[2].partition("\n\n")[0]
    named = {*path.values(), *re.findall(r"`src/dubium/(\S+\.py)`", beside)}
    assert {module for pair in called for module in pair} == named


def list_blocks(heading):
    """(path, where, anchor, code) for each block of code of a list, in order."""
    body = TEXT.partition(f"\n### {heading}\n")[2].partition("\n### ")[0]
    parts = re.split(r"^ *```(?:python|text)\n(.*?)^ *```$", body, flags=re.DOTALL | re.MULTILINE)
    path = None
    for words, code in zip(parts[::2], parts[1::2], strict=False):
        path = (re.findall(r"`((?:src|tests)/\S+\.py)`", words) or [path])[-1]
        where, anchor = (re.findall(r"(above|below)\s+`([^`]+)`", words) or [(None, None)])[-1]
        where = "end" if "at the end of" in words else where
        yield path, where, anchor, re.sub(r"^   ", "", code, flags=re.MULTILINE)  # a numbered list is 3 columns in


def follow(heading, root):
    for path, where, anchor, code in list_blocks(heading):
        file = root / path
        if where is None:
            assert not file.exists(), f"{path} is there already"
            file.write_text(code)
        elif where == "end":
            file.write_text(f"{file.read_text()}\n\n{code}")
        else:
            lines = file.read_text().splitlines(keepends=True)
            (at,) = [number for number, line in enumerate(lines) if line.strip() == anchor]
            at += where == "below"
            file.write_text("".join([*lines[:at], code, *lines[at:]]))


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """A copy of the project in which every list was followed."""
    root = tmp_path_factory.mktemp("copy")
    for folder in ("src", "tests", "benchmarks"):
        shutil.copytree(ROOT / folder, root / folder, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", root)
    for heading in LISTS:
        follow(heading, root)
    return root


@pytest.fixture(scope="module")
def outcomes(copy):
    """Names of tests, and whether they passed in the copy."""
    files = ["added.py", "test_contracts.py", "test_layers.py", "posteriors/test_posterior_contract.py"]
    files += ["posteriors/test_kinds.py", "cli/test_startup.py"]
    chosen = " or ".join([*LISTS.values(), *GENERAL])
    subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", chosen, "--junitxml=outcomes.xml"]
        + [f"tests/{file}" for file in files],
        cwd=copy,
        env={**os.environ, "PYTHONPATH": str(copy / "src")},
    )
    cases = ElementTree.parse(copy / "outcomes.xml").iter("testcase")
    return {case.get("name"): not {child.tag for child in case} & {"failure", "error"} for case in cases}


@pytest.mark.parametrize("heading", LISTS)
def test_whoever_follows_a_list_has_what_it_promises(heading, outcomes):
    own = {name: passed for name, passed in outcomes.items() if LISTS[heading] in name}
    assert own
    assert not [name for name, passed in own.items() if not passed]


@pytest.mark.parametrize("words", [["check"], ["format", "--diff"]], ids=" ".join)
def test_the_code_of_the_lists_is_in_the_style_of_the_house(words, copy):
    command = [sys.executable, "-m", "ruff", *words, "--no-cache", "src", "tests"]
    done = subprocess.run(command, cwd=copy, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("general", GENERAL)
def test_whoever_follows_all_lists_keeps_the_house_in_order(general, outcomes):
    assert [passed for name, passed in outcomes.items() if general in name] == [True]


@pytest.mark.parametrize("heading", LISTS)
def test_a_list_is_short(heading):
    assert len(re.findall(r"^\d\. ", TEXT.partition(f"\n### {heading}\n")[2].partition("\n### ")[0], re.MULTILINE)) <= 4
