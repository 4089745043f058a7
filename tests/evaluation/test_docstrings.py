"""The examples in docstrings run."""

import doctest
import importlib
import pkgutil

import numpy as np
import pytest
import torch

import dubium.evaluation

NAMES = [
    "dubium.gaussian_kernel",
    "dubium.ranking",
    *(module.name for module in pkgutil.walk_packages(dubium.evaluation.__path__, "dubium.evaluation.")),
]


@pytest.mark.parametrize("name", NAMES)
def test_examples_run(name):
    result = doctest.testmod(importlib.import_module(name), extraglobs={"torch": torch, "np": np})
    assert result.failed == 0


def test_there_are_examples():
    finder = doctest.DocTestFinder()
    tests = [test for name in NAMES for test in finder.find(importlib.import_module(name)) if test.examples]
    assert len(tests) >= 12
