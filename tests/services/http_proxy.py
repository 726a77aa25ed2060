"""An HTTP proxy in front of a service: counts requests, and loses, delays or doubles them as a test asks.

    with HttpProxy("http://127.0.0.1:19120") as proxy:
        proxy.on("POST", "/history/commit", lose_reply)     # the next such request is done, and nobody hears of it

Each fault hits one request and is used up.
"""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import urlsplit


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """What the client sent."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass(frozen=True, kw_only=True, slots=True)
class Reply:
    """What the service answered; None in place of it means that the connection is cut."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes


Forward = Callable[[Request], Reply]
Fault = Callable[[Request, Forward], Reply | None]


def lose_request(request: Request, forward: Forward) -> None:
    """The service never sees it."""


def lose_reply(request: Request, forward: Forward) -> None:
    """The service does it, the client never hears."""
    forward(request)


def double(request: Request, forward: Forward) -> Reply:
    """A gateway that sends it twice, and hands on the second answer."""
    forward(request)
    return forward(request)


def fail_after(status: int) -> Fault:
    """The service does it, and a gateway answers with an error page."""

    def fault(request: Request, forward: Forward) -> Reply:
        forward(request)
        return error_page(status)

    return fault


def fail_before(status: int) -> Fault:
    """The service never sees it, and a gateway answers with an error page."""
    return lambda request, forward: error_page(status)


def delay(seconds: float) -> Fault:
    """The service does it, and the answer comes late."""

    def fault(request: Request, forward: Forward) -> Reply:
        reply = forward(request)
        time.sleep(seconds)
        return reply

    return fault


def error_page(status: int) -> Reply:
    return Reply(status=status, headers=(("Content-Type", "text/html"),), body=b"<html>no luck</html>")


class HttpProxy:
    """Listens on the loopback interface and hands everything on to one service.

    Attributes:
        guard: what becomes of the requests that no fault hits; hands them on unless a test puts another here.
        requests: all that came, in order.
    """

    def __init__(self, target: str) -> None:
        self._target = urlsplit(target).netloc
        self.guard: Fault = lambda request, forward: forward(request)
        self._faults: list[tuple[str, str, Fault]] = []
        self._lock = threading.Lock()
        self.requests: list[Request] = []
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_any(self) -> None:
                proxy._serve(self)

            do_GET = do_POST = do_PUT = do_DELETE = do_HEAD = do_any  # noqa: N815

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.port = int(self._server.server_address[1])
        self.uri = f"http://127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def on(self, method: str, word: str, fault: Fault) -> None:
        """Do this to the next request of the method with the word in its path, headers or body."""
        with self._lock:
            self._faults.append((method, word, fault))

    def forget(self) -> None:
        """Begin anew, without faults and requests: for the next test."""
        with self._lock:
            self._faults.clear()
            self.requests.clear()

    @property
    def is_done(self) -> bool:
        """Whether every fault has hit."""
        return not self._faults

    def count(self) -> list[tuple[str, str]]:
        """Return (method, path) of all requests since the last call."""
        seen = [(request.method, request.path) for request in self.requests]
        self.requests.clear()
        return seen

    def _serve(self, handler: BaseHTTPRequestHandler) -> None:
        length = int(handler.headers.get("Content-Length") or 0)
        request = Request(
            method=handler.command,
            path=handler.path,
            headers=dict(handler.headers.items()),
            body=handler.rfile.read(length),
        )
        self.requests.append(request)
        reply = (self._fault(request) or self.guard)(request, self._forward)
        if reply is None:
            handler.close_connection = True
            return
        handler.send_response_only(reply.status)
        for name, value in reply.headers:
            if name.lower() not in ("transfer-encoding", "connection", "content-length"):
                handler.send_header(name, value)
        told = {name.lower(): value for name, value in reply.headers}.get("content-length", "0")
        handler.send_header("Content-Length", told if request.method == "HEAD" else str(len(reply.body)))
        with suppress(BrokenPipeError, ConnectionResetError):  # the client has given up
            handler.end_headers()
            if request.method != "HEAD":  # what came after it would be taken for the next answer
                handler.wfile.write(reply.body)

    def _fault(self, request: Request) -> Fault | None:
        text = f"{request.path} {request.headers} ".encode() + request.body
        with self._lock:
            for number, (method, word, fault) in enumerate(self._faults):
                if method == request.method and word.encode() in text:
                    del self._faults[number]
                    return fault
        return None

    def _forward(self, request: Request) -> Reply:
        connection = http.client.HTTPConnection(self._target, timeout=60)
        headers = {name: value for name, value in request.headers.items() if name.lower() != "host"}
        try:
            connection.request(request.method, request.path, request.body or None, headers)
            answer = connection.getresponse()
            return Reply(status=answer.status, headers=tuple(answer.getheaders()), body=answer.read())
        finally:
            connection.close()
