"""The one place where events of triggers are made: Airflow stores them, so no text in one has a secret.

What a trigger tells is said by others: clusters, servers, and whoever writes to a table.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from airflow.triggers.base import TriggerEvent

from airflow_iceberg.redaction import without_secrets
from airflow_iceberg.retries import shown_error


async def event_of(content: Mapping[str, Any], *, left: Mapping[str, Any] | None = None) -> TriggerEvent:
    """Return an event.

    A look may find hundreds of events, each with the paths of a hundred partitions: secrets are looked for in a thread,
    while other triggers run.

    Args:
        left: what the task has left for its next process, added as it is: digests and keys, and nothing of others.
    """
    said = await asyncio.to_thread(_shown, dict(content))
    return TriggerEvent(said if left is None else {**said, "left": left})  # type: ignore[no-untyped-call]


@contextmanager
def stored_failures() -> Iterator[None]:
    """Take secrets out of an error that ends a trigger: Airflow stores its traceback."""
    try:
        yield
    except Exception as error:
        shown = shown_error(error)
        if shown is error:
            raise
        raise shown from shown.__cause__


def _shown(value: Any) -> Any:
    if isinstance(value, str):
        return without_secrets(value)
    if isinstance(value, Mapping):
        return {name: _shown(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        items = [_shown(inner) for inner in value]
        return items if isinstance(value, list) else tuple(items)
    return value
