"""Everyday failures of disks and files end with one sentence and exit code 2, and nothing that is finished is lost."""

import os
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from safetensors import SafetensorError
from typer.testing import CliRunner

from dubium.cli import app
from dubium.cli._failures import describe_failure
from tests import piles

START = [sys.executable, "-c", "from dubium.cli import app; app()"]
COMMANDS = {
    "explain": "explain {run} --dataset {images} --threads 1 --out {out}",
    "evaluate": "evaluate blurring {run} --dataset {images} --scale smoke --methods grad --threads 1 --out {out}",
    "train": "train --dataset {images} --scale smoke --epochs 1 --members 2 --threads 1 --out {out}",
}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("place")
    return {"run": piles.posterior(folder / "run"), "images": piles.arrays(folder / "images.npz", 200)}


@pytest.fixture(scope="module")
def finished(place, tmp_path_factory):
    """A folder of each command that nothing happened to."""
    folder = tmp_path_factory.mktemp("finished")
    for name in ("explain", "evaluate"):
        assert CliRunner().invoke(app, COMMANDS[name].format(**place, out=folder / name).split()).exit_code == 0
    return {name: folder / name for name in COMMANDS}


def run(name, place, out, **limits):
    """Exit code and error output of a command in a process of its own."""
    command = [*START, *COMMANDS[name].format(**place, out=out).split()]
    found = subprocess.run(command, capture_output=True, text=True, **limits)
    return found.returncode, " ".join(found.stderr.split())


def check_refusal(found, words):
    code, said = found
    assert (code, said.count("dubium: ")) == (2, 1), said
    assert words in said
    assert "Traceback" not in said


def contents(folder):
    """The files that decide anything, by name; times are in these three only."""
    left = ("metrics.jsonl", "training.json", "index.html")
    files = (file for file in sorted(folder.rglob("*")) if file.is_file() and file.name not in left)
    return {str(file.relative_to(folder)): file.read_bytes() for file in files}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_full_disk_is_said_and_the_same_command_goes_on(name, place, finished, tmp_path):
    out = tmp_path / "out"

    def no_large_files():
        resource.setrlimit(resource.RLIMIT_FSIZE, (3000, 3000))

    check_refusal(run(name, place, out, preexec_fn=no_large_files), "Files may not become so large")
    assert not list(out.rglob("*.part"))
    assert run(name, place, out)[0] == 0
    if name != "train":  # whose record has the seconds of each epoch
        assert contents(out) == contents(finished[name])


@pytest.mark.parametrize("name", COMMANDS)
def test_a_folder_that_cannot_be_written_is_said(name, place):
    check_refusal(run(name, place, "/proc/here"), "")


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is read-only for root")
def test_a_read_only_folder_is_said(place, tmp_path):
    tmp_path.chmod(0o500)
    check_refusal(run("explain", place, tmp_path / "out"), "Permission denied. Choose another folder")


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
def test_a_small_disk_that_fills_up(name, place, tmp_path):
    disk, mount = tmp_path / "disk", shutil.which("mount")
    disk.mkdir()
    for kilobytes in (16, 64, 200):
        options = ["-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs", str(disk)]
        if not mount or subprocess.run([mount, *options], capture_output=True).returncode:
            pytest.skip("a small disk cannot be made here")
        try:
            code, said = run(name, place, disk / "out")
            if code:
                check_refusal((code, said), "Free some space")
            assert not list(disk.rglob("*.part"))
        finally:
            subprocess.run(["umount", str(disk)], check=True)


def flip_a_bit(content):
    """A bit in the middle, where the numbers are."""
    changed = bytearray(content)
    changed[len(changed) // 3] ^= 1
    return bytes(changed)


@pytest.mark.parametrize(
    "damage", [lambda _: b"", lambda content: content[:500], lambda content: content[:-20], flip_a_bit]
)
@pytest.mark.parametrize("command", ["explain", "report {out}", "serve {out} --no-browser"])
def test_a_cut_or_damaged_shard_that_is_not_the_first_is_said(command, damage, place, finished, tmp_path):
    runner, out = CliRunner(), tmp_path / "out"
    start = COMMANDS["explain"].format(**place, out=out).split()
    shutil.copytree(finished["explain"], out)
    last = sorted((out / "results").iterdir())[-1]
    last.write_bytes(damage(last.read_bytes()))
    found = runner.invoke(app, start if command == "explain" else command.format(out=out).split())
    assert found.exit_code == 2, found.output
    assert f"{last.name} is" in found.output
    assert "Delete it" in " ".join(found.output.split())
    last.unlink()
    assert runner.invoke(app, start).exit_code == 0


@pytest.mark.parametrize("command", ["train", "train-vae"])
def test_damage_to_trained_weights_is_said_by_the_same_command(command, place, tmp_path):
    start = [command, "--dataset", place["images"], "--epochs", "1", "--out", str(tmp_path / "out")]
    start += ["--scale", "smoke", "--members", "2"] * (command == "train")
    assert CliRunner().invoke(app, start).exit_code == 0
    assert CliRunner().invoke(app, start).exit_code == 0
    weights = sorted((tmp_path / "out").glob("*.safetensors"))[-1]
    weights.write_bytes(flip_a_bit(weights.read_bytes()))
    found = CliRunner().invoke(app, start)
    assert found.exit_code == 2, found.output
    assert weights.name in found.output.replace("\n", "")
    assert "is damaged" in found.output


@pytest.mark.parametrize("ending", ["shards/**/*.json", "shards/**/*.safetensors", "settings.json", "summary.json"])
@pytest.mark.parametrize("cut", [0, 0.5])
def test_a_cut_evaluation_file_is_said(ending, cut, place, finished, tmp_path):
    runner, out = CliRunner(), tmp_path / "out"
    start = COMMANDS["evaluate"].format(**place, out=out).split()
    shutil.copytree(finished["evaluate"], out)
    file = sorted(out.glob(ending))[-1]
    file.write_bytes(file.read_bytes()[: int(cut * file.stat().st_size)])
    found = runner.invoke(app, ["report", str(out)] if ending == "summary.json" else start)
    assert found.exit_code == 2, found.output
    assert file.name in found.output


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (OSError(28, "No space left on device", "a/b"), "a/b: No space left on device. Free some space"),
        (SafetensorError("Error while serializing: I/O error: x (os error 28)"), "No space left on device. Free"),
        (MemoryError(), "not enough memory"),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried ..."), "not enough memory"),
        (FileNotFoundError(2, "No such file", "x.png"), "x.png: No such file or directory. Was it moved or deleted"),
    ],
)
def test_what_the_system_refuses_is_one_sentence(error, words):
    assert words in describe_failure(error)


@pytest.mark.parametrize("error", [ValueError("a"), OSError("no number"), RuntimeError("shapes"), KeyError("os error")])
def test_other_errors_are_ours(error):
    assert describe_failure(error) is None


def test_a_full_standard_output_is_said(place, tmp_path):
    if not Path("/dev/full").exists():
        pytest.skip("there is no /dev/full")
    with open("/dev/full", "w") as full:
        command = [*START, *COMMANDS["explain"].format(**place, out=tmp_path / "out").split()]
        found = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    assert found.returncode != 3
    assert "Traceback" not in found.stderr
