"""A DataFrame that exists already as the source of a job, which runs in the same process on the frame's own session.

A plan names its source in JSON. So the frame is held here under a name that nobody can guess, while the job runs.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from airflow_iceberg.errors import InvalidInputError
from airflow_iceberg.jobs.protocol.source import Source

_held: dict[str, Any] = {}


def new_source() -> Source:
    """Return a source for a frame that is held later."""
    return Source.from_callable(f"{__name__}:held_frame", {"name": secrets.token_hex(16)})


@contextmanager
def held(source: Source, frame: Any) -> Iterator[None]:
    """Hold the frame of a source inside the block."""
    name = source.kwargs["name"]
    _held[name] = frame
    try:
        yield
    finally:
        del _held[name]


def held_frame(spark: Any, name: str) -> Any:
    """Return a frame by its name; what a job calls."""
    if name not in _held:
        raise InvalidInputError("the DataFrame of this job is not held in this process; run the task again")
    return _held[name]
