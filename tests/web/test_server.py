"""The explorer's server from outside, on the loopback: foreign, hostile, broken and very many requests."""

import json
import random
import signal
import socket
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest

from tests.web import explorer_server
from tests.web.explorer_server import API, explorer
from tests.web.rubbish import CONTROLS, ROUTES, functions, png, send_rubbish, show_image

pytest.importorskip("gradio", reason="the explorer needs the extra 'web'")
MEMORY = 2**30  # bytes that the whole process may take, torch and all


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with explorer(tmp_path_factory.mktemp("server")) as running:
        yield running


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("headers", [{"Host": "evil.example"}, {"Origin": "http://evil.example"}, {"Origin": "null"}])
def test_every_route_refuses_foreign_hosts_and_origins(server, route, headers):
    for method in ("GET", "POST", "OPTIONS"):
        status, _ = server.request(method, route, b"{}" if method == "POST" else None, **headers)
        assert status in (400, 403), (method, status)  # 400: the framework's own answer to a preflight


def test_the_page_itself_is_answered(server):
    assert server.request("GET", "/", Origin=f"http://127.0.0.1:{server.port}")[0] == 200
    assert server.request("GET", "/", Host=f"localhost:{server.port}")[0] == 200


@pytest.mark.parametrize(
    "path",
    [
        "file=/etc/passwd",
        "file=../../../../etc/passwd",
        "file=%2fetc%2fpasswd",
        "file=/proc/self/environ",
        "file={folder}/images.npz",
        "file={folder}/posterior/posterior.json",
        "file={link}",
        "file=http://127.0.0.1:{port}/config",
        "proxy=http://127.0.0.1:{port}/config",
        "upload_progress?upload_id=../../x",
    ],
)
def test_files_of_this_machine_are_not_given(server, path):
    folder = server.temporary.parent
    link = next(server.temporary.glob("dubium-*")) / "link"
    if not link.is_symlink():
        link.symlink_to(folder / "images.npz")
    status, body = server.request("GET", f"{API}/{path.format(folder=folder, link=link, port=server.port)}")
    assert status >= 400 or path.startswith("upload_progress"), body[:200]
    assert b"root:" not in body
    assert b"sha256" not in body


def send_bytes(server, content):
    """What the server says to these bytes, up to 4 kB; nothing where it hangs up."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=600) as connection:
        try:
            connection.sendall(content)
            return connection.recv(4096)
        except OSError:
            return b""


@pytest.mark.parametrize(
    "request_text",
    [
        "GET / HTTP/1.1\r\n{host}Host: evil.example\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: evil.example\r\n{host}\r\n",
        "GET http://evil.example/config HTTP/1.1\r\nHost: evil.example\r\n\r\n",
        "GET /config HTTP/1.1\r\n{host}Origin: http://evil.example\r\nOrigin: http://127.0.0.1:{port}\r\n\r\n",
        "POST {api}/queue/join HTTP/1.1\r\n{host}Content-Length: 6\r\nContent-Length: 60\r\n\r\nabcdef",
        "POST {api}/queue/join HTTP/1.1\r\n{host}Content-Length: -1\r\n\r\nabcdef",
        "GET / HTTP/1.1\r\n{host}X: " + "a" * 10**6 + "\r\n\r\n",
        "GET / HTTP/1.1\r\n{host}" + "X: a\r\n" * 10**5 + "\r\n",
        "GET {api}/queue/join HTTP/1.1\r\n{host}Upgrade: websocket\r\nConnection: Upgrade\r\n"
        "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nOrigin: http://evil.example\r\n\r\n",
        "GET /static/%2e%2e/%2e%2e/%2e%2e/etc/passwd HTTP/1.1\r\n{host}\r\n",
        "GET /assets/..%5c..%5cetc%5cpasswd HTTP/1.1\r\n{host}\r\n",
        "GET {api}/file=%252e%252e%252fetc%252fpasswd HTTP/1.1\r\n{host}\r\n",
        "\x16\x03\x01",
    ],
)
def test_requests_that_no_browser_sends_are_refused(server, request_text):
    host = f"Host: 127.0.0.1:{server.port}\r\n"
    text = request_text.replace("{host}", host).replace("{port}", str(server.port)).replace("{api}", API)
    said = send_bytes(server, text.encode("latin-1") + b"\r\n\r\n")
    assert said == b"" or said.startswith(b"HTTP/1.1 4"), said[:200]
    assert b"root:" not in said


def test_an_upload_of_many_parts_and_connections_that_say_nothing_do_not_stop_it(server):
    part = b'--x\r\nContent-Disposition: form-data; name="files"; filename="a.png"\r\n\r\na\r\n'
    kind = "multipart/form-data; boundary=x"
    status, said = server.request("POST", f"{API}/upload", part * 5000 + b"--x--\r\n", Content_Type=kind)
    assert (status, said[:14]) == (400, b"Too many files")
    nested = b'{"data":' + b"[" * 10**5 + b"]" * 10**5 + b"}"
    assert server.request("POST", f"{API}/queue/join", nested, Content_Type="application/json")[0] == 400
    status, said = server.upload("../../x\x1b<b>.png", b"abc")
    assert status == 200
    assert str(server.temporary) in said.decode()
    assert json.loads(said)[0].rpartition("/")[2] == "xb.png"
    with ExitStack() as waiting:
        for _ in range(200):
            connection = waiting.enter_context(socket.create_connection(("127.0.0.1", server.port)))
            connection.sendall(b"GET / HTTP/1.1\r\nX: ")
        assert server.is_alive()
    assert server.peak_memory() < MEMORY


def test_a_path_instead_of_an_upload_is_refused(server):
    for path in ("/etc/passwd", str(server.temporary.parent / "images.npz")):
        file = {"path": path, "meta": {"_type": "gradio.FileData"}}
        found = server.call(functions(server)["upload"], [file], "paths")
        assert not found.get("success"), found
        assert "images.npz is" not in json.dumps(found)


def test_uploads_too_large_or_broken_are_refused_and_the_server_goes_on(server):
    assert server.upload("a.png", b"x" * 22_000_000)[0] in (0, 413)
    for body in (b"", b"--", b"rubbish" * 100):
        status, said = server.request("POST", f"{API}/upload", body, Content_Type="multipart/form-data; boundary=x")
        assert status >= 400 or said == b"[]"
    assert server.is_alive()


def test_a_small_file_of_many_pixels_is_made_smaller_and_bounded_in_memory(server):
    numbers = functions(server)
    path = json.loads(server.upload("big.png", png(5000))[1])[0]
    file = {"path": path, "meta": {"_type": "gradio.FileData"}, "orig_name": "big.png"}
    before = server.processor_seconds()
    assert server.call(numbers["upload"], [file], "big")["success"]
    found = server.call(numbers["success"], [*CONTROLS, ""], "big")
    assert "512 × 512 pixels" in found["output"]["data"][2]
    assert server.processor_seconds() - before < 60  # it is about 3
    assert server.peak_memory() < MEMORY
    path = json.loads(server.upload("huge.png", png(5200))[1])[0]
    found = server.call(numbers["upload"], [{**file, "path": path, "orig_name": "huge.png"}], "big")
    assert "huge.png has 5200 x 5200 pixels; at most" in found["output"]["data"][1]


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM])
def test_nothing_is_left_in_the_temporary_folder(tmp_path, end):
    with explorer(tmp_path, end=end) as running:
        running.upload("a.png", png(20))
        show_image(running, 0, "visit")
        assert len([path for path in running.temporary.rglob("*") if path.is_file()]) >= 5
    assert list(running.temporary.iterdir()) == []
    assert (running.process.returncode, running.last_words) == (130, "")


LISTENER = """
import socket, sys
def note(event, details):
    if event in ("socket.connect", "socket.bind", "socket.getaddrinfo", "socket.sendto"):
        place = details[0] if event == "socket.getaddrinfo" else details[1]
        host = place[0] if isinstance(place, tuple) else place
        with open("sockets.txt", "a") as file:
            file.write(f"{event} {host}\\n")
sys.addaudithook(note)
from dubium.cli import app
app()
"""


def test_it_listens_to_this_machine_and_sends_nothing_anywhere(tmp_path, monkeypatch):
    monkeypatch.setattr(explorer_server, "START", [sys.executable, "-c", LISTENER])
    with explorer(tmp_path) as running:
        running.upload("a.png", png(20))
        show_image(running, 0, "visit")
    found = {tuple(line.split(" ", 1)) for line in (tmp_path / "sockets.txt").read_text().splitlines()}
    assert ("socket.bind", "127.0.0.1") in found
    assert {host for _, host in found} <= {"127.0.0.1", "::1", "localhost"}, found


@pytest.mark.slow
def test_two_hundred_visitors_at_a_time_get_what_each_would_get_alone(server):
    def visit(place):
        return place % 4, show_image(server, place % 4, f"visitor-{place}")

    alone = dict(visit(place) for place in range(4))
    assert len({found[0] for found in alone.values()}) == 4
    with ThreadPoolExecutor(200) as threads:
        found = list(threads.map(visit, range(1000, 1200)))
    assert all(seen == alone[image] for image, seen in found)
    assert server.peak_memory() < MEMORY
    assert server.is_alive()


@pytest.mark.slow
def test_rubbish_of_all_kinds_neither_stops_nor_fills_the_server(server):
    rng, numbers, before = random.Random(0), functions(server), server.peak_memory()
    for turn in range(400):
        _, said = send_rubbish(server, rng, turn, numbers)
        assert b"Traceback" not in said
        assert b"root:" not in said
    assert server.is_alive()
    assert server.peak_memory() < before + 300 * 2**20
