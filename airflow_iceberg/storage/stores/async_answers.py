"""Answers to asynchronous clients of stores, read within a limit, as far as their libraries let.

Not here: the numbers, and clients that send with requests (`storage.answer_limits`, `storage.answers`).
"""

from __future__ import annotations

import asyncio
import io
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from airflow_iceberg.storage.answer_limits import GRACE_S, MOST_MARKS, MOST_S, XML, Limit, file_of, seconds_allowed
from airflow_iceberg.storage.stores.store import ExcessError

_CHUNK = 1 << 18
_RANGE = re.compile(r"bytes=([0-9]{1,18})-([0-9]{1,18})")
# aiobotocore's own, if the connection sets none.
_READ_S = 60.0


async def read_within(
    read: Callable[[int], Awaitable[bytes]],
    limit: Limit,
    told_bytes: int | None = None,
    *,
    grace_s: float | None = None,
) -> bytes:
    """Return a body, read in parts.

    Args:
        read: returns a part of at most so many bytes, none at the end.
        told_bytes: the size that the answer itself has said; None if it has said none.
        grace_s: seconds during which it may be slow.
    Raises:
        ExcessError: it is larger than its limit, or comes too slowly.
    """
    grace_s = GRACE_S if grace_s is None else grace_s
    most = limit.most_bytes if told_bytes is not None else min(limit.most_bytes, limit.untold_bytes)
    if told_bytes is not None and told_bytes > most:
        raise _too_large(most, limit)
    found, begun = io.BytesIO(), time.monotonic()
    while True:
        left = seconds_allowed(found.tell(), grace_s) - (time.monotonic() - begun)
        try:
            async with asyncio.timeout(max(left, 0)):
                part = await read(_CHUNK)
        except TimeoutError:
            if seconds_allowed(found.tell(), grace_s) > time.monotonic() - begun:
                raise  # that of the library
            raise ExcessError(
                f"the answer is not read to the end: {found.tell()} bytes came in {time.monotonic() - begun:.1f} s, "
                f"which is too slow"
            ) from None
        if not part:
            return found.getvalue()
        found.write(part)
        if found.tell() > most:
            raise _too_large(most, limit)


def _too_large(most: int, limit: Limit) -> ExcessError:
    return ExcessError(
        f"the answer is not read to the end: it has more than {most} bytes, the most for {limit.what}; {limit.to_do}"
    )


def _parsable(content: bytes) -> bytes:
    """Return an answer in XML, of which a parser makes no more than is in it.

    Raises:
        ExcessError: it has entities of its own, which may grow a hundredfold, or too many elements.
    """
    # In UTF-16, which a parser knows by itself, each mark would be another one.
    if b"\0" in content or b"<!ENTITY" in content or content.count(b"<") > MOST_MARKS:
        raise ExcessError(f"the answer is not read: it has more elements or entities than {XML.what}; {XML.to_do}")
    return content


class _Read:
    """An answer whose body was read, as aiobotocore reads it."""

    def __init__(self, raw: Any, body: bytes) -> None:
        self._raw, self._body = raw, io.BytesIO(body)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._raw, name)

    @property
    def content(self) -> Any:
        """What reads the body."""
        return self

    async def read(self, size: int = -1) -> bytes:
        """Return a part of the body."""
        return self._body.read(size)


def part_of(headers: Mapping[str, Any]) -> Limit | None:
    """Return the limit of an answer to a request for a part of a file; None for the headers of another request."""
    asked = headers.get("Range") or b""
    part = _RANGE.fullmatch(asked.decode("latin-1") if isinstance(asked, bytes) else str(asked))
    return None if part is None else file_of(int(part[2]) - int(part[1]) + 1)


async def _check_part(request: Any, answer: Any, grace_s: float) -> None:
    """Check that an answer is no larger than the part of a file that was asked for: its reader takes it as a whole.

    Raises:
        ExcessError: it is larger.
    """
    limit = part_of(request.headers)
    if limit is None:
        return
    told = str(answer.headers.get("Content-Length") or "")
    if not (told.isascii() and told.isdigit() and len(told) < 20):
        answer.raw = _Read(
            answer.raw, await read_within(answer.raw.content.read, limit, limit.most_bytes, grace_s=grace_s)
        )
    elif int(told) > limit.most_bytes:
        raise _too_large(limit.most_bytes, limit)


def limit_answers(client: Any) -> None:
    """Let a client of aiobotocore read its answers within a limit; files are read in parts by whoever asks for them.

    It has no argument for that in all its versions.
    """
    session = getattr(getattr(client, "_endpoint", None), "http_session", None)
    if session is None or getattr(session, "is_limited", False):
        return
    send, read_s = session.send, getattr(getattr(client.meta, "config", None), "read_timeout", None) or _READ_S
    # The server of a catalog may set it, to any number or to none.
    read_s = read_s if 0 < read_s <= MOST_S else MOST_S
    grace_s = min(GRACE_S, read_s)

    async def limited(request: Any) -> Any:
        is_streamed, request.stream_output = request.stream_output, True
        answer = await _head_within(send, request, read_s + grace_s)
        try:
            if not is_streamed or answer.status_code >= 300:
                answer._content = _parsable(await read_within(answer.raw.content.read, XML, grace_s=grace_s))
            else:
                await _check_part(request, answer, grace_s)
        except BaseException:
            answer.raw.close()
            raise
        return answer

    session.send, session.is_limited = limited, True


async def _head_within(send: Callable[[Any], Awaitable[Any]], request: Any, seconds: float) -> Any:
    """Send a request, and return its answer without the body; what is sent has its own time."""
    body = getattr(request, "body", None)
    size = len(body) if isinstance(body, bytes | bytearray | str) else 0
    try:
        async with asyncio.timeout(seconds + seconds_allowed(size, 0)):
            return await send(request)
    except TimeoutError:
        raise ExcessError(f"the answer has not begun after {seconds:.0f} s, it is too slow") from None
