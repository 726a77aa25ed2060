"""The trigger of operators that are deferred while their job runs on a cluster.

It asks how the job is, and ends it when the user ends the task, or when its time is up. Not here: how a cluster is
asked (`backends.following`), what is done with the job's result (`operations.deferral`). This module imports nothing
heavy.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any

from airflow.triggers.base import BaseTrigger

from airflow_iceberg.errors import IcebergError
from airflow_iceberg.hooks.late_threads import Place, TooSlowError
from airflow_iceberg.retries import is_final, to_event
from airflow_iceberg.triggers._event import event_of, stored_failures
from airflow_iceberg.triggers._threads import in_thread, place_of

if TYPE_CHECKING:
    from airflow.triggers.base import TriggerEvent

    from airflow_iceberg.backends.following import Followed

log = logging.getLogger(__name__)

POLL_INTERVAL_S = 30.0
_LONGEST_MESSAGE = 2000


class IcebergJobTrigger(BaseTrigger):
    """Fires once: when an application has ended, whether well or badly, or when its time is up.

    A cluster that does not answer is asked again. A triggerer that stops or starts again does not end the application.

    Args:
        reference: the application, as `backends.following` knows it.
        ends_at: when its time is up, in seconds since the epoch: then it is ended. None for no limit.
        poll_interval: seconds between two questions.
        left: what the task has left for its next process; part of the event, since `dag.test()` hands on nothing else.
    """

    def __init__(
        self,
        *,
        reference: Mapping[str, Any],
        ends_at: float | None = None,
        poll_interval: float = POLL_INTERVAL_S,
        left: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.reference = dict(reference)
        self.left = dict(left or {})
        self.ends_at = ends_at
        self.poll_interval = poll_interval

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class and the arguments of an equal trigger."""
        return (
            "airflow_iceberg.triggers.job.IcebergJobTrigger",
            {
                "reference": self.reference,
                "ends_at": self.ends_at,
                "poll_interval": self.poll_interval,
                "left": self.left,
            },
        )

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Wait, and yield one event: `{"status": "ended" | "timeout", "message": …, "left": …}`, or an error's."""
        with stored_failures():
            try:
                event = await self._wait()
            except IcebergError as error:
                event = to_event(error)
        yield await event_of(event, left=self.left)

    async def on_kill(self) -> None:
        """End the application: a user has marked or cleared the task (Airflow 3.3 and later)."""
        try:
            await in_thread(self._end, place=self._place)
        except IcebergError as error:
            log.warning("the application may still run, the task's next try ends it: %s", error)
        else:
            log.info("the application was ended, since a user has ended the task: %s", self.reference)

    async def _wait(self) -> dict[str, str]:
        followed: Followed | None = None
        while True:
            try:
                if followed is None:
                    followed = await in_thread(self._follow, place=self._place)
                ended = await in_thread(followed.look, place=self._place)
            except IcebergError as error:
                if is_final(error):
                    raise
                log.warning("cannot ask how the job is, will ask again: %s", error)
                # A late thread may keep the client of its cluster.
                followed = None if isinstance(error, TooSlowError) else followed
            else:
                if ended is not None:
                    return {"status": "ended", "message": ended[:_LONGEST_MESSAGE]}
            left = self.poll_interval if self.ends_at is None else self.ends_at - time.time()
            if left <= 0:
                return await self._give_up()
            await asyncio.sleep(min(left, self.poll_interval))

    @property
    def _place(self) -> Place:
        """Its cluster: all that the reference has, but the application."""
        own = {"application_id", "pod", "tag"}
        told = {name: value for name, value in self.reference.items() if name not in own}
        return place_of("", told)._replace(name="the job's cluster")

    async def _give_up(self) -> dict[str, str]:
        try:
            await in_thread(self._end, place=self._place)
        except IcebergError as error:
            message = f"the job took longer than the task's execution_timeout, and may still run: {error}"
        else:
            message = "the job took longer than the task's execution_timeout, and was ended"
        return {"status": "timeout", "message": message}

    def _follow(self) -> Followed:
        from airflow_iceberg.backends.following import follow

        return follow(self.reference)

    def _end(self) -> None:
        self._follow().end()
