"""The trigger of an `AssetWatcher`: an event for each new snapshot of a table.

`plan.snapshot_events` decides which snapshots are new and which count. Here: the watermark between two runs of the
triggerer, and Airflow's shared streams. Not here: the poll (`_table_poll`), and how many events a look makes
(`_look_events`). This module imports nothing heavy.

A watermark is stored after Airflow has stored the events up to it, so that no event is lost. Airflow confirms that only
to the producer of a shared stream, so that is what this trigger is where there are any (3.3); elsewhere events count as
stored when Airflow has taken them.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Hashable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.triggers.base import BaseEventTrigger

from airflow_iceberg.errors import InvalidInputError, NotFoundError, came, true_or_false
from airflow_iceberg.hooks.arguments import interval_s, iso_ms, names, whole_number
from airflow_iceberg.hooks.iceberg import IcebergHook
from airflow_iceberg.plan.snapshot_events import EventFilter, Watermark, start_of
from airflow_iceberg.redaction import said
from airflow_iceberg.triggers._event import event_of
from airflow_iceberg.triggers._look_events import EventsOf, LookEvents
from airflow_iceberg.triggers._table_poll import Look, poll_of
from airflow_iceberg.triggers._threads import in_thread, place_of

if TYPE_CHECKING:
    from airflow.triggers.base import TriggerEvent

    from airflow_iceberg.catalogs.base import TableState

log = logging.getLogger(__name__)

# Whether Airflow tells which events it has stored.
_IS_CONFIRMED = hasattr(BaseEventTrigger, "create_shared_stream_producer")
# A table that is created after the watcher has begun is new, also if its writer's clock is late.
_MOST_LATE_MS = 10 * 60 * 1000
_LOOKS_BETWEEN_NOTES = 10


@dataclass(frozen=True, kw_only=True, slots=True)
class _Raw:
    """What the shared stream hands to all watchers of a table.

    Attributes:
        done: the watermarks that are stored once Airflow has stored the events of this look; None without confirmation.
    """

    look: Look
    done: list[tuple[IcebergTableSnapshotTrigger, Watermark]] | None = field(default_factory=list)


class IcebergTableSnapshotTrigger(BaseEventTrigger):
    """Fires an event for each snapshot that is committed to a branch of a table, oldest first.

    If there are hundreds of new ones, the first 200 have an event each, and those after them have one together.

    It is the trigger of an `AssetWatcher`. All watchers and sensors of a triggerer share one poll for each table. The
    watermark is in the asset's state store (Airflow 3.3), so that a restarted triggerer goes on where it was.

    Args:
        table: the namespace and name of the table, `sales.orders`.
        iceberg_conn_id: the id of the catalog's connection.
        branch: the branch to watch.
        poll_interval: seconds between two polls; the smallest one of all who wait for the table counts.
        operations: the operations that count, some of append, overwrite, delete, replace; None for all.
        include_maintenance: whether snapshots that change no rows (compaction, rewritten manifests) count.
        partition: values of partition fields, `{"ts_day": "2026-01-01"}`; only snapshots that changed it count.
        min_records: the least number of rows that a snapshot must add.
        dag_ids: only commits of these DAGs count.
        exclude_dag_ids: commits of these DAGs do not count, such as that of the DAG that is scheduled by the asset.
        coalesce: whether all new snapshots of a poll are one event.
        since: where a watcher without a watermark begins: `"beginning"`, the id of a snapshot, or an ISO 8601 time; by
            default after the current snapshot.
        missing_after: the number of polls after which a table that does not exist is reported as an error in the
            triggerer's log, and again each time.
    """

    def __init__(
        self,
        *,
        table: str,
        iceberg_conn_id: str = IcebergHook.default_conn_name,
        branch: str = "main",
        poll_interval: timedelta | float = 60.0,
        operations: Sequence[str] | str | None = None,
        include_maintenance: bool = False,
        partition: Mapping[str, Any] | None = None,
        min_records: int | str | None = None,
        dag_ids: Sequence[str] | str | None = None,
        exclude_dag_ids: Sequence[str] | str = (),
        coalesce: bool = False,
        since: str | int | None = None,
        missing_after: int = 10,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        for name, given in (("table", table), ("iceberg_conn_id", iceberg_conn_id), ("branch", branch)):
            if not is_name(given):
                raise InvalidInputError(f"{name} is {came(given)}, expected a name as text")
        self.table = table
        self.iceberg_conn_id = iceberg_conn_id
        self.branch = branch
        self.poll_interval = interval_s("poll_interval", poll_interval)
        self.coalesce = true_or_false("coalesce", coalesce)
        self.since = None if since is None else str(since)
        self.missing_after = _at_least(1, "missing_after", missing_after)
        self.filter = EventFilter(
            operations=names("operations", operations),
            include_maintenance=true_or_false("include_maintenance", include_maintenance),
            partition=_partition(partition),
            min_records=None if min_records is None else _at_least(0, "min_records", min_records),
            dag_ids=names("dag_ids", dag_ids),
            exclude_dag_ids=names("exclude_dag_ids", exclude_dag_ids) or (),
        )
        is_time = self.since is not None and self.since != "beginning" and not self.since.isdecimal()
        what = "'beginning', the id of a snapshot"
        self._since_ms = iso_ms("since", str(self.since), instead=what) if is_time else None
        self._seen: Watermark | None = None
        self._unsaved: Watermark | None = None
        self._is_read = False
        self._handled: TableState | None = None
        self._failed_looks = 0
        self._problem: str | None = None

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class and the arguments of an equal trigger; the same for equal triggers."""
        chosen = asdict(self.filter)
        own = ("table", "iceberg_conn_id", "branch", "poll_interval", "coalesce", "since", "missing_after")
        return (
            "airflow_iceberg.triggers.watcher.IcebergTableSnapshotTrigger",
            {
                **{name: getattr(self, name) for name in own},
                **{name: list(value) if isinstance(value, tuple) else value for name, value in chosen.items()},
            },
        )

    # -- Airflow's ways to run it -------------------------------------------------------------------------------------

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Yield the events, where Airflow has no shared streams."""
        async with aclosing(poll_of(self.iceberg_conn_id, self.table).answers(self.poll_interval, _itself)) as looks:
            async for look in looks:
                events, mark = await self._events(look)
                taken: Watermark | None = None
                try:
                    for content, own in events:
                        event = await event_of(content)
                        taken = own
                        yield event
                finally:  # the event at which the generator was closed has been taken, too
                    await self._keep(taken)
                await self._keep(mark or self._unsaved)

    def shared_stream_key(self) -> Hashable | None:
        """Return what all watchers of a table have in common, where Airflow confirms events."""
        return ("airflow_iceberg", self.iceberg_conn_id, self.table) if _IS_CONFIRMED else None

    @classmethod
    async def open_shared_stream(cls, kwargs: dict[str, Any]) -> AsyncIterator[Any]:
        """Yield the looks at the table, for an Airflow that does not confirm events."""
        async for raw, _ in _raws(kwargs):
            yield _Raw(look=raw.look, done=None)

    @classmethod
    def create_shared_stream_producer(cls, kwargs: dict[str, Any]) -> Any:
        """Return the producer of the looks, which is told when their events are stored."""
        from airflow.triggers.shared_stream import SharedStreamProducer

        class Looks(SharedStreamProducer):
            """The looks at one table."""

            def open_stream(self) -> AsyncIterator[tuple[Any, Any]]:
                return _raws(kwargs)

            async def advance(self, batch: Sequence[Any]) -> None:
                for item in batch:
                    # Of a watcher that failed nothing is known; the others store the same with their next look.
                    for trigger, mark in () if item.outcome.failed else item.broker_payload.done:
                        await trigger._keep(mark)

        return Looks()

    async def filter_shared_stream(self, shared_stream: AsyncIterator[Any]) -> AsyncIterator[TriggerEvent]:
        """Yield the events of this watcher."""
        with poll_of(self.iceberg_conn_id, self.table).interest(self.poll_interval):
            async for raw in shared_stream:
                events, mark = await self._events(raw.look)
                for content, _ in events:
                    yield await event_of(content)
                self._unsaved = mark or self._unsaved
                if raw.done is None:
                    await self._keep(self._unsaved)
                elif self._unsaved is not None:
                    raw.done.append((self, self._unsaved))

    # -- one look -----------------------------------------------------------------------------------------------------

    async def _events(self, look: Look) -> tuple[list[tuple[dict[str, Any], Watermark]], Watermark | None]:
        """Return the payloads of a look, each with the watermark after it, and the watermark after all."""
        try:
            if not self._is_read:
                self._seen = await asyncio.to_thread(self._read)
                self._is_read = True
            if look.state is None:
                raise look.error or NotFoundError(f"table {self.table} could not be loaded")
            if look.state is self._handled:
                return [], None
            found = await in_thread(self._found, look, place=look.place or place_of(self.iceberg_conn_id))
        except Exception as error:  # noqa: BLE001 - a watcher has nobody to fail for, and goes on with the next look
            return [], self._failed(error)
        self._failed_looks = 0
        news = found.news
        if news.problem and news.problem != self._problem:
            log.error("watched table %s: %s", self.table, news.problem)
        self._problem = news.problem
        self._handled = look.state if found.is_complete else None
        is_new, self._seen = news.watermark != self._seen, news.watermark
        return found.events, news.watermark if is_new else None

    def _found(self, look: Look) -> LookEvents:
        """Find what is new, in a thread."""
        assert look.state is not None
        known = self._seen
        if known is None:
            since = None if self._since_ms else self.since
            known = start_of(look.state.metadata, self.branch, since, self._since_ms)
        made = EventsOf(self.table, self.branch, self.filter, coalesce=self.coalesce)
        return made.find(look, known)

    def _failed(self, error: Exception) -> Watermark | None:
        """Report a look that has failed; return the watermark of a table that does not exist yet."""
        count = self._failed_looks
        self._failed_looks += 1
        if isinstance(error, NotFoundError):
            if self._failed_looks % self.missing_after == 0:
                log.error("watched table %s is missing for %s polls: %s", self.table, self._failed_looks, error)
            elif count == 0:
                log.warning("watched table %s is missing: %s", self.table, error)
            if self._is_read and self._seen is None and self.since is None:
                self._seen = Watermark(table_uuid=None, timestamp_ms=time.time_ns() // 1_000_000 - _MOST_LATE_MS)
                return self._seen
        elif count % _LOOKS_BETWEEN_NOTES == 0:
            log.error("could not check watched table %s, will check again: %s", self.table, error)
        return None

    # -- the watermark ------------------------------------------------------------------------------------------------

    @property
    def _keys(self) -> tuple[str, str]:
        """The key of this watcher in an asset's store, and that of all watchers of the same branch there.

        One asset may have several watchers, each with a filter. A watcher whose filter was changed begins where the
        others are.
        """
        place = [self.iceberg_conn_id, self.table, self.branch]
        own = [*place, asdict(self.filter), self.coalesce]
        digests = (hashlib.sha256(json.dumps(each, sort_keys=True).encode()).hexdigest()[:32] for each in (own, place))
        first, second = digests
        return f"airflow_iceberg.watermark.{first}", f"airflow_iceberg.watermark.{second}"

    @property
    def _stores(self) -> list[Any]:
        """The stores of the assets of this trigger: equal watchers of several assets are one trigger."""
        store = getattr(self, "asset_state_store", None)
        if store is None:
            return []
        by_name = getattr(store, "_by_name", None)
        return list(by_name.values()) if isinstance(by_name, Mapping) and by_name else [store]

    def _read(self) -> Watermark | None:
        for key in self._keys:
            found = [mark for store in self._stores if (mark := Watermark.from_dict(store.get(key)))]
            if found:  # an asset that joined later has none, or an old one of another time
                newest = max(found, key=lambda mark: (mark.sequence_number, mark.timestamp_ms))
                self._unsaved = newest if len(found) < len(self._stores) else None
                return newest
        return None

    async def _keep(self, mark: Watermark | None) -> None:
        """Store a watermark; if that fails, it is tried again after the next look."""
        if mark is None:
            return
        self._unsaved = mark
        try:
            await asyncio.to_thread(self._write, mark.to_dict())
        except Exception as error:  # noqa: BLE001 - a failed trigger would fire its events again
            log.error("cannot store the watermark of watched table %s, will try again: %s", self.table, said(error))
        else:
            self._unsaved = None if self._unsaved == mark else self._unsaved

    def _write(self, value: dict[str, Any]) -> None:
        for store in self._stores:
            for key in self._keys:
                store.set(key, value)


async def _raws(kwargs: Mapping[str, Any]) -> AsyncGenerator[tuple[_Raw, _Raw], None]:
    interval = float(kwargs.get("poll_interval", 60.0))
    async with aclosing(poll_of(kwargs["iceberg_conn_id"], kwargs["table"]).answers(interval, _itself)) as looks:
        async for look in looks:
            raw = _Raw(look=look)
            yield raw, raw


def _itself(look: Look) -> Look:
    return look


def is_name(given: object) -> bool:
    """Tell whether a value is a text that is not empty."""
    return isinstance(given, str) and bool(given.strip())


def _at_least(least: int, name: str, given: int | str) -> int:
    found = whole_number(name, given)
    if found is None or found < least:
        raise InvalidInputError(f"{name} is {given!r}, expected a whole number, {least} or more")
    return found


def _partition(given: object) -> dict[str, Any]:
    if given is not None and not isinstance(given, Mapping):
        raise InvalidInputError(f"partition is {came(given)}, expected names of partition fields with values")
    return {str(name): value for name, value in (given or {}).items()}
