"""A server on loopback whose answers are meant to harm who asks: bombs, drips, endless answers, huge documents.

    with HostileServer(BOMBS["gzip of 4 GB"]) as server: ...             # every answer is the bomb
    with HostileServer(bomb, honest=handle, when="POST") as server: ...  # only to requests that begin so

An answer is written as bytes, so that it can break every rule of HTTP. A bomb ends when its reader goes away.
`measured` runs a piece of Python in a process of its own, and returns how long it took and how much memory it needed.
"""

from __future__ import annotations

import functools
import gzip
import io
import json
import os
import socket
import socketserver
import ssl
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.support.http_server import Handle, Listening, Reply, Request

ROOT = Path(__file__).resolve().parents[2]
DRIP_S = 0.05
"""Seconds between two bytes of a drip: often enough that no limit of one read sees it."""
_MB = 1 << 20

Bomb = Callable[[Request], Iterable[bytes]]
"""The bytes of an answer, head and all, made as they are sent."""


def head(status: int = 200, *lines: str, **headers: str) -> bytes:
    """Return the head of an answer; an underscore in a name is a hyphen."""
    found = [f"HTTP/1.1 {status} Said", *lines, *(f"{name.replace('_', '-')}: {v}" for name, v in headers.items())]
    return "\r\n".join([*found, "", ""]).encode()


def whole(body: bytes, status: int = 200, **headers: str) -> bytes:
    """Return an answer that keeps the rules of HTTP."""
    return head(status, Content_Length=str(len(body)), **{"Content_Type": "application/json", **headers}) + body


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


@functools.cache
def gzip_of(total_mb: int, *, times: int = 1, filling: bytes = b" ") -> bytes:
    """Return so many MB of a character, compressed (again and again): some MB, or some KB."""
    data = gzip.compress(filling * (16 * _MB), 9) * (total_mb // 16)
    for _ in range(times - 1):
        data = gzip.compress(data, 9)
    return data


def forever(*parts: bytes) -> Iterator[bytes]:
    data = b"".join(parts)
    data *= max(1, 65536 // len(data))
    while True:
        yield data


def dripping(data: bytes, then: bytes = b" ") -> Iterator[bytes]:
    """Yield one byte at a time, for ever."""
    for byte in data:
        yield bytes([byte])
        time.sleep(DRIP_S)
    while True:
        yield then
        time.sleep(DRIP_S)


def _encoded(encoding: str, body: Callable[[], bytes], status: int = 200) -> Bomb:
    return lambda _: [whole(body(), status, Content_Encoding=encoding)]


def _said(*parts: bytes | Callable[[], Iterable[bytes]]) -> Bomb:
    def answer(_: Request) -> Iterator[bytes]:
        for part in parts:
            yield from [part] if isinstance(part, bytes) else part()

    return answer


_CHUNKED = head(Transfer_Encoding="chunked", Content_Type="application/json")

# Names of what clients look for in a document.
_PARTS = (
    *("metadata", "metadata-location", "config", "defaults", "overrides", "endpoints", "access_token", "identifiers"),
    *("reference", "entries", "contents", "hasMore", "Table", "Database", "TableList", "clusterInfo", "apps", "app"),
    *("items", "prefixes", "FileStatus", "FileStatuses", "boolean", "RemoteException", "headers", "error"),
)
BOMBS: Mapping[str, Bomb] = {
    "gzip of 4 GB": _encoded("gzip", lambda: gzip_of(4096)),
    "gzip in gzip of 4 GB": _encoded("gzip, gzip", lambda: gzip_of(4096, times=2)),
    "gzip twice, in two headers": lambda _: [
        head(200, "Content-Encoding: gzip", "Content-Encoding: gzip", Content_Length=str(len(gzip_of(4096, times=2)))),
        gzip_of(4096, times=2),
    ],
    "an encoding that nobody knows": _encoded("snappy-framed", lambda: b"\0\1"),
    "brotli": _encoded("br", lambda: b"\0\1"),
    "zstd": _encoded("zstd", lambda: b"\0\1"),
    "deflate": _encoded("deflate", lambda: b"\0\1"),
    "endless body in chunks": _said(_CHUNKED, lambda: forever(chunk(b" " * 65536))),
    "endless body without a length": _said(head(Connection="close"), lambda: forever(b" ")),
    "a chunk of less than no bytes": _said(_CHUNKED, b"-5\r\nabc\r\n"),
    "two lengths": lambda _: [head(200, "Content-Length: 3", Content_Length="2"), b"{}"],
    "a body of 1 TB": _said(head(Content_Length=str(1 << 40)), lambda: forever(b" ")),
    "endless gzip in chunks": _said(
        head(Transfer_Encoding="chunked", Content_Encoding="gzip"), lambda: forever(chunk(gzip_of(16)))
    ),
    "endless empty members of gzip": _said(
        head(Transfer_Encoding="chunked", Content_Encoding="gzip"), lambda: forever(chunk(gzip.compress(b"") * 50))
    ),
    "endless extension of a chunk": _said(_CHUNKED, b"1;", lambda: forever(b"a")),
    "endless trailers": _said(_CHUNKED, chunk(b"{}"), b"0\r\n", lambda: forever(b"a: b\r\n")),
    "endless header lines": _said(head(200)[:-2], lambda: forever(b"X-A: b\r\n")),
    "an endless header line": _said(head(200)[:-2], b"X-A: ", lambda: forever(b"b")),
    "an endless status line": _said(b"HTTP/1.1 200 ", lambda: forever(b"b")),
    "endless 100 Continue": _said(lambda: forever(head(100))),
    "endless error in chunks": _said(head(500, Transfer_Encoding="chunked"), lambda: forever(chunk(b" " * 65536))),
    "gzip of 4 GB as an error": _encoded("gzip", lambda: gzip_of(4096), 409),
    "gzip in gzip as an error": _encoded("gzip, gzip", lambda: gzip_of(4096, times=2), 409),
    "redirect to itself": lambda request: [head(307, Location=request.path, Content_Length="0")],
    "redirect with an endless body": _said(
        head(307, Location="/v1/elsewhere", Transfer_Encoding="chunked"), lambda: forever(chunk(b" " * 65536))
    ),
    "come again in 30 years": _said(whole(b"{}", 503, Retry_After="1000000000")),
    "too many requests for 30 years": _said(whole(b"{}", 429, Retry_After="1000000000")),
    "arrays in arrays": _said(whole(b"[" * _MB)),
    "objects in objects": _said(whole(b'{"a":' * _MB)),
    "a number of 5 million digits": _said(whole(b'{"a": ' + b"1" * (5 * _MB) + b"}")),
    "30 million empty arrays": lambda _: [whole(_arrays())],
    "30 million empty arrays, compressed": _encoded("gzip", lambda: _compressed_arrays()),
    "an array": _said(whole(b"[7]")),
    "parts of another type": _said(whole(json.dumps(dict.fromkeys(_PARTS, 7)).encode())),
    "a text of 1 GB": _said(head(Content_Length=str(_MB * 1024 + 8)), lambda: _long_text(1024)),
}
"""Answers that end, or that a reader of anything can be given without end, as fast as it reads."""

DRIPS: Mapping[str, Bomb] = {
    "drip of the status line": _said(lambda: dripping(b"HTTP/1.1 200 ", b"O")),
    "drip of header lines": _said(head(200)[:-2], lambda: dripping(b"", b"A")),
    "drip of 100 Continue": _said(lambda: dripping(head(100) * 100_000)),
    "drip of a body": _said(head(Content_Length="1000000", Content_Type="application/json"), lambda: dripping(b"{")),
    "drip of chunks": _said(_CHUNKED, lambda: dripping(chunk(b" ") * 1_000_000)),
    "drip of the length of a chunk": _said(_CHUNKED, lambda: dripping(b"", b"0")),
    "drip of an error": _said(head(409, Content_Length="1000000"), lambda: dripping(b"{")),
    "drip of a body without a length": _said(head(Connection="close"), lambda: dripping(b"{")),
}
"""Answers that come byte by byte and never end."""

SILENCE: Bomb = _said(lambda: _silent())


@functools.cache
def _arrays() -> bytes:
    return b'{"a": [' + b"[]," * (30 * _MB) + b"[]]}"


@functools.cache
def _compressed_arrays() -> bytes:
    # Members of their own, since one takes seconds.
    return gzip.compress(b'{"a": [') + gzip.compress(b"[]," * _MB) * 30 + gzip.compress(b"[]]}")


def _long_text(total_mb: int) -> Iterator[bytes]:
    yield b'{"a": "'
    for _ in range(total_mb):
        yield b"x" * _MB
    yield b'"'


def _silent() -> Iterator[bytes]:
    while True:
        time.sleep(DRIP_S)
        yield b""


def endless_pages(page: Callable[[int], object], **headers: str) -> Bomb:
    """Return the pages of a list without an end.

    Args:
        page: returns the document of a page by its number; the token of the next one is in it.
    """
    numbers = iter(range(1 << 62))
    lock = threading.Lock()

    def answer(_: Request) -> Iterable[bytes]:
        with lock:
            number = next(numbers)
        return [whole(json.dumps(page(number)).encode(), **headers)]

    return answer


class HostileServer(Listening):
    """Answers with a bomb.

    Args:
        honest: what answers the other requests.
        when: what a request for the bomb begins with, "POST /v1/"; or a test of the request.
        tls: the server's context, for https.
        no_handshake: whether it accepts connections and never speaks TLS.

    Attributes:
        seen: the requests so far.
        uri: its address.
    """

    def __init__(
        self,
        bomb: Bomb,
        *,
        honest: Handle | None = None,
        when: str | Callable[[Request], bool] = "",
        tls: ssl.SSLContext | None = None,
        no_handshake: bool = False,
    ) -> None:
        self.bomb, self.honest = bomb, honest
        self.is_for_bomb = when if callable(when) else lambda request: str(request).startswith(when)
        self.seen: list[Request] = []
        self._ended = threading.Event()
        owner = self

        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                try:
                    if no_handshake:
                        owner._ended.wait()
                        return
                    stream = tls.wrap_socket(self.request, server_side=True) if tls else self.request
                    stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    with stream.makefile("rb") as reading:
                        while (request := _read(reading)) is not None and owner._answer(stream, request):
                            pass
                except OSError:
                    pass  # the reader has gone away

        server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler, bind_and_activate=False)
        server.allow_reuse_address = True
        server.request_queue_size = 64
        server.server_bind()
        server.server_activate()
        self.listen(server)
        self.uri = f"http{'s' if tls or no_handshake else ''}://127.0.0.1:{self.port}"

    def _answer(self, stream: socket.socket, request: Request) -> bool:
        self.seen.append(request)
        if self.honest is not None and not self.is_for_bomb(request):
            reply = self.honest(request)
            if reply is None:
                return False
            stream.sendall(_as_bytes(reply, request))
            return True
        for part in self.bomb(request):
            if self._ended.is_set():
                return False
            stream.sendall(part)
        return True

    def calls(self) -> list[str]:
        """Return method and path of the requests so far, and forget them."""
        found = [str(request) for request in self.seen]
        self.seen.clear()
        return found

    def close(self) -> None:
        self._ended.set()
        super().close()


def _read(reading: io.BufferedIOBase) -> Request | None:
    first = reading.readline().decode("latin-1").split()
    if len(first) != 3:
        return None
    headers: dict[str, str] = {}
    while line := reading.readline().decode("latin-1").strip():
        name, _, value = line.partition(":")
        headers[name.strip().title()] = value.strip()
    size = int(headers.get("Content-Length") or 0)
    if headers.get("Expect"):
        size = 0
    body = reading.read(size)
    return Request(method=first[0], path=first[1], headers=headers, body=body)


def _as_bytes(reply: Reply, request: Request) -> bytes:
    lines = reply.headers.items() if isinstance(reply.headers, Mapping) else reply.headers
    length = reply.size or str(len(reply.body))
    has_body = request.method != "HEAD" and reply.status not in (204, 304)
    sizes = {"Content-Length": length} if reply.status not in (204, 304) else {}
    text = [f"{name}: {value}" for name, value in (*lines, *sizes.items())]
    return head(reply.status, *text) + (reply.body if has_body else b"")


@dataclass(frozen=True, kw_only=True, slots=True)
class Measured:
    """What a piece of Python cost in a process of its own.

    Attributes:
        said: its output.
        seconds: the time of the piece, without that of the imports before it.
        processor_seconds: the same, of the processor: what a busy machine does not change.
        more_bytes: how much its memory rose at most, above what it was before.
    """

    said: str
    seconds: float
    processor_seconds: float
    more_bytes: int


_MEASURE = """
import json, resource, sys, time, traceback
from tests.support.peak_memory import peak_bytes
{before}
_before, _start, _processor = peak_bytes(), time.monotonic(), time.process_time()
try:
{piece}
except BaseException as error:
    print(f"{{type(error).__module__}}.{{type(error).__name__}}: {{error}}"[:2000])
else:
    print("no error")
print(json.dumps([time.monotonic() - _start, time.process_time() - _processor, peak_bytes() - _before]))
"""


def measured(before: str, piece: str, *, timeout_s: float = 120, most_bytes: int = 4 << 30) -> Measured:
    """Run a piece of Python in a process of its own.

    Args:
        before: what comes before it and is not measured: imports, and what is opened.
        most_bytes: the address space of the process: a bomb must not take the machine with it.
    """
    script = _MEASURE.format(before=textwrap.dedent(before), piece=textwrap.indent(textwrap.dedent(piece), "    "))
    limit = f"import resource; resource.setrlimit(resource.RLIMIT_AS, ({most_bytes}, {most_bytes}))\n"
    environment = {name: value for name, value in os.environ.items() if not name.upper().endswith("_PROXY")}
    done = subprocess.run(
        [sys.executable, "-c", limit + script],
        cwd=ROOT,
        env={**environment, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    lines = done.stdout.strip().splitlines()
    if done.returncode or not lines:
        raise AssertionError(f"it ended with {done.returncode}: {done.stdout[-2000:]} {done.stderr[-4000:]}")
    seconds, processor, more = json.loads(lines[-1])
    said = "\n".join(lines[:-1])
    return Measured(said=said, seconds=seconds, processor_seconds=processor, more_bytes=more)
