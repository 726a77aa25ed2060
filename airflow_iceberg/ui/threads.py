"""Work that waits for catalogs and stores, in a few threads of its own.

Not in those in which Airflow runs its own pages: a catalog that does not answer holds up the pages of this plugin
alone. And only its own: each place has so few of the threads that others find one.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

T = TypeVar("T")

THREADS = 8
MOST_OF_A_PLACE = 2
"""How many threads wait for one catalog, however many ask for its pages."""
TIMEOUT_S = 30.0
_LOOK_AGAIN_S = 0.05
_pool = ThreadPoolExecutor(THREADS, thread_name_prefix="iceberg-page")
_lock = threading.Lock()
_busy: Counter[str] = Counter()


class TooSlowError(Exception):
    """A catalog or a store did not answer in time, or many others are waiting for theirs."""


async def in_thread(function: Callable[..., T], *arguments: Any, place: str | None = None, **options: Any) -> T:
    """Call a function in a thread, and wait for it.

    Args:
        place: what it may wait for, such as a connection; None for nothing but Airflow's database.

    Raises:
        TooSlowError: it has not returned in time; it goes on, and its result is lost.
    """
    ends_at = time.monotonic() + TIMEOUT_S
    while not _take(place):
        if time.monotonic() >= ends_at:
            raise TooSlowError(f"no answer to those who asked before in {TIMEOUT_S:.0f} seconds")
        await asyncio.sleep(_LOOK_AGAIN_S)
    future = _pool.submit(partial(function, *arguments, **options))
    # Also of one that was cancelled before it began; not of one that still runs.
    future.add_done_callback(lambda _: _give_back(place))
    waiting = asyncio.wrap_future(future)
    try:
        return await asyncio.wait_for(waiting, max(ends_at - time.monotonic(), 0))
    except TimeoutError as error:
        if waiting.done() and not waiting.cancelled():
            raise  # the function's own
        raise TooSlowError(f"no answer in {TIMEOUT_S:.0f} seconds") from error


def _take(place: str | None) -> bool:
    if place is None:
        return True
    with _lock:
        if _busy[place] >= MOST_OF_A_PLACE:
            return False
        _busy[place] += 1
        return True


def _give_back(place: str | None) -> None:
    if place is not None:
        with _lock:
            _busy[place] -= 1
            if _busy[place] <= 0:
                del _busy[place]
