"""Work that waits for catalogs and stores, in a few threads of its own.

Not in those in which Airflow runs its own pages: a catalog that does not answer holds up the pages of this plugin
alone, and each of them for a limited time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

T = TypeVar("T")

THREADS = 4
TIMEOUT_S = 30.0
_pool = ThreadPoolExecutor(THREADS, thread_name_prefix="iceberg-page")


class TooSlowError(Exception):
    """A catalog or a store did not answer in time, or many others are waiting for theirs."""


async def in_thread(function: Callable[..., T], *arguments: Any, **options: Any) -> T:
    """Call a function in a thread, and wait for it.

    Raises:
        TooSlowError: it has not returned in time; it goes on, and its result is lost.
    """
    waiting = asyncio.get_running_loop().run_in_executor(_pool, partial(function, *arguments, **options))
    try:
        return await asyncio.wait_for(waiting, TIMEOUT_S)
    except TimeoutError as error:
        if waiting.done() and not waiting.cancelled():
            raise  # the function's own
        raise TooSlowError(f"no answer in {TIMEOUT_S:.0f} seconds") from error
