"""Names of files and classes in the terminal: shown, and neither obeyed nor an error."""

import io
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from dubium.cli import app
from dubium.cli._text import printable
from dubium.data import load
from dubium.data.image_files import find_images
from dubium.errors import FileFormatError
from tests import piles

START = [sys.executable, "-c", "from dubium.cli import app; app()"]
RUN = "explain {run} --method grad --top 2 --threads 1"


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("place")
    return {"run": piles.posterior(folder / "run"), "images": piles.arrays(folder / "images.npz", 4)}


def write_image(path):
    stream = io.BytesIO()
    Image.fromarray(np.random.default_rng(0).integers(0, 255, (12, 12), np.uint8)).save(stream, "PNG")
    Path(os.fsdecode(path)).write_bytes(stream.getvalue())


def invoke(*words):
    found = CliRunner().invoke(app, [str(word) for word in words])
    assert found.exception is None or isinstance(found.exception, SystemExit)
    return found.exit_code, found.output


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("a\x1b[2Jb", r"a\x1b[2Jb"),
        ("\x9b31m", r"\x9b31m"),
        ("a\nb\r\tc", r"a\nb\r\tc"),
        ("exe\u202egnp", r"exe\u202egnp"),
        ("\udcff", r"\udcff"),
        ("cafe\u0301 \u65e5\u672c \u200c", "cafe\u0301 \u65e5\u672c \u200c"),
    ],
)
def test_control_characters_are_shown(given, shown):
    assert printable(given) == shown
    assert printable("a\nb", keep="\n") == "a\nb"


@pytest.mark.parametrize("names", ["[/red],[bold],c", "a\x1b]0;owned\x07,b\x1b[2J,c\x9b1m"])
def test_names_of_classes_are_neither_markup_nor_escapes(names, place, tmp_path):
    code, said = invoke(
        *RUN.format(**place).split(), "--dataset", place["images"], "--names", names, "--out", tmp_path / "o"
    )
    assert code == 0, said
    assert not any(character in said for character in "\x1b\x07\x9b")
    assert any(printable(name) in said for name in names.split(","))


def test_names_of_files_are_neither_markup_nor_escapes(place, tmp_path):
    folder = tmp_path / "images"
    folder.mkdir()
    write_image(folder / "a\x1b[31m[red].png")
    (folder / "b\x1b[2J\n.png").write_bytes(b"no image")
    code, said = invoke(*RUN.format(**place).split(), "--images", folder, "--out", tmp_path / "o")
    assert code == 1, said
    assert r"a\x1b[31m[red].png" in said
    assert r"b\x1b[2J\n.png is damaged" in said.replace("\n", "")
    assert "\x1b" not in said
    code, said = invoke(*RUN.format(**place).split(), "--images", tmp_path / "no\x1b[2J.png", "--out", tmp_path / "p")
    assert code == 2
    assert "\x1b" not in said


@pytest.mark.skipif(sys.platform != "linux", reason="names are bytes there")
def test_a_name_that_is_not_utf8_is_refused_by_name(place, tmp_path):
    folder = tmp_path / "images"
    (folder / "x").mkdir(parents=True)
    write_image(os.fsencode(folder / "x") + b"/bad\xff.png")
    with pytest.raises(FileFormatError, match=r"bad\\udcff\.png' has a name that is not UTF-8"):
        find_images([folder])
    with pytest.raises(FileFormatError, match=r"not UTF-8"):
        load(folder)
    code, said = invoke(*RUN.format(**place).split(), "--images", folder, "--out", tmp_path / "o")
    assert code == 2
    assert "has a name that is not UTF-8. Rename it." in said.replace("\n", " ")
    words = [*RUN.format(**place).split(), "--dataset", place["images"], "--out", f"{tmp_path}/o\udcff"]
    code, said = invoke(*words)
    assert code == 2, said
    assert "UTF-8" in said
    assert not list(tmp_path.glob("o*"))


def test_a_terminal_that_lacks_a_character_is_no_error(place, tmp_path):
    words = [*RUN.format(**place).split(), "--dataset", place["images"], "--names", "日本,é,c", "--out", tmp_path / "o"]
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    found = subprocess.run([*START, *map(str, words)], capture_output=True, env=environment)
    assert found.returncode == 0, found.stderr
    assert b"images scored" in found.stdout


@pytest.mark.parametrize("out", ["file", "file/inside", "loop", "x" * 300])
def test_a_folder_that_cannot_be_is_said(out, place, tmp_path):
    (tmp_path / "file").write_text("no folder")
    (tmp_path / "loop").symlink_to("loop")
    code, said = invoke(*RUN.format(**place).split(), "--dataset", place["images"], "--out", tmp_path / out)
    assert code == 2, said
    assert "the same command goes on" not in said
    assert (tmp_path / "file").read_text() == "no folder"


@pytest.mark.parametrize("name", ["run.json", "index.html", "results/explained-00000.parquet"])
def test_links_in_a_folder_are_replaced_and_what_is_behind_them_stays(name, place, tmp_path):
    (tmp_path / "other").write_text("not dubium's")
    words = [*RUN.format(**place).split(), "--dataset", place["images"], "--fresh", "--out", tmp_path / "o"]
    assert invoke(*words)[0] == 0
    link = tmp_path / "o" / name
    link.unlink()
    link.symlink_to(tmp_path / "other")
    code, said = invoke(*words)
    assert code == 0, said
    assert (tmp_path / "other").read_text() == "not dubium's"
    assert not link.is_symlink()
