"""An HTTP proxy in front of a service: counts requests, and loses, delays or doubles them as a test asks.

    with HttpProxy("http://127.0.0.1:19120") as proxy:
        proxy.on("POST", "/history/commit", lose_reply)     # the next such request is done, and nobody hears of it

Each fault hits one request and is used up.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from urllib.parse import urlsplit

from tests.support.http_server import HttpServer, Reply, Request, ask, passed_on

Forward = Callable[[Request], Reply]
Fault = Callable[[Request, Forward], Reply | None]
"""What becomes of a request; None means that the connection is cut."""


def lose_request(request: Request, forward: Forward) -> None:
    """The service never sees it."""


def lose_reply(request: Request, forward: Forward) -> None:
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
    def fault(request: Request, forward: Forward) -> Reply:
        reply = forward(request)
        time.sleep(seconds)
        return reply

    return fault


def error_page(status: int) -> Reply:
    return Reply(status=status, headers=(("Content-Type", "text/html"),), body=b"<html>no luck</html>")


class HttpProxy(HttpServer):
    """Listens on the loopback interface and hands everything on to one service.

    Attributes:
        guard: what becomes of the requests that no fault hits; hands them on unless a test puts another here.
        requests: all that came, in order.
    """

    def __init__(self, target: str) -> None:
        super().__init__(self._answer)
        self._target = urlsplit(target).netloc
        self.guard: Fault = lambda request, forward: forward(request)
        self.requests = self.seen
        self._faults: list[tuple[str, str, Fault]] = []
        self._lock = threading.Lock()

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
        return not self._faults

    def count(self) -> list[tuple[str, str]]:
        """Return (method, path) of all requests since the last call."""
        seen = [(request.method, request.path) for request in self.requests]
        self.requests.clear()
        return seen

    def _answer(self, request: Request) -> Reply | None:
        reply = (self._fault(request) or self.guard)(request, self._forward)
        if reply is None:
            return None
        told = {name.lower(): value for name, value in reply.headers}.get("content-length", "0")
        return replace(reply, headers=passed_on(reply.headers), size=told if request.method == "HEAD" else None)

    def _fault(self, request: Request) -> Fault | None:
        text = f"{request.path} {request.headers} ".encode() + request.body
        with self._lock:
            for number, (method, word, fault) in enumerate(self._faults):
                if method == request.method and word.encode() in text:
                    del self._faults[number]
                    return fault
        return None

    def _forward(self, request: Request) -> Reply:
        answer, body = ask(self._target, request)
        return Reply(status=answer.status, headers=tuple(answer.getheaders()), body=body)
