"""Maps and numbers that change need a new version number, or old results would be continued with new ones.

After a change that is meant, raise the method's `version` (registry.py) or the protocol's, and write the new
values: `python -m tests.test_versions`.
"""

import json
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import torch
from torch import nn

import dubium
from dubium.data import load
from dubium.evaluation.methods import parse_methods
from dubium.evaluation.protocols import PROTOCOLS, Evaluation, run_protocol
from dubium.models import vae_dense
from dubium.registry import METHOD_VERSIONS
from tests import piles

FILE = Path(__file__).with_name("versions.json")
FEW = {
    **{name: {"steps": 4} for name in ("ig", "guided-ig", "blur-ig")},
    **{name: {"steps": 3} for name in ("clue", "delta-clue", "clue-path")},
    "smoothgrad": {"samples": 3},
}
CHANGES = {"masks": {"images": 20}, "mitigation": {"seeds": 2}}


def method_maps(name):
    """Maps (kinds, 6, 6) of a fixed image and posterior, as lists of rounded numbers."""
    torch.manual_seed(0)
    layers = [[nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(144, 3)] for _ in range(3)]
    networks = [nn.Sequential(*found).eval() for found in layers]
    options = dict(FEW.get(name, {}))
    if "clue" in name:
        options["vae"] = vae_dense(size=6, hidden=(8,)).eval()
    x = torch.rand(1, 1, 6, 6, generator=torch.Generator().manual_seed(1))
    maps = dubium.explain(networks, x, method=name, kinds=("aleatoric", "epistemic"), seed=3, **options).maps
    return [[float(f"{value:.6g}") for value in maps[kind].flatten().tolist()] for kind in maps]


def protocol_results(name):
    """The metrics of two methods on a fixed posterior and images, at the smallest scale."""
    with TemporaryDirectory() as folder:
        data = load(piles.arrays(Path(folder) / "images.npz"))
        methods = parse_methods(["grad", "edges"], 1, control=False)
        halves = data.subset(slice(0, None, 2)), data.subset(slice(1, None, 2))
        data, others = halves if PROTOCOLS[name].needs_labels else (data, data)  # what is trained is tested on others
        evaluation = Evaluation(
            piles.networks(), data, methods, ("epistemic",), Path(folder) / "out", other_data=others
        )
        changes = dict(CHANGES.get(name, {}))
        if name == "masks":
            changes["masks"] = torch.arange(20 * 144).reshape(20, 12, 12) % 5 == 0
        found = run_protocol(name, evaluation, scale="smoke", **changes)["results"]
    return {m: {k: float(f"{v['value']:.6g}") for k, v in metrics.items()} for m, metrics in found.items()}


def expected(group, name, version):
    known = json.loads(FILE.read_text())[group]
    assert name in known, f"{name} is new: python -m tests.test_versions writes its values."
    assert known[name]["version"] == version, f"{name} has a new version: python -m tests.test_versions"
    return known[name]["values"]


@pytest.mark.parametrize("name", METHOD_VERSIONS)
def test_maps_change_with_the_methods_version_only(name):
    before, now = torch.tensor(expected("methods", name, METHOD_VERSIONS[name])), torch.tensor(method_maps(name))
    scale = before.abs().amax()
    assert (now - before).abs().amax() <= 1e-3 * scale, f"The maps of {name} changed: raise its version."


@pytest.mark.parametrize("name", PROTOCOLS)
def test_numbers_change_with_the_protocols_version_only(name):
    before, now = expected("protocols", name, PROTOCOLS[name].version), protocol_results(name)
    assert {m: list(values) for m, values in now.items()} == {m: list(values) for m, values in before.items()}
    for method, values in before.items():
        message = f"The numbers of {name} have changed: raise its version in PROTOCOLS."
        assert now[method] == pytest.approx(values, rel=0.02, abs=0.002), message


if __name__ == "__main__":
    chosen = sys.argv[1:]
    content = json.loads(FILE.read_text()) if FILE.exists() else {"methods": {}, "protocols": {}}
    for name, version in METHOD_VERSIONS.items():
        if not chosen or name in chosen:
            content["methods"][name] = {"version": version, "values": method_maps(name)}
    for name, protocol in PROTOCOLS.items():
        if not chosen or name in chosen:
            content["protocols"][name] = {"version": protocol.version, "values": protocol_results(name)}
    FILE.write_text(json.dumps(content, separators=(",", ":")) + "\n")
