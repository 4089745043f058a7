"""The examples in docstrings run, and every public name says what it is."""

import doctest
import importlib
import inspect
import pkgutil

import pytest

PACKAGES = ("data", "models", "posteriors", "training")
MODULES = ["dubium.seeds", *(f"dubium.{package}" for package in PACKAGES)] + [
    module.name
    for package in PACKAGES
    for module in pkgutil.walk_packages(importlib.import_module(f"dubium.{package}").__path__, f"dubium.{package}.")
]


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings_run(name, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)  # where no folder is called "demo"
    module = importlib.import_module(name)
    finder = doctest.DocTestFinder(exclude_empty=True)
    for example in finder.find(module, globs={**vars(module)}):
        found = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(example)
        assert found.failed == 0, f"{found.failed} examples of {example.name} failed; pytest shows them above"


@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_function_and_class_has_a_docstring(package):
    module = importlib.import_module(f"dubium.{package}")
    public = [getattr(module, name) for name in module.__all__]
    assert not [thing.__name__ for thing in public if callable(thing) and not inspect.getdoc(thing)]
