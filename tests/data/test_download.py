"""Downloads against a server on this machine: resume, checksum, mirrors, archives."""

import hashlib
import io
import tarfile
import threading
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from typer.testing import CliRunner

from dubium.cli import app
from dubium.data import SOURCES, load
from dubium.data.catalog import Download
from dubium.data.download import fetch, get_dataset
from dubium.errors import DataNotFoundError, DownloadError, FileFormatError, UnknownNameError
from tests.data.official import write_cifar_python, write_idx, write_svhn

CONTENT = bytes(range(256)) * 4000


def md5(content):
    return hashlib.md5(content).hexdigest()


class Server(ThreadingHTTPServer):
    """Serves `files`; with `ranges` from the middle too; breaks off after `limit` bytes."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.files, self.ranges, self.limit, self.asked = {}, True, None, []

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_address[1]}/"


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        content = self.server.files.get(self.path[1:])
        self.server.asked.append(self.headers.get("Range"))
        if content is None:
            self.send_error(404)
            return
        wanted, start = self.headers.get("Range"), 0
        if wanted and self.server.ranges:
            start = int(wanted.removeprefix("bytes=").removesuffix("-"))
            if start >= len(content):
                self.send_error(416)
                return
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        else:
            self.send_response(200)
        self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        end = None if self.server.limit is None else start + self.server.limit
        self.wfile.write(content[start:end])

    def log_message(self, *_arguments):
        pass


@pytest.fixture
def server():
    server = Server()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_file_arrives_with_progress_and_without_a_rest(server, tmp_path):
    server.files["a.bin"] = CONTENT
    seen = []
    path = fetch(Download("a.bin", md5(CONTENT), (server.url + "a.bin",)), tmp_path, lambda *n: seen.append(n))
    assert path.read_bytes() == CONTENT
    assert seen[-1] == (len(CONTENT), len(CONTENT))
    assert [p.name for p in tmp_path.iterdir()] == ["a.bin"]


@pytest.mark.parametrize("ranges", [True, False])
def test_an_interrupted_download_goes_on_or_starts_again(ranges, server, tmp_path):
    server.files["a.bin"], server.limit, server.ranges = CONTENT, 300_000, ranges
    download = Download("a.bin", md5(CONTENT), (server.url + "a.bin",))
    with pytest.raises(DownloadError, match=f"300000 of {len(CONTENT)} bytes"):
        fetch(download, tmp_path)
    assert not (tmp_path / "a.bin").exists()
    server.limit = None
    assert fetch(download, tmp_path).read_bytes() == CONTENT
    assert server.asked == [None, "bytes=300000-"]


def test_a_download_that_was_whole_already_is_only_verified(server, tmp_path):
    server.files["a.bin"] = CONTENT
    (tmp_path / "a.bin.part").write_bytes(CONTENT)
    assert fetch(Download("a.bin", md5(CONTENT), (server.url + "a.bin",)), tmp_path).read_bytes() == CONTENT


def test_something_else_than_what_was_published_is_thrown_away(server, tmp_path):
    server.files["a.bin"] = CONTENT
    with pytest.raises(DownloadError, match="not the published file"):
        fetch(Download("a.bin", md5(b"other"), (server.url + "a.bin",)), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_the_next_mirror_is_tried(server, tmp_path):
    server.files["b/a.bin"] = CONTENT
    urls = ("http://127.0.0.1:9/a.bin", server.url + "missing", server.url + "b/a.bin")
    assert fetch(Download("a.bin", md5(CONTENT), urls), tmp_path).read_bytes() == CONTENT
    with pytest.raises(DownloadError, match="404"):
        fetch(Download("c.bin", md5(CONTENT), (server.url + "missing",)), tmp_path)


def test_get_fetches_what_is_missing_and_only_that(server, tmp_path, monkeypatch):
    write_idx(tmp_path / "made", "train")
    write_idx(tmp_path / "made", "t10k")
    files = {path.name: path.read_bytes() for path in (tmp_path / "made").iterdir()}
    server.files.update(files)
    digests = {name: md5(content) for name, content in files.items()}
    downloads = tuple(Download(name, digest, (server.url + name,)) for name, digest in digests.items())
    monkeypatch.setitem(SOURCES, "mnist", replace(SOURCES["mnist"], md5=digests, downloads=downloads))
    assert len(get_dataset("mnist", tmp_path / "data")) == 4
    assert len(load("mnist:train", folders=[tmp_path / "data"])) == 6
    (tmp_path / "data" / "mnist" / "t10k-labels-idx1-ubyte.gz").write_bytes(b"damaged")
    server.asked.clear()
    get_dataset("mnist", tmp_path / "data")
    assert len(server.asked) == 1


def test_only_the_wanted_members_leave_an_archive(server, tmp_path, monkeypatch):
    batches = [f"data_batch_{i}" for i in range(1, 6)] + ["test_batch", "batches.meta"]
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for name in batches:
            write_cifar_python(tmp_path / "made" / name)
            tar.add(tmp_path / "made" / name, f"cifar-10-batches-py/{name}")
        tar.add(tmp_path / "made" / "test_batch", "../../outside")
    content = packed.getvalue()
    server.files["c.tar.gz"] = content
    members = tuple(f"cifar-10-batches-py/{name}" for name in batches)
    download = Download("cifar-10-python.tar.gz", md5(content), (server.url + "c.tar.gz",), members)
    digests = {name: md5((tmp_path / "made" / name).read_bytes()) for name in batches}
    monkeypatch.setitem(SOURCES, "cifar-10", replace(SOURCES["cifar-10"], md5=digests, downloads=(download,)))
    get_dataset("cifar-10", tmp_path / "a" / "data")
    assert len(load("cifar-10", "train", folders=[tmp_path / "a" / "data"])) == 25
    assert {p.name for p in (tmp_path / "a").rglob("*") if p.is_file()} == set(batches)
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "cifar-10-python.tar.gz").write_bytes(content)
    get_dataset("cifar-10", tmp_path / "c", source=tmp_path / "b")
    assert len(load("cifar-10", folders=[tmp_path / "c"])) == 5
    (tmp_path / "b" / "cifar-10-python.tar.gz").write_bytes(content[:2000])
    with pytest.raises(FileFormatError, match=r"cifar-10-python\.tar\.gz"):
        get_dataset("cifar-10", tmp_path / "d", source=tmp_path / "b")


def test_files_are_taken_from_a_folder_after_they_were_read(tmp_path):
    write_svhn(tmp_path / "here" / "test_32x32.mat")
    (path,) = get_dataset("svhn", tmp_path / "data", source=tmp_path / "here")
    assert path == tmp_path / "data" / "svhn" / "test_32x32.mat"
    assert len(load("svhn", folders=[tmp_path / "data"])) == 5
    (tmp_path / "here" / "test_32x32.mat").write_bytes(b"MATLAB")
    with pytest.raises(FileFormatError):
        get_dataset("svhn", tmp_path / "other", source=tmp_path / "here")
    assert not (tmp_path / "other").exists()
    with pytest.raises(DataNotFoundError):
        get_dataset("mnist", tmp_path / "other", source=tmp_path / "here")
    with pytest.raises(UnknownNameError):
        get_dataset("nist", tmp_path / "other")


def test_commands_say_what_they_found_and_mistakes_are_one_message(tmp_path, monkeypatch):
    write_svhn(tmp_path / "here" / "test_32x32.mat")
    run = CliRunner().invoke
    done = run(app, ["data", "get", "svhn", "--from", str(tmp_path / "here"), "--to", str(tmp_path / "data")])
    assert done.exit_code == 0, done.output
    assert "svhn test: 5 images" in done.output
    monkeypatch.setenv("DUBIUM_DATA", str(tmp_path / "data"))
    assert "5 of 26032 images, checksums differ" in run(app, ["data", "check", "svhn"]).output
    assert "test" in run(app, ["data", "list"]).output
    wrong = run(app, ["data", "check", "svhm"])
    assert wrong.exit_code == 2
    assert "Did you mean 'svhn'" in wrong.output
    assert "Traceback" not in wrong.output
