"""Answers of HTTP servers, read within a limit: the sessions of all clients of this package that send with requests.

    with within(CONFIG):
        answer = session.request("GET", url, timeout=(5, 20))      # a `Session` of this module

An answer has one content encoding, gzip, or none. Its body is decompressed piece by piece, up to the limit of its kind;
the lines before it have a limit, too. It has to begin within the timeout for reading, and then to go on at a speed
(`answer_limits.seconds_allowed`): a byte now and then is no answer. All of it is read before `request` returns, so that
nobody reads without a limit. What exceeds a limit is a `LimitError`: the request was sent, and its outcome is unknown.

Redirects are not followed, and .netrc is not read. Not here: the numbers (`answer_limits`). `limited_pools` gives the
same limits to other clients of urllib3.
"""

from __future__ import annotations

import http.client
import io
import threading
import time
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import requests
import requests.adapters
import urllib3.exceptions

from airflow_iceberg.storage.addresses import leave_alone
from airflow_iceberg.storage.answer_limits import (
    DOCUMENT,
    ERROR,
    GRACE_S,
    HEAD_BYTES,
    MOST_COOKIES,
    WHO_ANSWERS,
    Limit,
    grown_limit,
    seconds_allowed,
)

_CHUNK = 1 << 16
# Members of a body, each of which may be empty: tools that compress in parallel write one for every 64 KB or more.
_MOST_MEMBERS = 1 << 14
_SLOW = "look at the server and the way to it, and run it again"
_thread = threading.local()


class LimitError(requests.RequestException):
    """An answer that was not read to its end. The request was sent, and may have been done.

    Attributes:
        is_slow: whether it came too slowly; otherwise another try gets the same answer.
        to_do: what to do about it.
    """

    def __init__(self, reason: str, to_do: str, *, is_slow: bool) -> None:
        super().__init__(reason)
        self.to_do, self.is_slow = to_do, is_slow


class _StopError(BaseException):
    """The limit is exceeded. Not an Exception: a library that is on the way would take it for a broken connection,
    and would send the request again.
    """

    def __init__(self, reason: str, to_do: str, *, is_slow: bool = False) -> None:
        super().__init__(reason)
        self.error = LimitError(reason, to_do, is_slow=is_slow)


class _Budget:
    """What one answer has used of its limit; that of an earlier try of the same library counts as well.

    Args:
        read_s: seconds until the first byte, and between two; None for what the library sets.
    """

    def __init__(self, limit: Limit, read_s: float | None = None) -> None:
        self.limit = limit
        self.received = 0
        self._lines_end: int | None = None
        self._given_s = self._read_s = read_s
        self._begun: float | None = None

    def begin(self) -> None:
        """Begin an answer: that of a proxy to the tunnel, that of a server."""
        self._begun, self.received, self._read_s = None, 0, self._given_s

    def lines(self, *, are_coming: bool) -> None:
        """Say whether the lines before or after a body are read: they have a limit of their own."""
        self._lines_end = self.received + HEAD_BYTES if are_coming else None

    def wait(self, stream: Any) -> None:
        """Set the time limit of the next read."""
        if self._read_s is None:
            self._read_s = stream.gettimeout()
        if self._begun is None:
            stream.settimeout(self._read_s)
            return
        left = self._left(self._begun)
        if left <= 0:
            raise self.too_slow()
        stream.settimeout(left if self._read_s is None else min(left, self._read_s))

    def _left(self, begun: float) -> float:
        grace_s = GRACE_S if self._read_s is None else min(GRACE_S, self._read_s)
        return begun + seconds_allowed(self.received, grace_s) - time.monotonic()

    def is_over(self) -> bool:
        """Whether the time of the answer is over."""
        return self._begun is not None and self._left(self._begun) <= 0

    def too_slow(self) -> _StopError:
        took_s = time.monotonic() - (self._begun or time.monotonic())
        reason = f"it has sent {self.received} bytes in {took_s:.1f} s, which is too slow"
        return _StopError(reason, _SLOW, is_slow=True)

    def add(self, count: int) -> None:
        """Count bytes as they come, without regard to what they are."""
        self._begun = time.monotonic() if self._begun is None else self._begun
        self.received += count
        if self._lines_end is not None and self.received > self._lines_end:
            raise _StopError(f"the lines around its body have more than {HEAD_BYTES} bytes", WHO_ANSWERS)
        # The sizes of chunks need place as well; an answer of gzip may be larger than what is in it, by little.
        if self.received > 2 * self.limit.most_bytes + HEAD_BYTES:
            raise self.too_large(self.limit.most_bytes)

    def too_large(self, most: int, *, is_grown: bool = False) -> _StopError:
        if not is_grown:
            return _StopError(f"it has more than {most} bytes, the most for {self.limit.what}", self.limit.to_do)
        return _StopError(f"its {self.received} bytes are compressed, and grow to more than {most}", WHO_ANSWERS)


@contextmanager
def within(limit: Limit) -> Iterator[None]:
    """Read the answers to this thread's requests within a limit.

    Raises:
        LimitError: one has exceeded it.
    """
    before = getattr(_thread, "limit", None)
    _thread.limit = limit
    try:
        yield
    finally:
        _thread.limit = before


@contextmanager
def counted(limit: Limit) -> Iterator[None]:
    """Do as `within`, for requests of another library, whose connections are of `limited_pools`."""
    with _spending(_Budget(limit)):
        yield


@contextmanager
def _spending(budget: _Budget) -> Iterator[None]:
    before = getattr(_thread, "budget", None)
    _thread.budget = budget
    try:
        yield
    except _StopError as stop:
        raise stop.error from None
    finally:
        _thread.budget = before


# -- connections -------------------------------------------------------------------------------------------------------


class _Wire(io.RawIOBase):
    """What comes from a server, counted; the time limit of each read is what is left of the answer's."""

    def __init__(self, raw: Any, stream: Any, budget: _Budget) -> None:
        super().__init__()
        self._raw, self._stream, self._budget = raw, stream, budget

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        self._budget.wait(self._stream)
        try:
            count: int | None = self._raw.readinto(buffer)
        except TimeoutError:
            if self._budget.is_over():
                raise self._budget.too_slow() from None
            raise
        self._budget.add(count or 0)
        return count

    def close(self) -> None:
        if not self.closed:
            self._raw.close()
        super().close()


class _Response(http.client.HTTPResponse):
    """An answer whose bytes are counted by the budget of the thread that waits for it."""

    def __init__(self, sock: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(sock, *args, **kwargs)
        self._budget: _Budget | None = getattr(_thread, "budget", None)
        if self._budget is not None:
            self._budget.begin()
            raw = self.fp.detach()
            self.fp = io.BufferedReader(_Wire(raw, sock, self._budget))

    def begin(self) -> None:
        with self._lines():
            super().begin()

    def _read_and_discard_trailer(self) -> None:
        with self._lines():
            super()._read_and_discard_trailer()  # type: ignore[misc]  # of all Pythons, and in no stub

    def _safe_read(self, amt: int) -> bytes:
        if amt < 0:  # the size of a chunk, as the server says
            raise http.client.IncompleteRead(b"")
        return super()._safe_read(amt)  # type: ignore[misc,no-any-return]

    @contextmanager
    def _lines(self) -> Iterator[None]:
        if self._budget is not None:
            self._budget.lines(are_coming=True)
        yield
        if self._budget is not None:
            self._budget.lines(are_coming=False)


class _Limited:
    """Part of a connection of urllib3: its answers are `_Response`, and what it sends has a time limit as a whole."""

    response_class = _Response

    def send(self, data: Any) -> None:
        budget: _Budget | None = getattr(_thread, "budget", None)
        if budget is None or not isinstance(data, bytes) or len(data) <= _CHUNK:
            super().send(data)  # type: ignore[misc]
            return
        begun = time.monotonic()
        for start in range(0, len(data), _CHUNK):
            if time.monotonic() - begun > seconds_allowed(start, GRACE_S):
                raise _StopError("it takes what it is sent too slowly", _SLOW, is_slow=True)
            super().send(data[start : start + _CHUNK])  # type: ignore[misc]


def limited_pools(pools: Mapping[str, Any]) -> dict[str, Any]:
    """Return urllib3's classes of pools, by scheme, with connections whose answers are counted."""

    def limited(pool: Any) -> Any:
        return type("LimitedPool", (pool,), {"ConnectionCls": type("Limited", (_Limited, pool.ConnectionCls), {})})

    return {scheme: limited(pool) for scheme, pool in pools.items()}


# -- sessions ----------------------------------------------------------------------------------------------------------


class Session(requests.Session):
    """A session of requests whose answers are read within a limit, as a whole; see the module.

    Args:
        auth: the proof of identity, by default none.
        kept: how many connections to a host are kept.
    """

    def __init__(self, auth: Any = None, *, kept: int = 16) -> None:
        super().__init__()
        self.auth = auth or leave_alone  # without one, requests takes a login of .netrc
        self.headers["Accept-Encoding"] = "gzip"
        self.mount("https://", _Adapter(pool_connections=4, pool_maxsize=kept, max_retries=0))
        self.mount("http://", _Adapter(pool_connections=4, pool_maxsize=kept, max_retries=0))

    def send(self, request: requests.PreparedRequest, **kwargs: Any) -> requests.Response:
        """Send a request, and return its answer, all of which is there; see `requests.Session.send`.

        Raises:
            LimitError: the answer exceeds its limit.
        """
        answer = super().send(request, **{**kwargs, "allow_redirects": False})
        if len(self.cookies) > MOST_COOKIES:
            self.cookies.clear()
        return answer

    def get_redirect_target(self, resp: requests.Response) -> str | None:
        """Return nowhere: requests would read the body of a redirect without a limit, to follow it or not."""
        return None


class _Adapter(requests.adapters.HTTPAdapter):
    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        super().init_poolmanager(*args, **kwargs)
        self.poolmanager.pool_classes_by_scheme = limited_pools(self.poolmanager.pool_classes_by_scheme)

    def proxy_manager_for(self, proxy: str, **kwargs: Any) -> Any:
        is_known = proxy in self.proxy_manager
        manager = super().proxy_manager_for(proxy, **kwargs)
        if not is_known:
            manager.pool_classes_by_scheme = limited_pools(manager.pool_classes_by_scheme)
        return manager

    def send(self, request: requests.PreparedRequest, *args: Any, **kwargs: Any) -> requests.Response:
        kwargs["stream"] = True
        timeout = kwargs.get("timeout")
        read_s = timeout[1] if isinstance(timeout, tuple) else timeout
        budget = _Budget(getattr(_thread, "limit", None) or DOCUMENT, read_s)
        with _spending(budget):
            try:
                answer = super().send(request, *args, **kwargs)
            except requests.exceptions.InvalidHeader as error:
                # Of the answer, such as two lengths. Callers take the class for a request that was never sent.
                raise requests.RequestException("the lines before its body are not valid") from error
            try:
                answer._content = _body_of(answer, budget)
            except BaseException:
                answer.close()
                raise
        answer._content_consumed = True
        return answer


def _body_of(answer: requests.Response, budget: _Budget) -> bytes:
    """Return the body of an answer, decompressed; that of an error is cut."""
    is_error = answer.status_code >= 300
    encoding = _encoding_of(answer)
    # Not a bytearray, of which the body would be a copy.
    found, decoder = io.BytesIO(), _Gunzip() if encoding else None
    told = answer.headers.get("Content-Length", "")
    is_told = told.isascii() and told.isdigit() and decoder is None
    allowed = budget.limit.most_bytes if is_told else min(budget.limit.most_bytes, budget.limit.untold_bytes)
    if is_told and not is_error and answer.request.method != "HEAD" and int(told[:20]) > allowed:
        raise budget.too_large(allowed)
    for part in _parts(answer):
        most = ERROR.most_bytes if is_error else allowed
        if decoder is None:
            found.write(part)
        else:
            most = min(most, grown_limit(budget.received))
            decoder.decompress(part, found, most)
        if found.tell() > most:
            if not is_error:
                raise budget.too_large(most, is_grown=most < allowed)
            answer.close()
            return found.getvalue()[:most]
    if decoder is not None and not decoder.is_complete:
        raise requests.exceptions.ContentDecodingError("its compressed body ends too early")
    return found.getvalue()


def _parts(answer: requests.Response) -> Iterator[bytes]:
    try:
        # Not `stream`, which reads chunks by a code of its own, whose lines have no limit.
        while part := answer.raw.read(_CHUNK, decode_content=False):
            yield part
    except urllib3.exceptions.ReadTimeoutError as error:
        raise requests.exceptions.ReadTimeout(error) from error
    except urllib3.exceptions.HTTPError as error:
        raise requests.exceptions.ChunkedEncodingError(error) from error


def _encoding_of(answer: requests.Response) -> str | None:
    """Return the content encoding of an answer, None without one or without a body."""
    named = [each.strip().lower() for each in answer.headers.get("Content-Encoding", "").split(",")]
    named = [each for each in named if each not in ("", "identity")]
    if not named or answer.request.method == "HEAD" or answer.status_code in (204, 304):
        return None
    if len(named) > 1 or named[0] not in ("gzip", "x-gzip"):
        told = ", ".join(named)[:100]
        raise _StopError(f"its content encoding is {told!r}, expected gzip or none", WHO_ANSWERS)
    return named[0]


class _Gunzip:
    """Decompresses gzip, member by member, and never more than is asked for."""

    def __init__(self) -> None:
        self._decoder = zlib.decompressobj(wbits=31)
        self._members = 0
        self.is_complete = True

    def decompress(self, part: bytes, found: io.BytesIO, most: int) -> None:
        """Append what a part of the compressed bytes has in it: to one byte more than `most`, at the most."""
        while part and found.tell() <= most:
            if self._decoder.eof:
                part = part.lstrip(b"\0")  # padding
                if not part:
                    return
                self._members += 1
                if self._members > _MOST_MEMBERS:
                    raise _StopError(f"it has more than {_MOST_MEMBERS} gzip members", WHO_ANSWERS)
                self._decoder = zlib.decompressobj(wbits=31)
            try:
                found.write(self._decoder.decompress(part, most - found.tell() + 1))
            except zlib.error:
                raise requests.exceptions.ContentDecodingError("its body is not gzip, as it says") from None
            part = self._decoder.unused_data if self._decoder.eof else self._decoder.unconsumed_tail
            self.is_complete = self._decoder.eof
