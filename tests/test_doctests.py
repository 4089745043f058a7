"""The examples in docstrings run, and every public name says what it is."""

import doctest
import importlib
import inspect
import pkgutil
import re

import numpy as np
import pytest
import torch

import dubium
from dubium._methods import default_options
from dubium.attribution import ATTRIBUTORS

PUBLIC = ("", ".attribution", ".data", ".evaluation", ".models", ".posteriors", ".training")
MODULES = [module.name for module in pkgutil.walk_packages(dubium.__path__, "dubium.")]
NEED_A_LIBRARY = {"fit_laplace", "from_laplace", "mean_field_vi", "sghmc"}
NO_EXAMPLE = {"Record", "load_vae"}  # what is read from files: `posterior_record` and `save_vae` show them


def examples(name):
    """The doctests of a module, which see what the module sees, and torch and NumPy."""
    module = importlib.import_module(name)
    found = doctest.DocTestFinder().find(module, globs={"torch": torch, "np": np, **vars(module)})
    return [example for example in found if example.examples]


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings_run(name, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)  # where no folder is called "demo"
    for example in examples(name):
        found = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(example)
        assert found.failed == 0, f"{found.failed} examples of {example.name} failed; pytest shows them above"


def public_objects(package):
    module = importlib.import_module(f"dubium{package}")
    return {name: thing for name in module.__all__ if callable(thing := getattr(module, name))}


@pytest.mark.parametrize("package", PUBLIC)
def test_every_public_function_and_class_has_a_docstring(package):
    assert not [name for name, thing in public_objects(package).items() if not inspect.getdoc(thing)]


@pytest.mark.parametrize("package", ["", ".data", ".evaluation", ".models", ".posteriors"])
def test_every_public_function_and_class_has_an_example(package):
    without = {name for name, thing in public_objects(package).items() if ">>>" not in (inspect.getdoc(thing) or "")}
    assert without <= NEED_A_LIBRARY | NO_EXAMPLE


@pytest.mark.parametrize("package", ["", ".data", ".evaluation", ".models", ".posteriors", ".training"])
def test_a_public_function_of_many_arguments_says_what_they_are(package):
    functions = {name: f for name, f in public_objects(package).items() if inspect.isfunction(f)}
    many = {name: f for name, f in functions.items() if len(inspect.signature(f).parameters) > 3}
    architectures = {"cifar_resnet", "cnn", "cnn3", "resnet18", "vae_conv", "vae_dense"}  # sizes, named as such
    assert not [name for name, f in many.items() if "Args:" not in (f.__doc__ or "") and name not in architectures]


@pytest.mark.parametrize("name", ATTRIBUTORS)
def test_every_option_of_a_method_is_described(name):
    described = (inspect.getdoc(ATTRIBUTORS[name]) or "").partition("Args:")[2]
    assert not [option for option in default_options(ATTRIBUTORS[name]) if not re.search(rf"\b{option}\b", described)]
