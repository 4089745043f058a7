"""Other libraries, imported for tests; where one is missing, the test is skipped and says which."""

import importlib
import importlib.util
import warnings

import pytest
import torch

OPERATORS = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"


def declare_torchvision_operators():
    """What torchvision asks for when it is imported beside a CPU build of torch that was not built with it."""
    if hasattr(torch.ops.torchvision, "nms"):
        return None
    library = torch.library.Library("torchvision", "DEF")
    for name in ("nms", "qnms"):
        library.define(name + OPERATORS)
    return library


KEPT = declare_torchvision_operators()  # the operators live as long as this object


def imported(name):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return importlib.import_module(name)
        except ImportError as error:
            pytest.skip(f"{name} is not installed, or does not import here: {error}")
