"""Which requests the explorer answers: those of its own page, at an address that is this machine's, of bounded size.

A foreign site can make a visitor's browser send requests here, and by DNS rebinding even under a name of its own. Its
name is then in `Host`, or its address in `Origin`; both are checked before any route sees the request.
"""

import socket
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from contextlib import suppress
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


JUDGED = (
    "host",
    "origin",
    "sec-fetch-site",
    "sec-fetch-mode",
    "content-length",
)  # headers by which a request is judged


class BodyTooLargeError(Exception):
    """A request whose body has more bytes than are taken."""


class RequestGuard:
    """ASGI middleware that refuses foreign and oversized requests.

    Args:
        app: what answers the others.
        names: that a browser may know this server by, besides addresses in numbers.
        most: bytes of a request's body.
    """

    def __init__(self, app: App, *, names: Iterable[str], most: int) -> None:
        self.app, self.names, self.most = app, frozenset(names), most

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        pairs = [(name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in scope["headers"]]
        names = [name for name, _ in pairs if name in JUDGED]
        refusal = (400, "A header is there twice.") if len(names) > len({*names}) else self.refusal(dict(pairs))
        if refusal is not None:
            await refuse(scope, send, *refusal)
            return
        started = False

        async def note_start(message: MutableMapping[str, Any]) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            await self.app(scope, self.bounded(receive), note_start)
        except BodyTooLargeError:
            if not started:
                await refuse(scope, send, 413, f"At most {self.most:,} bytes are taken.")

    def refusal(self, headers: dict[str, str]) -> tuple[int, str] | None:
        """Status and reason for a request that is not answered."""
        host = headers.get("host", "")
        if not is_known_host(host, self.names):
            return 403, f"This server is not called {host[:200]!r}. Open it by its address in numbers, or as localhost."
        origin = headers.get("origin")
        if origin is not None and urlsplit_host(origin) != host.lower():
            return 403, "The request comes from another site."
        is_navigation = headers.get("sec-fetch-mode") == "navigate"
        if headers.get("sec-fetch-site") in ("cross-site", "same-site") and not is_navigation:
            return 403, "The request comes from another site."
        length = headers.get("content-length", "0")
        if not length.isdecimal() or int(length[:20]) > self.most:
            return 413, f"At most {self.most:,} bytes are taken."
        return None

    def bounded(self, receive: Receive) -> Receive:
        """`receive`, until more bytes have come than are taken, whatever the headers said."""
        count = 0

        async def receive_some() -> MutableMapping[str, Any]:
            nonlocal count
            message = await receive()
            count += len(message.get("body", b"") or b"")
            if count > self.most:
                raise BodyTooLargeError
            return message

        return receive_some


async def refuse(scope: Scope, send: Send, status: int, reason: str) -> None:
    """Answer with a status and a line of text."""
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1008})
        return
    body = reason.encode()
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": [*headers, (b"connection", b"close")]})
    await send({"type": "http.response.body", "body": body})


def is_known_host(host: str, names: Iterable[str]) -> bool:
    """Whether a `Host` header names this server: an address in numbers, which no foreign site can have, or its name."""
    name = host_name(host)
    if name is None:
        return False
    with suppress(ValueError):
        ip_address(name)
        return True
    return name in names


def host_name(host: str) -> str | None:
    """The name in a `Host` header without its port, in small letters; None if it is not one."""
    try:
        found = urlsplit(f"//{host}")
        name, _port = found.hostname, found.port  # the port raises if it is no number
    except ValueError:
        return None
    return name if found.netloc == host and "@" not in host else None


def urlsplit_host(origin: str) -> str | None:
    """Name and port in an `Origin` header; None for "null" and rubbish."""
    try:
        return urlsplit(origin).netloc.lower() or None
    except ValueError:
        return None


def server_names(host: str) -> frozenset[str]:
    """Names that a browser on this machine, or on a machine that may connect, knows the server by."""
    if host in ("127.0.0.1", "localhost", "::1"):
        return frozenset({"localhost"})
    own = socket.gethostname().lower()
    return frozenset({"localhost", own, f"{own}.local", socket.getfqdn().lower(), host.lower()})
