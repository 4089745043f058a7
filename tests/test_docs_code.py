"""The Python of README and docs runs, from top to bottom of each page."""

import importlib.util
import tomllib
import warnings

import matplotlib
import pytest
import torch

import dubium
import dubium.data
from dubium.models import cnn
from tests.doc_blocks import PAGES, ROOT, fenced_blocks, page_name
from tests.posteriors import third_party  # noqa: F401 (torchvision imports beside a CPU build of torch)

NEEDS = {
    "docs/how-to/hugging-face.md": ("timm", "transformers"),
    "docs/how-to/training-boards.md": ("lightning", "tensorboard"),
    "docs/how-to/causes.md": ("scipy",),
}
OF_CHECK = {"timm", "lightning"}  # libraries that only `make check` installs
SLOW = {"docs/how-to/cluster.md", "docs/scale.md"}  # they start a cluster


def test_the_extra_of_lightning_brings_what_its_page_needs():
    extra = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]["lightning"]
    assert {line.partition(">")[0] for line in extra} >= set(NEEDS["docs/how-to/training-boards.md"])


def digits(count):
    return dubium.data.load("demo").batch(range(count))


def readme_names():
    networks = list(dubium.load_posterior("demo"))
    names = dict(zip(("net_a", "net_b", "net_c"), networks, strict=False))
    return {**names, "x": digits(2), "laplace_model": networks}


def explained_demo():
    dubium.explain_dataset("demo", dubium.data.load("demo"), "doubts", top=2)
    return {}


def evaluation_names():
    x = digits(4)
    labels = torch.as_tensor(dubium.data.load("demo").labels[:4])
    posterior = dubium.load_posterior("demo")
    maps = dubium.explain(posterior, x).maps["epistemic"]
    network = cnn(classes=10, filters=2, units=4)
    return {"dubium": dubium, "posterior": posterior, "images": x, "labels": labels, "x": x, "maps": maps} | {
        "fresh_network": network
    }


PREPARE = {
    "README.md": readme_names,
    "docs/classes.md": lambda: {"dubium": dubium, "posterior": dubium.load_posterior("demo"), "x": digits(2)},
    "docs/cli.md": explained_demo,
    "docs/evaluation.md": evaluation_names,
}


def with_marks(page):
    name = page_name(page)
    marks = [pytest.mark.slow] if name in SLOW else [pytest.mark.libraries] if OF_CHECK & {*NEEDS.get(name, ())} else []
    return pytest.param(page, marks=marks, id=name)


@pytest.mark.parametrize("page", [with_marks(page) for page in PAGES if fenced_blocks(page, ["python"])])
def test_the_code_of_a_page_runs(page, tmp_path, monkeypatch):
    name = page_name(page)
    missing = [library for library in NEEDS.get(name, ()) if importlib.util.find_spec(library) is None]
    if missing:
        pytest.skip(f"{', '.join(missing)} not installed")
    monkeypatch.chdir(tmp_path)
    matplotlib.use("Agg")
    torch.manual_seed(0)
    names = {"__name__": "page", **PREPARE.get(name, dict)()}
    with warnings.catch_warnings():
        if OF_CHECK & {*NEEDS.get(name, ())}:
            warnings.simplefilter("ignore")  # of these libraries about each other
        for block in fenced_blocks(page, ["python"]):
            exec(compile(block, name, "exec"), names)


def test_every_how_to_has_code():
    assert not [page for page in PAGES if page.parent.name == "how-to" and not fenced_blocks(page, ["python"])]
