"""The wheel installs into an environment of its own, and the demo runs there."""

import json
import os
import re
import subprocess
import sys
import venv
import zipfile
from email.parser import Parser
from importlib.metadata import distribution
from pathlib import Path

import pytest

from tests.doc_blocks import ROOT

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """A wheel built from the source as it is; pip fetches the build backend, which is small."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder), str(ROOT)]
    subprocess.run(command, check=True)
    return next(folder.glob("dubium-*.whl"))


def needed_folders(names, found):
    """The folders that hold these distributions and what they need, by their own metadata."""
    for name in names:
        key = re.sub(r"[-_.]+", "-", name).lower()
        if key in found:
            continue
        try:
            package = distribution(name)
        except ModuleNotFoundError:  # for another platform or another extra
            continue
        found[key] = package
        plain = [line for line in package.requires or [] if "extra ==" not in line]
        needed_folders([re.match(r"[\w.-]+", line)[0] for line in plain], found)
    return found


def link_packages(names, site):
    """Put the files of installed distributions into an empty environment, and no others."""
    for package in needed_folders(names, {}).values():
        for file in package.files or []:
            top = file.parts[0]
            source, link = Path(package.locate_file(top)), site / top
            if top not in ("..", "__pycache__") and source.exists() and not link.exists():
                link.symlink_to(source)


def test_the_wheel_holds_what_the_package_needs(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = {*archive.namelist()}
        metadata = Parser().parsestr(archive.read(next(n for n in names if n.endswith("/METADATA"))).decode())
    source = {
        path.relative_to(ROOT / "src").as_posix() for path in (ROOT / "src" / "dubium").rglob("*") if path.is_file()
    }
    assert {name for name in source if "__pycache__" not in name} == {n for n in names if n.startswith("dubium/")}
    assert metadata["License-Expression"] == "Apache-2.0"
    assert not [line for line in metadata.get_all("Requires-Dist") if "gradio" in line and "extra ==" not in line]


def test_the_demo_of_the_installed_wheel_runs_in_an_empty_environment(wheel, tmp_path):
    """What dubium needs is linked from this environment, since torch would take minutes; nothing else is there."""
    venv.create(tmp_path / "empty", with_pip=True, symlinks=True)
    python = tmp_path / "empty" / "bin" / "python"
    site = next((tmp_path / "empty" / "lib").glob("python*/site-packages"))
    with zipfile.ZipFile(wheel) as archive:
        metadata = Parser().parsestr(
            archive.read(next(n for n in archive.namelist() if n.endswith("/METADATA"))).decode()
        )
    needs = [line for line in metadata.get_all("Requires-Dist") if "extra ==" not in line]
    link_packages([re.match(r"[\w.-]+", line)[0] for line in needs], site)
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "DUBIUM"))}
    options = {"cwd": tmp_path, "env": clean, "check": True, "text": True, "capture_output": True}
    subprocess.run([python, "-m", "pip", "install", "--no-index", "--quiet", str(wheel)], **options)
    subprocess.run([python, "-m", "pip", "check"], **options)
    where = "import dubium; print(dubium.__file__); import importlib.util as u; print(u.find_spec('gradio'))"
    file, gradio = subprocess.run([python, "-c", where], **options).stdout.split()
    assert Path(file).is_relative_to(site)
    assert gradio == "None"
    done = subprocess.run([tmp_path / "empty" / "bin" / "dubium", "demo", "--top", "2", "--json"], **options)
    page = tmp_path / json.loads(done.stdout)["page"]
    assert page.read_text().count("<article") == 2
