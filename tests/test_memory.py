"""Peak memory of a process of its own, since a process's high-water mark never falls."""

import subprocess
import sys

import pytest

import dubium

SCRIPT = """
import resource, sys, warnings
import torch
import dubium
from dubium.models import cnn

warnings.simplefilter("ignore")
torch.set_num_threads(1)
torch.manual_seed(0)
limit, images, classes = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
network, x = cnn(classes=classes).eval(), torch.rand(images, 1, 28, 28)
dubium.explain([network], x[:1], kinds="total", memory=2**20)  # what torch itself needs for its kernels
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
before = peak()
dubium.explain([network], x, memory=limit)
print((peak() - before) / limit)
"""


@pytest.mark.parametrize(("limit", "images", "classes"), [(2**27, 8, 1000), (2**26, 64, 40)])
def test_peak_memory_stays_within_one_and_a_half_times_the_limit(limit, images, classes):
    command = [sys.executable, "-c", SCRIPT, str(limit), str(images), str(classes)]
    ratio = float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert ratio < 1.5


LARGE = """
import re, resource, sys, warnings
import torch
from torch import nn
import dubium

warnings.simplefilter("ignore")
torch.set_num_threads(1)
torch.manual_seed(0)
method, height, width = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
options = {"smoothgrad": {"samples": 2}, "ig": {"steps": 2}, "guided-ig": {"steps": 2}, "blur-ig": {"steps": 2}}
options = options.get(method, {"passes": 4} if method in ("auto", "blur-path") else {})

def network():
    first = nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2)
    last = nn.Conv2d(16, 24, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(96, 3)
    return nn.Sequential(*first, *last).eval()

def explain(x, memory):
    return dubium.uncertainty(networks, x, memory=memory) if method == "scores" else dubium.explain(
        networks, x, method=method, memory=memory, **options)

networks, x = [network() for _ in range(2)], torch.rand(2, 3, height, width)
explain(x[:1, :, :64, :64], "1GiB")
needed = "20MiB"
try:
    explain(x, needed)
except dubium.errors.OptionError as error:
    needed = re.search(r"memory='(\\d+MiB)'", str(error)).group(1)
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
before = peak()
explain(x, needed)
print((peak() - before) / (int(needed[:-3]) * 2**20), needed)
"""


@pytest.mark.parametrize("method", ["ua-backprop", "grad", "blur-path", "scores"])
def test_the_limit_holds_for_large_images_or_the_call_says_what_it_needs(method):
    command = [sys.executable, "-c", LARGE, method, "512", "512"]
    ratio, _needed = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert float(ratio) < 1.2


@pytest.mark.slow
@pytest.mark.parametrize("size", [("512", "512"), ("1000", "700")])
@pytest.mark.parametrize("method", [name for name in dubium.methods() if "clue" not in name])
def test_the_limit_holds_for_large_images_with_every_method(method, size):
    command = [sys.executable, "-c", LARGE, method, *size]
    ratio, _needed = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert float(ratio) < 1.2
