"""Peak memory of a process of its own, since a process's high-water mark never falls."""

import subprocess
import sys

import pytest

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
