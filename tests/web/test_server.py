"""The explorer's server from outside, on the loopback: foreign, hostile, broken and very many requests."""

import io
import json
import random
import signal
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from PIL import Image

from tests.web.explorer_server import API, explorer

pytest.importorskip("gradio", reason="the explorer needs the extra 'web'")
VALUES = [None, None, "epistemic", "ua-backprop", "fullgrad", 0.08, 0.3, 0.75, 0, 0.05, 4]
ROUTES = ["/", "/config", f"{API}/info", f"{API}/upload", f"{API}/queue/join", f"{API}/queue/data?session_hash=x"]
MEMORY = 2**30  # bytes that the whole process may take, torch and all


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with explorer(tmp_path_factory.mktemp("server")) as running:
        yield running


def functions(server):
    """The numbers of the page's functions, by what starts them."""
    return {found["targets"][0][1]: found["id"] for found in server.config()["dependencies"]}


def png(side, mode="1"):
    pixels = np.random.default_rng(0).integers(0, 2, (side, side), np.uint8) * 255
    stream = io.BytesIO()
    Image.fromarray(pixels).convert(mode).save(stream, "PNG")
    return stream.getvalue()


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


def test_a_path_instead_of_an_upload_is_refused(server):
    for path in ("/etc/passwd", str(server.temporary.parent / "images.npz")):
        file = {"path": path, "meta": {"_type": "gradio.FileData"}}
        found = server.call(functions(server)["upload"], [file], "paths")
        assert not found.get("success"), found
        assert "images.npz is" not in json.dumps(found)


def test_uploads_too_large_or_broken_are_refused_and_the_server_goes_on(server):
    assert server.upload("a.png", b"x" * 22_000_000)[0] in (0, 413)
    for body in (b"", b"--", b"rubbish" * 100):
        status, _ = server.request("POST", f"{API}/upload", body, Content_Type="multipart/form-data; boundary=x")
        assert 400 <= status < 600
    assert server.is_alive()


def test_a_small_file_of_many_pixels_is_bounded_in_time_and_memory(server):
    numbers = functions(server)
    path = json.loads(server.upload("big.png", png(5000))[1])[0]
    file = {"path": path, "meta": {"_type": "gradio.FileData"}, "orig_name": "big.png"}
    start = time.monotonic()
    assert server.call(numbers["upload"], [file], "big")["success"]
    found = server.call(numbers["success"], [*VALUES, ""], "big")
    assert "1024 × 1024 pixels" in found["output"]["data"][2]
    assert time.monotonic() - start < 60  # 3 seconds where nothing else runs
    assert server.peak_memory() < MEMORY
    path = json.loads(server.upload("huge.png", png(5200))[1])[0]
    found = server.call(numbers["upload"], [{**file, "path": path, "orig_name": "huge.png"}], "big")
    assert "huge.png has 5200 x 5200 pixels; at most" in found["output"]["data"][1]


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM])
def test_nothing_is_left_in_the_temporary_folder(tmp_path, end):
    with explorer(tmp_path, end=end) as running:
        running.upload("a.png", png(20))
        running.call(functions(running)["load"], VALUES, "visit")
        assert len([path for path in running.temporary.rglob("*") if path.is_file()]) >= 5
    assert list(running.temporary.iterdir()) == []


@pytest.mark.slow
def test_two_hundred_visitors_at_a_time_get_what_each_would_get_alone(server):
    numbers = functions(server)

    def visit(place):
        session, image = f"visitor-{place}", place % 4
        chosen = server.call(numbers["select"], [], session, event={"index": image, "value": None})
        assert chosen["success"], chosen
        return image, server.call(numbers["then"], VALUES, session)["output"]["data"][2:5]

    alone = dict(visit(place) for place in range(4))
    assert len({found[0] for found in alone.values()}) == 4
    with ThreadPoolExecutor(200) as threads:
        found = list(threads.map(visit, range(1000, 1200)))
    assert all(seen == alone[image] for image, seen in found)
    assert server.peak_memory() < MEMORY
    assert server.is_alive()


def mutate(rng, content):
    """Some bytes changed, cut or repeated."""
    content = bytearray(content)
    for _ in range(rng.randint(1, 8)):
        at = rng.randrange(len(content) + 1)
        kind = rng.randrange(4)
        if kind == 0 and at < len(content):
            content[at] = rng.randrange(256)
        elif kind == 1:
            del content[at : at + rng.randint(1, 20)]
        elif kind == 2:
            content[at:at] = rng.randbytes(rng.randint(1, 20))
        else:
            content[at:at] = content[at : at + 50] * 3
    return bytes(content)


@pytest.mark.slow
def test_rubbish_of_all_kinds_neither_stops_nor_fills_the_server(server):
    rng, numbers = random.Random(0), [*functions(server).values()]
    values = [None, True, -1, 0, 10**30, float("nan"), 1e308, "", "x" * 10_000, [], {}, [[[]]], {"path": "/etc/passwd"}]
    image = png(30, "L")
    before = server.peak_memory()
    classes = {}
    for turn in range(400):
        kind = turn % 4
        if kind == 0:
            data = [rng.choice(values) for _ in range(rng.randrange(14))]
            body = {"data": data, "fn_index": rng.choice([*numbers, -1, 99, "x"]), "session_hash": f"f{turn}"}
            status, said = server.request(
                "POST", f"{API}/queue/join", mutate(rng, json.dumps(body).encode()) if turn % 3 else json.dumps(body),
                Content_Type="application/json",
            )  # fmt: skip
        elif kind == 1:
            path = json.loads(server.upload("a.png", mutate(rng, image))[1])[0]
            file = {"path": path, "meta": {"_type": "gradio.FileData"}}
            said = json.dumps(server.call(functions(server)["upload"], [file], f"f{turn}")).encode()
            status = 200
        elif kind == 2:
            data = [None, None, *[rng.choice(values) for _ in VALUES[2:]]]
            said = json.dumps(server.call(functions(server)["load"], data, f"f{turn}")).encode()
            status = 200
        else:
            path = "/" + mutate(rng, rng.choice(ROUTES).encode()).hex(" ").replace(" ", "%")
            status, said = server.request(rng.choice(["GET", "POST", "PUT", "DELETE", "HEAD"]), path, b"")
        classes[status] = classes.get(status, 0) + 1
        assert b"Traceback" not in said
        assert b"root:" not in said
    print(classes)
    assert server.is_alive()
    assert server.peak_memory() < before + 300 * 2**20
