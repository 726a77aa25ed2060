"""Answers to asynchronous clients of stores, read within a limit, as far as their libraries let.

Not here: the numbers, and clients that send with requests (`storage.answer_limits`, `storage.answers`).
"""

from __future__ import annotations

import asyncio
import io
import time
from collections.abc import Awaitable, Callable
from typing import Any

from airflow_iceberg.storage.answer_limits import GRACE_S, MOST_MARKS, MOST_S, XML, Limit, seconds_allowed
from airflow_iceberg.storage.stores.store import ExcessError

_CHUNK = 1 << 18
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


def limit_answers(client: Any) -> None:
    """Let a client of aiobotocore read its answers, except those with the content of files, within a limit.

    It has no argument for that in all its versions. Files are read in parts by whoever asks for them.
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
        if not is_streamed or answer.status_code >= 300:
            try:
                answer._content = _parsable(await read_within(answer.raw.content.read, XML, grace_s=grace_s))
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
