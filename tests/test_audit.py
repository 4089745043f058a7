"""The audit of dependencies finds what is wrong, and says when it could not ask."""

import json
import zipfile
from importlib.metadata import Distribution

import pytest

from tests.audit import audit, changed_files, installed, is_affected


@pytest.fixture
def package(tmp_path):
    """An installed distribution with one file."""
    folder = tmp_path / "thing-1.5.dist-info"
    folder.mkdir()
    (tmp_path / "thing.py").write_text("x = 1\n")
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: thing\nVersion: 1.5\n")
    (folder / "RECORD").write_text("thing.py,sha256=nia_NpkRxFwkPGhBR7I_yeHc_PJX0pmhxjIBam_NM_Q,6\n")
    return Distribution.at(folder)


def database(path, fixed):
    affected = [{"package": {"name": "Thing"}, "ranges": [{"type": "ECOSYSTEM", "events": [
        {"introduced": "1.0"}, {"fixed": fixed}]}]}]  # fmt: skip
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("A-1.json", json.dumps({"id": "A-1", "affected": affected}))
    return path


def test_a_changed_file_is_found(package, tmp_path):
    recorded = changed_files(package)
    (tmp_path / "thing.py").write_text("x = 2\n")
    assert changed_files(package) == ["thing.py"]
    (tmp_path / "thing.py").unlink()
    assert changed_files(package) == ["thing.py"]
    assert recorded == []


def test_known_vulnerabilities_come_from_the_database_that_is_here(package, tmp_path):
    lines, code = audit({"thing": package}, database(tmp_path / "all.zip", "2.0"))
    assert code == 1
    assert "thing 1.5: A-1" in lines
    assert audit({"thing": package}, database(tmp_path / "new.zip", "1.5"))[1] == 0


def test_it_says_when_it_could_not_ask(package, tmp_path):
    (tmp_path / "cut.zip").write_bytes(b"PK")
    for found in (
        audit({"thing": package}, tmp_path / "cut.zip"),
        audit({"thing": package}, tmp_path / "none.zip"),
        audit({"thing": package}, service="http://127.0.0.1:9/"),
    ):
        assert found[1] == 2
        assert "could NOT be asked" in found[0][-1]


@pytest.mark.parametrize(("version", "expected"), [("0.9", False), ("1.0", True), ("1.9", True), ("2.0", False)])
def test_ranges(version, expected):
    events = [{"introduced": "1.0"}, {"fixed": "2.0"}]
    assert is_affected(version, {"ranges": [{"type": "ECOSYSTEM", "events": events}]}) is expected
    assert is_affected(version, {"versions": [version]})


def test_what_dubium_needs_is_found_with_what_that_needs():
    found = installed(extras=("web",))
    assert {"torch", "numpy", "sympy", "pillow", "pyarrow", "gradio"} <= set(found)
    assert "pytest" not in found
