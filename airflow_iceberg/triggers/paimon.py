"""The trigger of `PaimonSnapshotSensor`, and `look`, one look at a table, which the sensor calls too.

`paimon.new_snapshot` decides which snapshot meets the condition. This module imports nothing heavy.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from airflow_iceberg.errors import IcebergError, NotFoundError
from airflow_iceberg.hooks.late_threads import TooSlowError, stop_if_late
from airflow_iceberg.paimon import new_snapshot
from airflow_iceberg.paimon.new_snapshot import PaimonCondition, Seen
from airflow_iceberg.redaction import said
from airflow_iceberg.triggers._threads import in_thread, place_of
from airflow_iceberg.triggers._trigger import SnapshotTrigger, log, wait_on

if TYPE_CHECKING:
    from airflow_iceberg.paimon.table import PaimonTable

T = TypeVar("T")

# The entries of a table's manifests.
_MOST_BYTES = 64 << 20


def look(
    table: PaimonTable, condition: PaimonCondition, seen: Seen | None, *, wait_for_table: bool = False
) -> tuple[Seen | None, dict[str, Any] | None]:
    """Look at a table once.

    A store that does not answer is logged, and is no error.

    Args:
        wait_for_table: whether a table or branch that does not exist is no error.

    Returns:
        The argument `seen` of the next look, and the event in the form of XCom; None if the wait continues.

    Raises:
        IcebergError: no later look can succeed, for example because the table does not exist.
    """
    try:
        try:
            seen, event = new_snapshot.look(table, condition, seen)
        except NotFoundError:
            if not (wait_for_table and _exists(table)):
                raise
            # The table was created after this look, or has lost a file. In the second case another look fails, too.
            wait_for_table = False
            seen, event = new_snapshot.look(table, condition, seen)
    except IcebergError as error:
        wait_on(error, table.location, wait_for_table=wait_for_table)
        return seen, None
    if event is None:
        return seen, None
    return seen, {"table": table.location, "branch": table.branch_name, **event.to_dict()}


def _exists(table: PaimonTable) -> bool:
    try:
        return bool(table.schema_ids())
    except NotFoundError:
        return False


class PaimonSnapshotTrigger(SnapshotTrigger):
    """Fires when a table has a snapshot that meets the condition, or when no snapshot can meet it any more.

    It also fires, with the status `moved`, when the progress should be stored: a restarted triggerer starts where the
    trigger had started, and the snapshots after that point must not have expired by then.

    Args:
        table: the location of the table.
        paimon_conn_id: the id of the connection.
        branch: the branch to check.
        seen: the last snapshot that was checked, as a document of `Seen.to_dict`.
        after_ms, commit_kinds, min_watermark, min_new_records, partition, tag, fully_compacted: see `PaimonCondition`.
        wait_for_table: whether the trigger waits for a table or branch that does not exist, instead of failing.
        poll_interval: seconds between two checks.
    """

    def __init__(
        self,
        *,
        table: str,
        paimon_conn_id: str,
        branch: str = "main",
        seen: Mapping[str, Any] | None = None,
        after_ms: int | None = None,
        commit_kinds: Sequence[str] | None = None,
        min_watermark: int | None = None,
        min_new_records: int | None = None,
        partition: Mapping[str, Any] | None = None,
        tag: str | None = None,
        fully_compacted: bool = False,
        wait_for_table: bool = False,
        poll_interval: float = 60.0,
    ) -> None:
        super().__init__(table=table, wait_for_table=wait_for_table, poll_interval=poll_interval)
        self.paimon_conn_id = paimon_conn_id
        self._place = place_of(paimon_conn_id)
        self.branch = branch
        self.seen = None if seen is None else Seen.from_dict(seen)
        self.condition = PaimonCondition(
            after_ms=after_ms,
            commit_kinds=None if commit_kinds is None else tuple(commit_kinds),
            min_watermark=min_watermark,
            min_new_records=min_new_records,
            partition=partition,
            tag=tag,
            fully_compacted=fully_compacted,
        )

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class and the arguments of an equal trigger; the same for equal triggers."""
        return (
            "airflow_iceberg.triggers.paimon.PaimonSnapshotTrigger",
            {
                "table": self.table,
                "paimon_conn_id": self.paimon_conn_id,
                "branch": self.branch,
                "seen": None if self.seen is None else self.seen.to_dict(),
                **self.condition.to_dict(),
                "wait_for_table": self.wait_for_table,
                "poll_interval": self.poll_interval,
            },
        )

    async def _wait(self) -> Mapping[str, Any]:
        seen, table = self.seen, None
        while True:
            try:
                table = table or await self._open()
                now, found = await self._in_thread(
                    look, table, self.condition, seen, wait_for_table=self.wait_for_table
                )
                is_progress = found is None and now is not None and now != seen
                should_keep = is_progress and await self._in_thread(self._should_keep, table, now)
            except TooSlowError as error:
                log.warning("could not check table %s, will check again: %s", self.table, said(error))
                table = None  # a client of its own for the next look: a late thread may keep this one
            else:
                if found is not None:
                    return {"status": "found", "event": found, "seen": None if now is None else now.to_dict()}
                if now is not None and should_keep:
                    return {"status": "moved", "seen": now.to_dict()}
                seen = now
            await asyncio.sleep(self.poll_interval)

    async def _in_thread(self, function: Callable[..., T], *arguments: Any, **options: Any) -> T:
        return await in_thread(function, *arguments, place=self._place, **options)

    def _should_keep(self, table: PaimonTable, now: Seen) -> bool:
        try:
            return new_snapshot.should_keep(table, self.seen, now)
        except IcebergError as error:  # asked again at the next snapshot
            log.warning("could not check table %s, will check again: %s", table.location, error)
            return False

    async def _open(self) -> PaimonTable:
        # One client for all looks: a client per look would log in and open connections each time.
        from airflow_iceberg.hooks.paimon import load_config_async

        config = await load_config_async(self.paimon_conn_id)
        self._place = place_of(self.paimon_conn_id, config.properties)

        def load() -> PaimonTable:
            from airflow_iceberg.inventory.limited import LimitedFileIO
            from airflow_iceberg.paimon.table import PaimonTable
            from airflow_iceberg.storage import load_file_io

            location = config.location(self.table)
            files = LimitedFileIO(config.gated(location, load_file_io(config.properties)), check=stop_if_late)
            return PaimonTable(location, files, branch=self.branch, most_bytes=_MOST_BYTES)

        return await self._in_thread(load)
