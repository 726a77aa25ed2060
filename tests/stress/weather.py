"""A bad network: an HTTP proxy that loses answers, repeats requests, and is out for a while, as dice of a seed say.

Requests pass as they are, with their `Host`, so that their signatures stay valid.
"""

import http.client
import threading
import time
from collections import Counter
from dataclasses import dataclass
from random import Random
from urllib.parse import urlsplit

from tests.support.http_server import HttpServer, Reply, Request, passed_on


@dataclass(frozen=True, kw_only=True)
class Climate:
    """How often what happens to a request.

    Attributes:
        lost: the share of requests that the service does, and nobody hears of it.
        unsent: the share of requests that the service never sees.
        repeated: the share of requests that are sent to the service twice; the second answer is handed on.
        outage_s: how long nothing passes at a time; requests under way are done, and their answers are lost.
        pause_s: from one outage to the next, about.
    """

    lost: float = 0.0
    unsent: float = 0.0
    repeated: float = 0.0
    outage_s: float = 0.0
    pause_s: float = 10.0


class Weather(HttpServer):
    """A proxy to one service; `counts` says what has happened."""

    def __init__(self, target: str, climate: Climate, *, seed: str) -> None:
        super().__init__(self._answer)
        self._target = urlsplit(target).netloc
        self._climate, self._coming = Climate(), climate
        self._dice = Random(seed)
        self._lock = threading.Lock()
        self._out_from = 0.0
        self.counts: Counter[str] = Counter()

    def begin(self) -> None:
        """Begin with it; before, all passes."""
        self._out_from = time.monotonic() + self._coming.pause_s * self._dice.uniform(0.3, 1.0)
        self._climate = self._coming

    def clear_up(self) -> None:
        """End all of it: what comes from now on passes."""
        self._climate = Climate()

    def _is_out(self) -> bool:
        climate, now = self._climate, time.monotonic()
        with self._lock:
            if not climate.outage_s or now < self._out_from:
                return False
            if now > self._out_from + climate.outage_s:
                self._out_from = now + climate.pause_s * self._dice.uniform(0.5, 1.5)
                self.counts["outages"] += 1
                return False
            return True

    def _answer(self, request: Request) -> Reply | None:
        self.seen.clear()  # they have the data of all files
        with self._lock:
            chance = self._dice.random()
        climate = self._climate
        if self._is_out() or chance < climate.unsent:
            self.counts["unsent"] += 1
            return None
        reply = self._forward(request)
        chance -= climate.unsent
        if self._is_out() or chance < climate.lost:
            self.counts["lost"] += 1
            return None
        if chance < climate.lost + climate.repeated:
            self.counts["repeated"] += 1
            reply = self._forward(request)
        self.counts["requests"] += 1
        return reply

    def _forward(self, request: Request) -> Reply:
        connection = http.client.HTTPConnection(self._target, timeout=60)
        try:
            headers = {n: v for n, v in request.headers.items() if n.lower() not in {"connection", "expect"}}
            connection.request(request.method, request.path, request.body or None, headers)
            answer = connection.getresponse()
            body = answer.read()
            told = answer.getheader("content-length") if request.method == "HEAD" else None
            return Reply(status=answer.status, headers=passed_on(answer.getheaders()), body=body, size=told)
        finally:
            connection.close()
