"""The threads of the triggerer that wait for catalogs, stores and clusters; see `hooks.late_threads`.

Not those of the event loop, which all triggers share: a few that wait for one server would hold up all others. Imports
nothing heavy.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from airflow_iceberg.hooks.late_threads import LateThreads, Place

T = TypeVar("T")

TIMEOUT_S = 50.0
"""How long a look may take, in seconds; one that takes longer is given up, and made again later."""
_threads = LateThreads("iceberg-trigger", most=64, of_a_place=4)


async def in_thread(function: Callable[..., T], *arguments: Any, place: Place, **options: Any) -> T:
    """Call a function in a thread, when it is the turn of its place, and wait for it.

    Args:
        place: what it may wait for, such as a connection.

    Raises:
        TooSlowError: it has not returned in time; it is told to stop, and its result is lost.
        NotAskedError: it was not called: others still wait there for an answer.
    """
    return await _threads.call(function, *arguments, place=place, timeout_s=TIMEOUT_S, **options)


def place_of(conn_id: str, properties: Mapping[str, Any] | None = None) -> Place:
    """Return where those wait who ask the servers of a connection.

    Args:
        properties: those of the connection: one that was corrected is another place.
    """
    told = "" if properties is None else json.dumps(dict(properties), sort_keys=True, default=str)
    return Place(f"connection {conn_id!r}", hashlib.sha256(told.encode()).hexdigest() if told else "")
