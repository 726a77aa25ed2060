"""HTTP on loopback for tests: a server that answers as a function says, and a proxy that spoils real answers."""

import http.client
import json
import re
import socketserver
import ssl
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Literal, Self


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Reply:
    status: int = 200
    body: bytes = b"{}"
    headers: Mapping[str, str] | Sequence[tuple[str, str]] = (("Content-Type", "application/json"),)
    promised_bytes: int | None = None  # a Content-Length that the body falls short of
    size: str | None = None  # the Content-Length of the answer to a HEAD


def document(value: object, status: int = 200, **headers: str) -> Reply:
    kind = {"Content-Type": "application/json"}
    return Reply(status=status, body=json.dumps(value).encode(), headers={**kind, **headers})


Handle = Callable[[Request], Reply | None]


class Listening:
    """A server on loopback that answers in threads until the end of the `with` block.

    Attributes:
        port: where it listens.
    """

    def listen(self, server: socketserver.TCPServer) -> None:
        server.daemon_threads = True
        self._server, self.port = server, int(server.server_address[1])
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class HttpServer(Listening):
    """Answers every request with what `handle` returns; None closes the connection without an answer.

    Args:
        tls: the server's context, for https.

    Attributes:
        seen: the requests so far.
        uri: its address.
    """

    def __init__(self, handle: Handle, *, tls: ssl.SSLContext | None = None) -> None:
        self.handle = handle
        self.seen: list[Request] = []
        lock = threading.Lock()
        owner = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            timeout = 60
            wbufsize = -1  # head and body in one packet, or each answer waits for an acknowledgement

            def setup(self) -> None:
                if tls is not None:  # here and not at the listener, where one client would keep all others waiting
                    self.request = tls.wrap_socket(self.request, server_side=True)
                super().setup()

            def serve(self) -> None:
                size = int(self.headers.get("Content-Length") or 0)
                request = Request(
                    method=self.command, path=self.path, headers=dict(self.headers.items()), body=self.rfile.read(size)
                )
                with lock:
                    owner.seen.append(request)
                reply = owner.handle(request)
                if reply is None:
                    self.close_connection = True
                    return
                self.send_response(reply.status)
                headers = reply.headers.items() if isinstance(reply.headers, Mapping) else reply.headers
                for name, value in headers:
                    self.send_header(name, value)
                length = len(reply.body) if reply.promised_bytes is None else reply.promised_bytes
                if reply.status not in (204, 304):
                    self.send_header("Content-Length", reply.size or str(length))
                self.end_headers()
                if self.command != "HEAD" and reply.status not in (204, 304):
                    self.wfile.write(reply.body)
                if reply.promised_bytes is not None:
                    self.close_connection = True

            def handle_expect_100(self) -> bool:
                allowed = super().handle_expect_100()
                self.wfile.flush()  # the client waits for it before it sends the body
                return allowed

            def handle_one_request(self) -> None:
                try:
                    super().handle_one_request()
                except (BrokenPipeError, ConnectionResetError):  # the client gave up waiting
                    self.close_connection = True

            def log_message(self, format: str, *args: object) -> None:
                """Say nothing."""

        for method in ("GET", "POST", "HEAD", "DELETE", "PUT"):
            setattr(Handler, f"do_{method}", Handler.serve)
        self.listen(_Quiet(("127.0.0.1", 0), Handler))
        self.uri = f"http{'s' if tls else ''}://127.0.0.1:{self.port}"

    def calls(self) -> list[str]:
        """Return method and path of the requests so far, and forget them."""
        found = [str(request) for request in self.seen]
        self.seen.clear()
        return found


class _Quiet(ThreadingHTTPServer):
    def handle_error(self, request: object, client_address: object) -> None:
        """Pass over clients that were not let in; other errors are shown."""
        if not isinstance(sys.exception(), ssl.SSLError | ConnectionError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


@dataclass(frozen=True, kw_only=True, slots=True)
class Fault:
    """What happens to a request whose "METHOD path" matches, once.

    Attributes:
        kind: `lost` (the server does it, the client hears nothing), `status` (the server does it, the client hears
            this status), `slow` (the answer comes after the delay), `torn` (half of the answer), `not sent` (the server
            never hears of it).
    """

    matches: str
    kind: Literal["lost", "status", "slow", "torn", "not sent"]
    status: int = 503
    delay_s: float = 0.0
    headers: Mapping[str, str] = field(default_factory=dict)


class SpoilingProxy(HttpServer):
    """A proxy to a real server; each of its `faults` is used up by the first request that it matches.

    Attributes:
        rewrite: what becomes of the bodies of all answers.
        on_fault: set when one has been used, and the server has done what it was asked, unless it never heard of it.
    """

    def __init__(self, port: int) -> None:
        super().__init__(self._forward)
        self._port = port
        self.faults: list[Fault] = []
        self.on_fault = threading.Event()
        self.rewrite: Callable[[bytes], bytes] = lambda body: body

    def _forward(self, request: Request) -> Reply | None:
        fault = next((each for each in self.faults if re.search(each.matches, str(request))), None)
        if fault is not None:
            self.faults.remove(fault)
            if fault.kind == "not sent":
                self.on_fault.set()
                time.sleep(fault.delay_s)
                return None
        reply = self._ask(request)
        if fault is None:
            return reply
        self.on_fault.set()
        time.sleep(fault.delay_s)
        if fault.kind == "lost":
            return None
        if fault.kind == "status":
            return Reply(status=fault.status, body=b"<html>gateway</html>", headers=fault.headers)
        if fault.kind == "torn":
            half = reply.body[: len(reply.body) // 2]
            return Reply(status=reply.status, body=half, headers=reply.headers, promised_bytes=len(reply.body))
        return reply

    def _ask(self, request: Request) -> Reply:
        answer, body = ask(
            f"127.0.0.1:{self._port}", request, without={"connection", "content-length", "accept-encoding"}
        )
        return Reply(status=answer.status, body=self.rewrite(body), headers=passed_on(answer.getheaders()))


def ask(target: str, request: Request, *, without: Collection[str] = ()) -> tuple[http.client.HTTPResponse, bytes]:
    """Send a request to a service (host:port), without its host and these headers; return the answer and its body."""
    connection = http.client.HTTPConnection(target, timeout=60)
    try:
        headers = {name: value for name, value in request.headers.items() if name.lower() not in {"host", *without}}
        connection.request(request.method, request.path, request.body or None, headers)
        answer = connection.getresponse()
        return answer, answer.read()
    finally:
        connection.close()


def passed_on(headers: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """Return the headers of an answer that a proxy does not make itself."""
    own = {"connection", "content-length", "transfer-encoding", "date", "server"}
    return tuple((name, value) for name, value in headers if name.lower() not in own)
