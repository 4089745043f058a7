"""Peak memory of a process of its own, since a process's high-water mark never falls."""

import subprocess
import sys

import pytest
from torch import nn

import dubium
from dubium.attribution._budget import images_per_pass
from dubium.posteriors.stack import Stack
from tests.networks import images

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
from torch.nn import functional as F
import dubium
from dubium.models.vae import VAE

warnings.simplefilter("ignore")
torch.set_num_threads(1)
torch.manual_seed(0)
method, height, width, kind = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), (*sys.argv[4:], "layers")[0]
options = {"smoothgrad": {"samples": 2}, "ig": {"steps": 2}, "guided-ig": {"steps": 2}, "blur-ig": {"steps": 2}}
options = options.get(method, {"passes": 4} if method in ("auto", "blur-path") else {})

class Functions(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Parameter(torch.rand(16, 3, 3, 3) - 0.5), nn.Parameter(torch.rand(24, 16, 3, 3))
        self.head = nn.Linear(24, 3)

    def forward(self, x):
        x = F.max_pool2d(F.silu(F.conv2d(x, self.first, padding=1)), 2)
        return self.head(F.gelu(F.conv2d(x, self.second)).mean((2, 3)))

class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.patches, self.head = nn.Conv2d(3, 16, 16, 16), nn.Linear(16, 3)

    def forward(self, x):
        tokens = self.patches(x).flatten(2).transpose(1, 2)
        return self.head(((tokens @ tokens.transpose(1, 2)).softmax(-1) @ tokens + tokens).mean(1))

class Doubled(nn.Module):
    def forward(self, x):
        return F.interpolate(x, size=(height, width), mode="bilinear").sigmoid()

def small_vae():
    encoder = nn.Sequential(nn.AvgPool2d(8), nn.Conv2d(3, 8, 3, 2), nn.SiLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten())
    decoder = nn.Sequential(nn.Linear(4, 192), nn.Unflatten(1, (3, 8, 8)), Doubled(), nn.Conv2d(3, 8, 3, padding=1),
                            nn.SiLU(), nn.Conv2d(8, 3, 3, padding=1))
    return VAE(encoder, 32, decoder, 4).eval()

if "clue" in method:
    options = {"vae": small_vae(), "steps": 2}

def network():
    if kind != "layers":
        return {"functions": Functions, "attention": Attention}[kind]().eval()
    first = nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2)
    last = nn.Conv2d(16, 24, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(96, 3)
    return nn.Sequential(*first, *last).eval()

def explain(x, memory):
    return dubium.uncertainty(networks, x, memory=memory) if method == "scores" else dubium.explain(
        networks, x, method=method, memory=memory, **options)

networks, x = [network() for _ in range(2)], torch.rand(2, 3, height, width)
if "clue" not in method:  # its model knows one size of images
    explain(x[:1, :, :64, :64], "1GiB")
needed = "20MiB"
in_two = "clue" in method or "variance" in method  # a model, or all networks' effects, count once the networks fit
for _attempt in range(2 if in_two else 1):
    try:
        explain(x, needed)
        break
    except dubium.errors.OptionError as error:
        needed = re.search(r"memory='(\\d+MiB)'", str(error)).group(1)
networks[0](x[:1].clone().requires_grad_())  # what the allocator keeps of any pass, as after a refusal that needed one
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


@pytest.mark.parametrize("kind", ["functions", "attention"])
def test_what_functions_keep_counts_as_what_layers_keep(kind):
    command = [sys.executable, "-c", LARGE, "ua-backprop", "512", "512", kind]
    ratio, needed = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert float(ratio) < 1.2
    assert int(needed.removesuffix("MiB")) > 20


@pytest.mark.slow
@pytest.mark.parametrize("size", [("512", "512"), ("1000", "700")])
@pytest.mark.parametrize("method", dubium.methods())
def test_the_limit_holds_for_large_images_with_every_method(method, size):
    command = [sys.executable, "-c", LARGE, method, *size]
    ratio, _needed = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert float(ratio) < 1.2


MANY = """
import resource, sys, warnings
import torch
import dubium
from torch import nn

warnings.simplefilter("ignore")
torch.set_num_threads(1)
torch.manual_seed(0)
method, images, side, options = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), eval(sys.argv[4])
layers = nn.Conv2d(3, 16, 3), nn.ReLU(), nn.MaxPool2d(4), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 3)
networks, x = [nn.Sequential(*layers).eval()], torch.rand(images, 3, side, side)
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
few = {name: 2 for name in options if name == "samples"}
dubium.explain(networks, x[:1], method=method, memory="40MiB", **{**options, **few})  # what torch loads and keeps
before = peak()
dubium.explain(networks, x, method=method, memory="40MiB", **options)
print((peak() - before) / (40 * 2**20))
"""


@pytest.mark.parametrize(
    ("method", "images", "side", "options"),
    [
        ("grad", 32, 128, {}),
        ("input-grad", 32, 128, {}),
        ("smoothgrad", 1, 128, {"samples": 200}),
        ("ig", 32, 128, {"steps": 1, "start": "blur"}),
        ("blur-ig", 32, 128, {"steps": 1}),
        pytest.param("guided-ig", 32, 128, {"steps": 1, "start": "blur"}, marks=pytest.mark.slow),
    ],
)
def test_the_limit_holds_for_many_points_and_for_many_images(method, images, side, options):
    command = [sys.executable, "-c", MANY, method, str(images), str(side), repr(options)]
    assert float(subprocess.run(command, capture_output=True, text=True, check=True).stdout) < 1.2


REFUSED = """
import resource, sys, warnings
import torch
from torch import nn
import dubium

warnings.simplefilter("ignore")
torch.set_num_threads(1)

class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.SiLU(), nn.Conv2d(16, 16, 3))
        self.last = nn.Linear(16, 3)

    def forward(self, x):
        if sys.argv[2] == "values":
            self.brightest = float(x.detach().max())
        self.features = self.body(x).detach()
        return self.last(self.body(x).mean((2, 3)))

networks, x = [Network().eval() for _ in range(3)], torch.rand(1, 3, 1500, 1500)
explain = dubium.uncertainty if sys.argv[1] == "scores" else dubium.explain
options = {} if sys.argv[1] == "scores" else {"method": sys.argv[1]}
explain(networks, x[..., :64, :64], **options)
torch.nn.Conv2d(3, 3, 3).to("meta")(torch.empty(1, 3, 9, 9, device="meta") + 1).mean()  # what torch imports for this
x.isfinite()
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
before = peak()
try:
    explain(networks, x, memory="64MiB", **options)
except dubium.errors.OptionError as error:
    print(error)
print(peak() - before)
explain(networks, x[..., :64, :64], memory="64MiB", **options)  # nothing of it stays in the networks
"""


@pytest.mark.parametrize(("method", "code"), [("grad", "plain"), ("grad", "values"), ("scores", "plain")])
def test_a_refusal_keeps_to_the_limit_itself(method, code):
    command = [sys.executable, "-c", REFUSED, method, code]
    said, grown = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert "memory is 64 MiB" in said
    assert "needs at least" in said
    assert ("memory='" in said) == (code == "plain")
    assert float(grown) < 64


def test_few_images_are_measured_unless_they_are_tiny():
    x, seen = images(8, 3, size=32), []
    wide = nn.Sequential(nn.Conv2d(3, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 2)).eval()
    wide.register_forward_hook(lambda *_: seen.append(1))
    assert images_per_pass(Stack([wide] * 5), x[:1], None, 2**30) == 1
    assert images_per_pass(wide, x[:4], None, 2**30) == 4
    assert not seen
    images_per_pass(Stack([wide] * 5), x[:4], None, 2**30)  # five networks: might be a thousand megabytes
    images_per_pass(wide, x[:4], None, 2**28)
    assert len(seen) == 5 + 1


def test_a_call_does_not_import_the_compiler_of_torch():
    call = (
        "import sys, torch, dubium; from dubium.models import cnn\n"
        "for method in ('ua-backprop', 'grad', 'auto'): dubium.explain([cnn().eval()], torch.rand(40, 1, 28, 28), "
        "kinds='total', method=method)\n"
        "print('torch._dynamo' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", call], capture_output=True, text=True, check=True).stdout == "False\n"
