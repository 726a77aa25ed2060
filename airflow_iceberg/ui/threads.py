"""Work that waits for catalogs and stores, in threads of the plugin's own; see `hooks.late_threads`.

Not in those in which Airflow runs its own pages: a catalog that does not answer holds up the pages of its own
connection, and of no other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from airflow_iceberg.hooks.late_threads import LateThreads, Place

T = TypeVar("T")

THREADS = 32
MOST_OF_A_PLACE = 2
"""How many threads wait for one catalog, however many ask for its pages."""
MOST_LATE = 4
"""From so many unanswered requests on, a connection is not asked any more."""
TIMEOUT_S = 30.0
_threads = LateThreads("iceberg-page", most=THREADS, of_a_place=MOST_OF_A_PLACE, late_of_a_place=MOST_LATE)


async def in_thread(function: Callable[..., T], *arguments: Any, place: Place | None = None, **options: Any) -> T:
    """Call a function in a thread, and wait for it.

    Args:
        place: what it may wait for, such as a connection; None for nothing but Airflow's database.

    Raises:
        TooSlowError: it has not returned in time; it is told to stop, and its result is lost.
        NotAskedError: it was not called: others still wait there for an answer.
    """
    return await _threads.call(function, *arguments, place=place, timeout_s=TIMEOUT_S, wait_s=TIMEOUT_S, **options)
