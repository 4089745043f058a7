"""`dubium serve` in a process of its own, and requests to it as a page, or anybody, sends them."""

import http.client
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from tests import piles

API = "/gradio_api"
START = [sys.executable, "-c", "from dubium.cli import app; app()"]


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Server:
    """A running explorer."""

    def __init__(self, process, port, temporary):
        self.process, self.port, self.temporary = process, port, temporary

    def request(self, method, path, body=None, *, timeout=600, **headers):
        """Status and body of one request; headers by name, `_` for `-`."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            try:
                connection.request(method, path, body, named)
            except (ConnectionResetError, BrokenPipeError):
                return 0, b"the server hung up before it had read all"
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def config(self):
        return json.loads(self.request("GET", "/config")[1])

    def upload(self, name, content, **headers):
        """Status and answer of an upload."""
        edge = secrets.token_hex(8)
        head = f'--{edge}\r\nContent-Disposition: form-data; name="files"; filename="{name}"\r\n\r\n'.encode()
        body = head + content + f"\r\n--{edge}--\r\n".encode()
        kind = f"multipart/form-data; boundary={edge}"
        return self.request("POST", f"{API}/upload", body, Content_Type=kind, **headers)

    def call(self, function, data, session, *, event=None):
        """What a function of the page gives, by its number, through the queue."""
        body = {"data": data, "fn_index": function, "session_hash": session, "event_data": event}
        status, said = self.request("POST", f"{API}/queue/join", json.dumps(body), Content_Type="application/json")
        if status != 200:
            return {"status": status, "said": said}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=600)
        try:
            connection.request("GET", f"{API}/queue/data?session_hash={session}")
            for line in connection.getresponse():
                if line.startswith(b"data:"):
                    message = json.loads(line[5:])
                    if message["msg"] in ("process_completed", "unexpected_error", "close_stream"):
                        return message
        finally:
            connection.close()
        raise AssertionError("no answer")

    def peak_memory(self):
        """The most bytes of memory that the process has had."""
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        return 1024 * int(next(line for line in text.splitlines() if line.startswith("VmHWM")).split()[1])

    def processor_seconds(self):
        """How long the process has computed: on a busy machine far less than has passed."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def is_alive(self):
        return self.process.poll() is None and self.request("GET", "/config")[0] == 200


@contextmanager
def explorer(folder, *, end=signal.SIGINT, images=4):
    """A server on a small posterior, with a temporary folder of its own."""
    folder, port, temporary = Path(folder), free_port(), Path(folder) / "tmp"
    temporary.mkdir()
    piles.posterior(folder / "posterior")
    piles.arrays(folder / "images.npz", count=images)
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "TMPDIR": str(temporary)}
    command = [*START, "serve", "posterior", "--dataset", "images.npz", "--no-browser", "--port", str(port)]
    hear_ctrl_c = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)  # which a shell's background ignores
    pipes = {"stdout": subprocess.PIPE, "text": True, "preexec_fn": hear_ctrl_c}
    with subprocess.Popen(command, cwd=folder, env=environment, **pipes) as process:
        try:
            said = process.stdout.readline()
            assert f"http://127.0.0.1:{port}" in said, said
            server = Server(process, port, temporary)
            yield server
            process.send_signal(end)
            process.wait(600)
            server.last_words = process.stdout.read()
        finally:
            process.kill()
