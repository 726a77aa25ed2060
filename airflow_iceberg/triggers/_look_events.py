"""The events of one look at a watched table: some hundred at most, in limited time, and none is lost.

`plan.snapshot_events` decides which snapshots are new and which count. Here: what a look leaves for the next one, and
what is told of snapshots whose manifests are not read. Not here: where watermarks are kept (`watcher`).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from airflow_iceberg.errors import IcebergError, NotFoundError
from airflow_iceberg.plan.snapshot_events import (
    EventFilter,
    News,
    Watermark,
    coalesced,
    new_snapshots,
    payload,
    touched_partitions,
)
from airflow_iceberg.redaction import said
from airflow_iceberg.triggers._facts import TakesLongError, within

if TYPE_CHECKING:
    from airflow_iceberg.format.metadata.table_metadata import TableMetadata
    from airflow_iceberg.format.snapshots import Snapshot
    from airflow_iceberg.plan.conditions.decision import Facts
    from airflow_iceberg.triggers._table_poll import Look

log = logging.getLogger(__name__)

MOST_EVENTS = 200
"""How many snapshots of a look have an event of their own; those after them have one together."""
# After so long a look ends, and the next one goes on; and so long it reads of one snapshot at most.
_LOOK_S, _SNAPSHOT_S = 20.0, 10.0
# So many payloads are in memory before they become one.
_AT_ONCE = 500

Events = list[tuple[dict[str, Any], Watermark]]


@dataclass(frozen=True, kw_only=True, slots=True)
class LookEvents:
    """What a look has found.

    Attributes:
        news: what is new; its watermark is the one after the events.
        events: the payloads, each with the watermark after it.
        is_complete: whether all that is new was looked at; otherwise the next look goes on after the watermark.
    """

    news: News
    events: Events
    is_complete: bool


class EventsOf:
    """What makes the events of a watcher.

    Args:
        coalesce: whether all snapshots of a look are one event.
    """

    def __init__(self, table: str, branch: str, chosen: EventFilter, *, coalesce: bool) -> None:
        self._table, self._branch, self._filter, self._coalesce = table, branch, chosen, coalesce

    def find(self, look: Look, known: Watermark) -> LookEvents:
        """Return the events of a look, in a thread.

        Raises:
            InvalidInputError: the table cannot have what the filter asks for.
        """
        assert look.state is not None
        assert look.facts is not None
        metadata, ends_at = look.state.metadata, time.monotonic() + _LOOK_S
        self._filter.check(metadata)
        news = new_snapshots(metadata, self._branch, known)
        events: Events = []
        rest: list[dict[str, Any]] = []
        mark = known
        for number, snapshot in enumerate(news.snapshots):
            if number and time.monotonic() > ends_at:
                break
            mark = Watermark.of(metadata, snapshot)
            if self._passes(metadata, snapshot, look.facts):
                told = self._payload(metadata, snapshot, look.facts if len(events) + len(rest) < MOST_EVENTS else None)
                if not self._coalesce and len(events) < MOST_EVENTS:
                    events.append((told, mark))
                else:
                    rest.append(told)
                    rest = [coalesced(rest)] if len(rest) >= _AT_ONCE else rest
        else:
            mark = news.watermark
        is_complete = mark == news.watermark
        if rest:
            events.append((coalesced(rest) if len(rest) > 1 or self._coalesce else rest[0], mark))
        return LookEvents(news=replace(news, watermark=mark), events=events, is_complete=is_complete)

    def _passes(self, metadata: TableMetadata, snapshot: Snapshot, facts: Facts) -> bool:
        try:
            with within(_SNAPSHOT_S):
                return self._filter.passes(metadata, snapshot, facts)
        except (NotFoundError, TakesLongError) as error:
            log.warning(
                "cannot tell what snapshot %s changed, its event is fired: %s", snapshot.snapshot_id, said(error)
            )
            return True

    def _payload(self, metadata: TableMetadata, snapshot: Snapshot, facts: Facts | None) -> dict[str, Any]:
        """Return what is told of a snapshot; without facts as far as its summary says it."""
        try:
            with within(_SNAPSHOT_S):
                touched = touched_partitions(snapshot, _NOTHING if facts is None else facts)
        except IcebergError as error:
            log.warning("cannot tell which partitions snapshot %s changed: %s", snapshot.snapshot_id, said(error))
            touched = None
        return payload(self._table, metadata, self._branch, snapshot, touched)


class _NoFacts:
    """Nothing is read."""

    def partitions(self, snapshot_id: int) -> Iterator[Any]:
        """Return none."""
        return iter(())

    def touched(self, snapshot: Snapshot) -> None:
        """Return that it is not known."""

    def added_records(self, snapshot: Snapshot) -> None:
        """Return that it is not known."""


_NOTHING: Any = _NoFacts()
