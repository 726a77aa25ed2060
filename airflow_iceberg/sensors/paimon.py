"""The sensor that waits for a snapshot of an Apache Paimon table.

Here: which snapshots are new to this task. `paimon.new_snapshot` decides which snapshot meets the condition; one check
of the table is in `triggers.paimon`.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, cast

from airflow_iceberg.errors import InvalidInputError, true_or_false
from airflow_iceberg.hooks.arguments import iso_ms
from airflow_iceberg.hooks.paimon import PaimonHook
from airflow_iceberg.links import IcebergMirrorLink, PaimonSnapshotLink, PaimonTableLink, paimon_pages
from airflow_iceberg.paimon.new_snapshot import EventKind, PaimonCondition, Seen, lost
from airflow_iceberg.retries import airflow_failures, from_event
from airflow_iceberg.sensors._sensor import LAST_SEEN, SnapshotSensor, after_to_ms, snapshot_id_of
from airflow_iceberg.triggers.paimon import PaimonSnapshotTrigger, look

if TYPE_CHECKING:
    from airflow.sdk import BaseOperatorLink, Context

    from airflow_iceberg.hooks.paimon import PaimonConfig
    from airflow_iceberg.paimon.table import PaimonTable


class PaimonSnapshotSensor(SnapshotSensor):
    """Waits until a Paimon table has a snapshot that is new to this task, and returns the newest one that counts.

    The snapshot must meet all conditions that are given. If the table was rolled back to before what this task has
    seen, or if snapshots expired before this task could see them, the task fails at once with a `SnapshotsLostError`,
    and the next run starts from the state of the table at that time.

    Args:
        table: `database.table` in the connection's warehouse, or a location; None for the table of the connection.
        paimon_conn_id: the id of a connection of type `paimon`.
        branch: the branch to check.
        after_snapshot_id: the snapshot after which snapshots count; `{{ ti.xcom_pull("load")["snapshot_id"] }}`. If
            that task has committed nothing, any snapshot counts.
        after: the start after which snapshots count: `"last_seen"`, what the previous run of this task had seen (in the
            first run any snapshot counts); `"logical_date"`, that of the run, or its `run_after` if it has none; or an
            ISO 8601 time. If neither `after` nor `after_snapshot_id` is given, it is `"last_seen"`, and with a `tag`
            any time.
        commit_kinds: the kinds of snapshots that count, some of APPEND, COMPACT, OVERWRITE, ANALYZE; None for all.
        min_watermark: the minimum watermark of the snapshot: milliseconds since the epoch, or an ISO 8601 time.
        min_new_records: the minimum number of records that were added since the start, in all snapshots of these kinds
            together.
        partition: the partition that the snapshot changed, by files or by deletion vectors; some or all keys,
            `{"dt": "{{ params.day }}"}`. `min_new_records` and `fully_compacted` apply to this partition, too.
        tag: the tag of the snapshot; the sensor waits until the tag exists.
        fully_compacted: whether the snapshot must have only one sorted run in each bucket, none of them at level 0.
        on_lost_snapshots: what happens after a rollback or an expired gap: `"fail"`, or `"return"` the table's latest
            snapshot, with `event` naming the cause, for a DAG that then reads the whole table.
        wait_for_table: whether the sensor waits for a table or branch that does not exist, instead of failing at once.
        deferrable: whether the sensor waits in the triggerer and frees its worker slot; it needs a triggerer.

    Returns:
        table, branch, event (`snapshot`), snapshot_id (text), identity, timestamp_ms, commit_kind, schema_id, and
        watermark and counts of records.
    """

    template_fields: Sequence[str] = (
        *("table", "paimon_conn_id", "branch", "after_snapshot_id", "after", "commit_kinds", "min_watermark"),
        *("min_new_records", "partition", "tag", "fully_compacted", "on_lost_snapshots", "wait_for_table"),
    )
    operator_extra_links: Collection[BaseOperatorLink] = (PaimonTableLink(), PaimonSnapshotLink(), IcebergMirrorLink())
    last_seen_key = "paimon_last_seen"
    is_deferred_again = True

    # More parameters than others have: each is one filter of the same sentence, and a DAG author names one or two.
    def __init__(
        self,
        *,
        table: str | None = None,
        paimon_conn_id: str = PaimonHook.default_conn_name,
        commit_kinds: Sequence[str] | None = None,
        min_watermark: str | int | None = None,
        min_new_records: str | int | None = None,
        partition: Mapping[str, Any] | None = None,
        tag: str | None = None,
        fully_compacted: bool | str = False,
        on_lost_snapshots: Literal["fail", "return"] = "fail",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.table = table
        self.paimon_conn_id = paimon_conn_id
        self.commit_kinds = commit_kinds
        self.min_watermark = min_watermark
        self.min_new_records = min_new_records
        self.partition = partition
        self.tag = tag
        self.fully_compacted = fully_compacted
        self.on_lost_snapshots = on_lost_snapshots
        self._table: PaimonTable | None = None
        self._condition: PaimonCondition | None = None
        self._seen: Seen | None = None
        self._config: PaimonConfig | None = None
        self._found: Mapping[str, Any] | None = None

    def pages(self, ti_key: Any) -> dict[str, str]:
        """Return the addresses of the pages of the table and of the snapshot that was found."""
        if self._config is None and self._found is None:
            return {}  # the task has not come to its connection
        config = self._config or PaimonHook(self.paimon_conn_id).config
        found = (self._found or {}).get("snapshot_id")
        return paimon_pages(config, self.table, () if found is None else (int(found),))

    def _look(self, context: Context) -> dict[str, Any] | None:
        if self._condition is None:
            # Once per process: what was seen last is read from Airflow's database, not at every poke. The condition is
            # set last, since a poke that fails here may be followed by another one.
            self._seen = self._start(context)
            self._condition = self._condition_of(context)
        self._seen, event = look(
            self._open(),
            self._condition,
            self._seen,
            wait_for_table=true_or_false("wait_for_table", self.wait_for_table),
        )
        return None if event is None else self._done(context, event)

    def execute_complete(
        self, context: Context, event: Mapping[str, Any] | None = None, deadline: float = 0.0
    ) -> dict[str, Any]:
        """Return the snapshot that the trigger has found, raise its error, or defer again.

        Args:
            deadline: the time at which the sensor times out, in seconds since the epoch.
        """
        event = dict(event or {})
        with airflow_failures():
            if event.get("status") not in ("found", "moved"):
                raise from_event(event)
            self._seen = None if event["seen"] is None else Seen.from_dict(event["seen"])
            if event["status"] == "found":
                return self._done(context, dict(event["event"]))
            self._condition = self._condition_of(context)
        self._defer_until(context, deadline)
        raise AssertionError("unreachable: deferring ends the task's process")

    def _trigger(self) -> PaimonSnapshotTrigger:
        return PaimonSnapshotTrigger(
            table=self._open().location,
            paimon_conn_id=self.paimon_conn_id,
            branch=self.branch,
            seen=None if self._seen is None else self._seen.to_dict(),
            **cast(PaimonCondition, self._condition).to_dict(),
            wait_for_table=true_or_false("wait_for_table", self.wait_for_table),
            poll_interval=self.poke_interval,
        )

    def _done(self, context: Context, event: dict[str, Any]) -> dict[str, Any]:
        """Store what was seen, and return the event or raise it as an error."""
        self._found = event
        seen = self._seen or Seen(snapshot_id=0)
        # The latest run is found by the time of its look: the snapshots of a table that was rolled back are older than
        # those before.
        stored = {
            "snapshot_id": str(seen.snapshot_id),
            "identity": seen.identity,
            "seen_at_ms": time.time_ns() // 1_000_000,
        }
        self._write_seen(context, event["table"], stored)
        if event["event"] != EventKind.SNAPSHOT.value:
            error = lost(event, event["table"])
            if self.on_lost_snapshots != "return":
                raise error
            self.log.warning("%s", error)
        self.log.info("snapshot %s of %s (%s) is new", event["snapshot_id"], event["table"], event["commit_kind"])
        return event

    def _open(self) -> PaimonTable:
        if self._table is None:
            from airflow_iceberg.paimon.table import PaimonTable

            hook = PaimonHook(self.paimon_conn_id)
            self._config = hook.config
            self._table = PaimonTable(hook.config.location(self.table), hook.io, branch=self.branch)
        return self._table

    def _condition_of(self, context: Context) -> PaimonCondition:
        self._check_one_start()
        if self.on_lost_snapshots not in ("fail", "return"):
            raise InvalidInputError(f"on_lost_snapshots is {self.on_lost_snapshots!r}, expected 'fail' or 'return'")
        kinds = (self.commit_kinds,) if isinstance(self.commit_kinds, str) else self.commit_kinds
        partition = self.partition
        return PaimonCondition(
            after_ms=after_to_ms(self.after, context) if self.after and self.after != LAST_SEEN else None,
            commit_kinds=None if kinds is None else tuple(kinds),
            min_watermark=None if self.min_watermark is None else _timestamp_ms(self.min_watermark),
            min_new_records=None if self.min_new_records is None else _count(self.min_new_records),
            partition=None if partition is None else {name: _plain(value) for name, value in partition.items()},
            tag=self.tag,
            fully_compacted=true_or_false("fully_compacted", self.fully_compacted),
        )

    def _start(self, context: Context) -> Seen | None:
        """Return what was seen before this task, None for nothing."""
        if self.after_snapshot_id is not None:
            number = snapshot_id_of(self.after_snapshot_id)
            return None if number is None else Seen(snapshot_id=number)
        if (self.after or (None if self.tag else LAST_SEEN)) != LAST_SEEN:
            return None
        seen = self._read_seen(context, self._open().location, "seen_at_ms")
        return None if seen is None else Seen.from_dict(seen)


def _plain(value: Any) -> Any:
    """Return a value of a partition key in JSON types, which a trigger is kept in."""
    if isinstance(value, bytes):
        return value.hex()
    return value if value is None or isinstance(value, (str, int, float)) else str(value)


def _timestamp_ms(value: str | int) -> int:
    text = str(value).strip()
    if text.removeprefix("-").isdecimal():
        return int(text)
    return iso_ms("min_watermark", text, instead="milliseconds since the epoch")


def _count(value: str | int) -> int:
    try:
        return int(value)
    except ValueError as error:
        raise InvalidInputError(f"min_new_records={value!r}: expected a whole number") from error
