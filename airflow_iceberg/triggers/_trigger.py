"""What the triggers share: one event at the end of the wait, and what an error of one look means to it."""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any

from airflow.triggers.base import BaseTrigger

from airflow_iceberg.errors import IcebergError, NotFoundError
from airflow_iceberg.retries import is_final, to_event
from airflow_iceberg.triggers._event import event_of, stored_failures

if TYPE_CHECKING:
    from airflow.triggers.base import TriggerEvent

log = logging.getLogger(__name__)


class SnapshotTrigger(BaseTrigger):
    """Waits for a snapshot.

    The triggerer runs many triggers on one event loop, so a trigger reads in threads only.
    """

    def __init__(self, *, table: str, wait_for_table: bool, poll_interval: float) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.table = table
        self.wait_for_table = wait_for_table
        self.poll_interval = poll_interval

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Wait, and yield one event."""
        event: Mapping[str, Any]
        with stored_failures():
            try:
                event = await self._wait()
            except IcebergError as error:
                event = to_event(error)
        yield await event_of(event)

    @abstractmethod
    async def _wait(self) -> Mapping[str, Any]:
        """Look at the table until there is an event to return."""


def wait_on(error: IcebergError, table: str, *, wait_for_table: bool) -> None:
    """Log an error that a later look may not meet, such as that of a store that does not answer; raise all others."""
    if wait_for_table and isinstance(error, NotFoundError):
        log.info("still waiting: %s", error)
    elif is_final(error):
        raise error
    else:
        log.warning("could not check table %s, will check again: %s", table, error)
