"""Requests that no page would send: values, uploads, numbers and addresses with damage."""

import io
import json

import numpy as np
from PIL import Image

from tests.web.explorer_server import API

CONTROLS = [None, None, "epistemic", "ua-backprop", "fullgrad", 0.08, 0.3, 0.75, 0, 0.05, 4]
ROUTES = ["/", "/config", f"{API}/info", f"{API}/upload", f"{API}/queue/join", f"{API}/queue/data?session_hash=x"]
VALUES = [None, True, -1, 0, 10**30, float("nan"), 1e308, "", "x" * 10_000, [], {}, [[[]]], {"path": "/etc/passwd"}]
VERBS = ["GET", "POST", "PUT", "DELETE", "HEAD"]


def functions(server):
    """The numbers of the page's functions, by what starts them."""
    return {found["targets"][0][1]: found["id"] for found in server.config()["dependencies"]}


def png(side, mode="1"):
    pixels = np.random.default_rng(0).integers(0, 2, (side, side), np.uint8) * 255
    stream = io.BytesIO()
    Image.fromarray(pixels).convert(mode).save(stream, "PNG")
    return stream.getvalue()


def show_image(server, place, session):
    """Map, facts and blurred image that a visitor sees of the image at a place."""
    numbers = functions(server)
    assert server.call(numbers["select"], [], session, event={"index": place, "value": None})["success"]
    return server.call(numbers["then"], CONTROLS, session)["output"]["data"][2:5]


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


def send_rubbish(server, rng, turn, numbers):
    """Status and answer of one of four kinds of rubbish, in turn."""
    send = (send_values, send_upload, send_controls, send_address)[turn % 4]
    return send(server, rng, turn, numbers)


def send_values(server, rng, turn, numbers):
    data = [rng.choice(VALUES) for _ in range(rng.randrange(14))]
    body = {"data": data, "fn_index": rng.choice([*numbers.values(), -1, 99, "x"]), "session_hash": f"f{turn}"}
    text = json.dumps(body).encode()
    text = mutate(rng, text) if turn % 3 else text
    return server.request("POST", f"{API}/queue/join", text, Content_Type="application/json")


def send_upload(server, rng, turn, numbers):
    path = json.loads(server.upload("a.png", mutate(rng, png(30, "L")))[1])[0]
    file = {"path": path, "meta": {"_type": "gradio.FileData"}}
    return 200, json.dumps(server.call(numbers["upload"], [file], f"f{turn}"), default=str).encode()


def send_controls(server, rng, turn, numbers):
    data = [None, None, *[rng.choice(VALUES) for _ in CONTROLS[2:]]]
    return 200, json.dumps(server.call(numbers["then"], data, f"f{turn}"), default=str).encode()


def send_address(server, rng, _turn, _numbers):
    path = "/" + mutate(rng, rng.choice(ROUTES).encode()).hex(" ").replace(" ", "%")
    return server.request(rng.choice(VERBS), path, b"")
