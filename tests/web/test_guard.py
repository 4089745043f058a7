"""Which requests are answered, and what the page says about uploads and numbers that it refuses."""

import asyncio
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

from dubium.web import answer as a
from dubium.web import images
from dubium.web import session as s
from dubium.web.guard import RequestGuard, server_names
from tests import piles

CONTROLS = ("epistemic", "ua-backprop", "fullgrad", 0.1, 0.3, 0.75, 0, 0.05, 4)


def ask(headers, *, chunks=(b"",), kind="http"):
    """The status of a request, with an app that reads all of its body behind the guard."""
    sent, waiting = [], list(chunks)

    async def app(_scope, receive, send):
        while (await receive()).get("more_body"):
            pass
        await send({"type": "http.response.start", "status": 200, "headers": []})

    async def receive():
        return {"type": "http.request", "body": waiting.pop(0), "more_body": bool(waiting)}

    async def send(message):
        sent.append(message)

    pairs = headers.items() if isinstance(headers, dict) else headers
    scope = {"type": kind, "headers": [(name.encode(), value.encode("latin-1")) for name, value in pairs]}
    guard = RequestGuard(app, names=server_names("127.0.0.1"), most=100)
    asyncio.run(guard(scope, receive, send))
    return sent[0].get("status", sent[0]["type"])


@pytest.mark.parametrize("host", ["127.0.0.1:7860", "localhost:7860", "LOCALHOST", "[::1]:7860", "192.168.1.7:80"])
def test_hosts_of_this_machine_are_answered(host):
    assert ask({"host": host}) == 200
    assert ask({"host": host, "origin": f"http://{host}", "sec-fetch-site": "same-origin"}) == 200
    assert ask({"host": host, "sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}) == 200  # a link


@pytest.mark.parametrize(
    "host",
    ["", "evil.example", "evil.example:7860", "localhost.evil.example", "127.0.0.1.evil.example", "user@localhost",
     "localhost:x", "localhost/", "[::1", "\x00", "é", "127.0.0.1#"],
)  # fmt: skip
def test_names_of_others_are_refused(host):
    assert ask({"host": host}) == 403
    assert ask({"host": host}, kind="websocket") == "websocket.close"


def test_a_request_without_a_host_is_refused():
    assert ask({}) == 403


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": ""},
        {"origin": "http://localhost:3000"},
        {"origin": "http://[::1"},
        {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"},
        {"sec-fetch-site": "same-site", "sec-fetch-mode": "cors"},
    ],
)
def test_requests_of_other_sites_are_refused(headers):
    assert ask({"host": "localhost:7860", **headers}) == 403


@pytest.mark.parametrize("name", ["host", "origin", "sec-fetch-site", "content-length"])
def test_a_header_by_which_requests_are_judged_is_there_once(name):
    values = {"host": "localhost", "origin": "http://localhost", "sec-fetch-site": "same-origin", "content-length": "1"}
    assert ask(list(values.items())) == 200
    for value in ("evil.example", values[name]):
        assert ask([(name, value), *values.items()]) == 400
        assert ask([*values.items(), (name.title(), value)]) == 400
    assert ask([*values.items(), ("accept", "a"), ("accept", "b")]) == 200


@pytest.mark.parametrize("length", ["101", "1" * 5000, "-1", "x", "1e1"])
def test_bodies_that_are_announced_too_large_are_refused(length):
    assert ask({"host": "localhost", "content-length": length}) == 413


def test_bodies_that_become_too_large_are_refused():
    assert ask({"host": "localhost"}, chunks=[b"x" * 60, b"x" * 40]) == 200
    assert ask({"host": "localhost"}, chunks=[b"x" * 60, b"x" * 41]) == 413


@pytest.fixture(scope="module")
def session(tmp_path_factory):
    folder = tmp_path_factory.mktemp("session")
    named = {"run": piles.posterior(folder / "posterior")}, {"dataset": piles.arrays(folder / "images.npz")}
    return s.open_posterior_session(*named)


@pytest.mark.parametrize(("place", "value"), [(3, float("nan")), (5, 2), (8, 1e9), (8, float("inf")), (7, -1)])
def test_numbers_outside_of_the_sliders_are_refused_and_nothing_stays_shown(session, tmp_path, place, value):
    first = a.answer_controls(session, tmp_path, a.Controls(session.pictures[0], None, *CONTROLS))
    assert first.view
    values = [*CONTROLS[:place], value, *CONTROLS[place + 1 :]]
    found = a.answer_controls(session, tmp_path, a.Controls(session.pictures[0], first.last, *values))
    assert "expected a number from" in found.message
    assert (found.last, found.view, found.facts, found.blurred, found.png, found.npy) == (None, "", "", "", "", "")


def test_an_unknown_method_or_a_refused_upload_leaves_no_other_result(session, tmp_path):
    item = session.pictures[0]
    values = [CONTROLS[0], "no-such-method", *CONTROLS[2:]]
    found = a.answer_controls(session, tmp_path, a.Controls(item, None, *values))
    assert "no-such-method" in found.message
    assert (found.view, found.facts) == ("", "")
    refused = a.answer_controls(session, tmp_path, a.Controls(item, None, *CONTROLS, message="refused"))
    assert (refused.message, refused.view, refused.npy) == ("refused", "", "")


@pytest.mark.parametrize(("place", "value"), [*((at, "x") for at in range(3)), *((at, 10**400) for at in range(3, 9))])
def test_values_that_no_control_has_are_refused_and_nothing_stays_shown(session, tmp_path, place, value):
    values = [value if at == place else control for at, control in enumerate(CONTROLS)]
    found = a.answer_controls(session, tmp_path, a.Controls(session.pictures[0], None, *values))
    assert 'role="alert"' in found.message
    assert found.view == found.facts == found.blurred == found.png == found.npy == ""


def test_names_without_end_and_full_disks_leave_no_error_of_others(session, tmp_path):
    item = replace(session.pictures[0], path="a" * 250 + ".png")
    assert a.answer_controls(session, tmp_path, a.Controls(item, None, *CONTROLS)).png.exists()
    found = a.answer_controls(session, tmp_path / "gone", a.Controls(item, None, *CONTROLS))
    assert "cannot be written: No such file or directory" in found.message
    assert found.view == found.png == ""


def test_without_an_image_one_is_asked_for(session, tmp_path):
    found = a.answer_controls(session, tmp_path, a.Controls(None, None, *CONTROLS))
    assert "Pick or upload an image first." in found.message
    assert found.view == ""


def test_no_temporary_path_is_shown(tmp_path):
    missing, broken, folder = tmp_path / "a.png", tmp_path / "b.png", tmp_path / "c.png"
    broken.write_bytes(b"rubbish")
    folder.mkdir()
    for path in (missing, broken, folder):
        item, said = a.answer_upload(str(path))
        assert item is None
        assert path.name in said
        assert str(tmp_path) not in said


def test_large_uploads_are_made_smaller(tmp_path):
    Image.fromarray(np.zeros((3000, 1500), np.uint8)).save(tmp_path / "a.png")
    assert images.read_upload(tmp_path / "a.png").image.shape == (1, 512, 256)
    Image.fromarray(np.full((2, 4000), 65535, np.uint16)).save(tmp_path / "b.png")
    wide = images.read_upload(tmp_path / "b.png").image
    assert wide.shape == (1, 1, 512)
    torch.testing.assert_close(wide, torch.ones(1, 1, 512))


def test_few_downloads_are_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(a, "DOWNLOADS", 3)
    for _ in range(6):
        png, npy = a.write_downloads(tmp_path, "x", np.zeros((2, 2, 3)), np.zeros((2, 2), np.float32))
    assert len(list(tmp_path.iterdir())) == 3
    assert png.is_file()
    assert npy.is_file()
