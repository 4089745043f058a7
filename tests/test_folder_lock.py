"""A folder has one owner at a time; a killed owner leaves neither a lock nor half a file that stays."""

import errno
import os
import re
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from dubium import folder_lock
from dubium.cli import app
from dubium.errors import FolderInUseError, OptionError
from dubium.folder_lock import LOCK, delete_unfinished_files, own_folder
from tests import piles

HOLD = """
import sys, time
from dubium.folder_lock import own_folder
with own_folder(sys.argv[1]):
  print(1, flush=True)
  time.sleep(600)
"""


@contextmanager
def holder(folder):
    """A process that owns the folder until it is killed, at the end of the block."""
    with subprocess.Popen([sys.executable, "-c", HOLD, str(folder)], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout.readline() == b"1\n"
            yield process
        finally:
            process.kill()


def test_a_second_owner_is_refused_and_told_who_has_it(tmp_path):
    with holder(tmp_path) as process:
        with pytest.raises(FolderInUseError) as refused, own_folder(tmp_path):
            pytest.fail("both own it")
        assert re.search(rf"in use by process {process.pid} on \S+ since 20\d\d-\S+ \(-c ", str(refused.value))
    with own_folder(tmp_path):  # the lock of a killed owner is gone
        assert str(os.getpid()) in (tmp_path / LOCK).read_text()
    assert not list(tmp_path.iterdir())


def test_blocks_inside_of_each_other_are_one_owner_and_other_threads_are_not(tmp_path):
    refused = []

    def other():
        try:
            with own_folder(tmp_path):
                pass
        except FolderInUseError:
            refused.append(True)

    with own_folder(tmp_path), own_folder(tmp_path / "." / "a" / ".."):
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        assert (tmp_path / LOCK).exists()
    assert refused
    assert not (tmp_path / LOCK).exists()


def test_many_owners_in_turn_never_meet(tmp_path):
    code = (
        "import sys, time, os\nfrom pathlib import Path\nfrom dubium.folder_lock import own_folder\n"
        "from dubium.errors import FolderInUseError\nfolder, got = Path(sys.argv[1]), 0\nend = time.monotonic() + 600\n"
        "while got < 40 and time.monotonic() < end:\n"
        "  try:\n"
        "    with own_folder(folder):\n"
        "      os.close(os.open(folder / 'mine', os.O_CREAT | os.O_EXCL)); (folder / 'mine').unlink(); got += 1\n"
        "  except FolderInUseError: pass\n"
        "print(got)"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in "ab"]
    assert [(p.communicate()[0], p.returncode) for p in processes] == [(b"40\n", 0)] * 2


def test_what_a_killed_run_left_half_written_is_deleted_by_the_next_owner(tmp_path):
    inner = tmp_path / "results"
    inner.mkdir()
    left = [inner / ".explained-00000.parquet.77-0123abcd.part", tmp_path / ".run.json.77-0123abcd.part"]
    kept = [inner / "mine.part", tmp_path / ".hidden", tmp_path / "run.json"]
    other = tmp_path / "blurring"
    other.mkdir()
    theirs = other / ".settings.json.77-0123abcd.part"
    for file in (*left, *kept):
        file.touch()
    with holder(other), own_folder(tmp_path):
        assert not any(file.exists() for file in left)
        assert all(file.exists() for file in kept)
        theirs.touch()
        delete_unfinished_files(tmp_path)
        assert theirs.exists()


def test_a_file_system_without_locks_is_said(tmp_path, monkeypatch):
    def refuse(_handle):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(folder_lock, "lock_handle", refuse)
    with pytest.warns(UserWarning, match="file system without locks"), own_folder(tmp_path):
        pass


def test_on_windows_a_byte_beyond_the_owners_name_is_locked(tmp_path, monkeypatch):
    locked = set()

    def locking(handle, mode, count):
        at = os.fstat(handle).st_ino, os.lseek(handle, 0, os.SEEK_CUR), count
        if mode == "lock" and at in locked:
            raise OSError(errno.EACCES, "Permission denied")
        locked.symmetric_difference_update({at})

    monkeypatch.setitem(sys.modules, "msvcrt", SimpleNamespace(locking=locking, LK_NBLCK="lock", LK_UNLCK="unlock"))
    monkeypatch.setattr(folder_lock, "sys", SimpleNamespace(platform="win32", argv=["dubium", "explain"]))
    with own_folder(tmp_path):
        assert {place for _, place, _ in locked} == {folder_lock.BEYOND}
        with ThreadPoolExecutor(1) as other, pytest.raises(FolderInUseError, match=rf"process {os.getpid()} .*explain"):
            other.submit(own_folder(tmp_path).__enter__).result()
    assert not locked


def test_an_owner_that_did_nothing_leaves_no_folder(tmp_path):
    with pytest.raises(ZeroDivisionError), own_folder(tmp_path / "new"):
        raise ZeroDivisionError
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    "command",
    [
        "explain {run} --dataset {images} --out {out}",
        "uncertainty {run} --dataset {images} --out {out}",
        "evaluate blurring {run} --dataset {images} --scale smoke --out {out}",
        "evaluate all {run} --dataset {images} --scale smoke --out {out}",
        "evaluate mitigation {run} --dataset {images} --scale smoke --out {out}",
        "train --dataset {images} --scale smoke --out {out}",
        "train-vae --dataset {images} --epochs 1 --out {out}",
        "compare {run} {run} --dataset {images} --out {out}",
        "demo --out {out}",
        "reproduce properties --scale smoke --out {out}",
    ],
)
def test_every_command_that_writes_a_folder_is_refused_with_exit_code_2(command, tmp_path):
    names = {"run": piles.posterior(tmp_path / "run"), "images": piles.arrays(tmp_path / "images.npz")}
    with holder(tmp_path / "out") as process:
        found = CliRunner().invoke(app, command.format(**names, out=tmp_path / "out").split())
    assert found.exit_code == 2, found.output
    assert f"in use by process {process.pid}" in " ".join(found.output.split())
    assert [file.name for file in (tmp_path / "out").iterdir()] == [LOCK]


@pytest.mark.slow
def test_two_runs_at_once_leave_the_results_of_the_first(tmp_path):
    names = {"run": piles.posterior(tmp_path / "run"), "images": piles.arrays(tmp_path / "images.npz", 400)}
    start = [sys.executable, "-c", "from dubium.cli import app; app()", "explain", names["run"], "--threads", "1"]
    start += ["--dataset", names["images"], "--out", str(tmp_path / "out"), "--method"]
    first = subprocess.Popen([*start, "ig"], stdout=subprocess.DEVNULL)
    while not (tmp_path / "out" / "results").exists():
        assert first.poll() is None
        time.sleep(0.01)
    second = subprocess.run([*start, "grad", "--fresh"], capture_output=True, text=True)
    assert (second.returncode, first.wait()) == (2, 0)
    assert f"in use by process {first.pid}" in second.stderr


@pytest.mark.skipif(not hasattr(os, "O_NOFOLLOW"), reason="links are followed here")
@pytest.mark.parametrize("plant", [os.symlink, os.link, lambda _, lock: os.mkfifo(lock), lambda _, lock: lock.mkdir()])
def test_a_lock_that_somebody_planted_is_refused_and_what_is_behind_it_stays(plant, tmp_path):
    other, folder = tmp_path / "other.txt", tmp_path / "out"
    other.write_text("not dubium's")
    folder.mkdir()
    plant(other, folder / LOCK)
    with pytest.raises(OptionError, match="Somebody else put it there"), own_folder(folder):
        pass
    assert other.read_text() == "not dubium's"
    assert os.path.lexists(folder / LOCK)
