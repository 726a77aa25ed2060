"""The sensor that waits for a snapshot of an Iceberg table.

Here: which snapshots are new to this task. `plan.new_snapshot` decides which snapshot meets the condition;
`triggers.waiting` says what a look at the table means.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, cast

from airflow_iceberg.errors import true_or_false
from airflow_iceberg.hooks.arguments import names
from airflow_iceberg.hooks.iceberg import IcebergHook
from airflow_iceberg.plan.new_snapshot import SnapshotCondition
from airflow_iceberg.retries import airflow_failures, from_event
from airflow_iceberg.sensors._sensor import LAST_SEEN, LOGICAL_DATE, SnapshotSensor, after_to_ms, snapshot_id_of
from airflow_iceberg.sensors._table_sensor import WatchesTable, start_in_trigger
from airflow_iceberg.triggers.iceberg import IcebergSnapshotTrigger
from airflow_iceberg.triggers.waiting import Waiting

if TYPE_CHECKING:
    from airflow.sdk import Context


class IcebergSnapshotSensor(WatchesTable, SnapshotSensor):
    """Waits until a branch of a table has a snapshot that is new to this task, and returns the newest such snapshot.

    Snapshots of compactions and of rewritten manifests change no rows and do not count.

    Args:
        table: the namespace and name of the table, `sales.orders`.
        iceberg_conn_id: the id of the catalog's connection.
        branch: the branch (or tag) to check.
        after_snapshot_id: the snapshot after which snapshots count; `{{ ti.xcom_pull("load")["snapshot_id"] }}`. If
            that task has committed nothing, any snapshot counts.
        after: the start after which snapshots count: `"last_seen"`, the snapshot that the previous run of this task
            returned (in the first run any snapshot counts); `"logical_date"`, that of the run, or its `run_after` if it
            has none; or an ISO 8601 time, `{{ dag_run.run_after }}`. The default is `"last_seen"` if
            `after_snapshot_id` is not given.
        operations: the operations that count, some of append, overwrite, delete, replace, as a list or as one text with
            commas; None for all.
        include_maintenance: whether snapshots that change no rows count, too.
        wait_for_table: whether the sensor waits for a table or branch that does not exist, instead of failing at once.
        deferrable: whether the sensor waits in the triggerer and frees its worker slot; it needs a triggerer.

        start_from_trigger: whether the sensor starts in the triggerer, without a worker before that; it cannot read
            what the previous run has seen, so it needs `after_snapshot_id`, or `after` with another value. Templates of
            its arguments need Airflow 3.3.

    Returns:
        table, branch, snapshot_id (text), parent_snapshot_id, timestamp_ms, operation and counts.
    """

    template_fields: Sequence[str] = (
        *("table", "iceberg_conn_id", "branch", "after_snapshot_id", "after", "operations"),
        *("include_maintenance", "wait_for_table"),
    )
    last_seen_key = "iceberg_last_seen"

    def __init__(
        self,
        *,
        table: str,
        iceberg_conn_id: str = IcebergHook.default_conn_name,
        operations: Sequence[str] | str | None = None,
        include_maintenance: bool | str = False,
        start_from_trigger: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.table = table
        self.iceberg_conn_id = iceberg_conn_id
        self.operations = operations
        self.include_maintenance = include_maintenance
        self.start_from_trigger = start_from_trigger
        if start_from_trigger is True:
            self._start_in_trigger()

    def _start_in_trigger(self) -> None:
        arguments: dict[str, Any] = {"branch": self.branch, "include_maintenance": self.include_maintenance}
        if self.after_snapshot_id is not None:
            arguments["after_snapshot_id"] = self.after_snapshot_id
        # A run without a logical date has the time after which it could begin instead, as in `after_to_ms`.
        is_run = self.after == LOGICAL_DATE
        arguments["after"] = "{{ (dag_run.logical_date or dag_run.run_after).isoformat() }}" if is_run else self.after
        arguments["operations"] = self.operations
        start_in_trigger(self, "snapshot", arguments)

    def _look(self, context: Context) -> dict[str, Any] | None:
        found = self._look_once(context)
        return None if found is None else self._done(context, dict(found))

    def _new_waiting(self, context: Context) -> Waiting:
        return Waiting(
            self.table, self._condition_of(context), wait_for_table=true_or_false("wait_for_table", self.wait_for_table)
        )

    def _trigger(self) -> IcebergSnapshotTrigger:
        return IcebergSnapshotTrigger(
            table=self.table,
            iceberg_conn_id=self.iceberg_conn_id,
            **asdict(cast(SnapshotCondition, cast(Waiting, self._waiting).condition)),
            wait_for_table=true_or_false("wait_for_table", self.wait_for_table),
            poll_interval=self.poke_interval,
        )

    def execute_complete(self, context: Context, event: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return the snapshot that the trigger has found, or raise its error."""
        event = dict(event or {})
        with airflow_failures():
            if event.get("status") != "found":
                raise from_event(event)
        return self._done(context, dict(event.get("snapshot") or event["result"]))

    def _done(self, context: Context, found: dict[str, Any]) -> dict[str, Any]:
        self._found = found
        parts = (found[name] for name in ("snapshot_id", "table", "operation", "branch"))
        self.log.info("snapshot %s of %s (%s) is new on branch %r", *parts)
        self._write_seen(context, found["table"], {name: found[name] for name in ("snapshot_id", "timestamp_ms")})
        return found

    def _condition_of(self, context: Context) -> SnapshotCondition:
        after_id = snapshot_id_of(self.after_snapshot_id)
        after_snapshot_ms: int | None = None
        after_ms: int | None = None
        after = self.after or (LAST_SEEN if self.after_snapshot_id is None else None)
        self._check_one_start()
        if after == LAST_SEEN:
            if seen := self._read_seen(context, self.table, "timestamp_ms"):
                after_id, after_snapshot_ms = int(seen["snapshot_id"]), int(seen["timestamp_ms"])
        elif after is not None:
            after_ms = after_to_ms(after, context)
        return SnapshotCondition(
            branch=self.branch,
            after_snapshot_id=after_id,
            after_snapshot_ms=after_snapshot_ms,
            after_ms=after_ms,
            operations=names("operations", self.operations),
            include_maintenance=true_or_false("include_maintenance", self.include_maintenance),
        )
