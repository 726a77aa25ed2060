"""Waiting for a snapshot of a table.

Here: which snapshots count as new to this task (the words of the DAG author, the run's date, what the DAG saw before),
and the choice between poking and deferring. Which snapshot meets the condition decides `plan.new_snapshot`; one look at
a table is in `triggers`, where the asynchronous half lives.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, cast

from airflow.providers.common.compat.sdk import conf
from airflow.sdk import BaseSensorOperator, PokeReturnValue

from airflow_iceberg.hooks.iceberg import IcebergHook
from airflow_iceberg.plan.new_snapshot import SnapshotCondition
from airflow_iceberg.retries import airflow_failures, from_event
from airflow_iceberg.sensors._starting_points import (
    LAST_SEEN,
    after_to_ms,
    check_one_start,
    map_index_of,
    snapshot_id_of,
)
from airflow_iceberg.triggers.iceberg import IcebergSnapshotTrigger, look

if TYPE_CHECKING:
    from airflow.sdk import Context
# Under a key of its own, so that it is kept when the task's result is not (`do_xcom_push=False`).
LAST_SEEN_KEY = "iceberg_last_seen"


class IcebergSnapshotSensor(BaseSensorOperator):
    """Waits until a branch of a table has a snapshot that is new to this task, and returns the newest such snapshot.

    Snapshots of compactions and of rewritten manifests change no rows and do not count.

    Args:
        table: the namespace and name of the table, `sales.orders`.
        iceberg_conn_id: the id of the catalog's connection.
        branch: the branch (or tag) to check.
        after_snapshot_id: the snapshot after which snapshots count; `{{ ti.xcom_pull("load")["snapshot_id"] }}`.
        after: the start after which snapshots count: `"last_seen"`, the snapshot that the previous run of this task
            returned (in the first run any snapshot counts); `"logical_date"`, that of the run, or its `run_after` if it
            has none; or an ISO 8601 time, `{{ dag_run.run_after }}`. The default is `"last_seen"` if
            `after_snapshot_id` is not given.
        operations: the operations that count, some of append, overwrite, delete, replace; None for all.
        include_maintenance: whether snapshots that change no rows count, too.
        wait_for_table: whether the sensor waits for a table or branch that does not exist, instead of failing at once.
        deferrable: whether the sensor waits in the triggerer and frees its worker slot; it needs a triggerer.

    Returns:
        table, branch, snapshot_id (text), parent_snapshot_id, timestamp_ms, operation and counts.
    """

    template_fields: Sequence[str] = (
        "table",
        "iceberg_conn_id",
        "branch",
        "after_snapshot_id",
        "after",
        "operations",
    )
    ui_color = "#dbeeff"

    def __init__(
        self,
        *,
        table: str,
        iceberg_conn_id: str = IcebergHook.default_conn_name,
        branch: str = "main",
        after_snapshot_id: str | int | None = None,
        after: str | None = None,
        operations: Sequence[str] | None = None,
        include_maintenance: bool = False,
        wait_for_table: bool = False,
        deferrable: bool = conf.getboolean("operators", "default_deferrable", fallback=False),
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.table = table
        self.iceberg_conn_id = iceberg_conn_id
        self.branch = branch
        self.after_snapshot_id = after_snapshot_id
        self.after = after
        self.operations = operations
        self.include_maintenance = include_maintenance
        self.wait_for_table = wait_for_table
        self.deferrable = deferrable
        self._hook: IcebergHook | None = None
        self._wanted: SnapshotCondition | None = None

    def execute(self, context: Context) -> Any:
        """Poke until the snapshot is there, or look once and leave the rest to the triggerer."""
        if not self.deferrable:
            return super().execute(context)
        found = self.poke(context)
        if not found:
            timeout = timedelta(seconds=self.timeout)
            self.defer(trigger=self._trigger(), method_name="execute_complete", timeout=timeout)
        return found.xcom_value

    def poke(self, context: Context) -> PokeReturnValue:
        """Look at the table once."""
        with airflow_failures():
            # Once per process: what was seen last is asked from Airflow's database, not at every poke.
            condition = self._wanted = self._wanted or self._condition(context)
            hook = self._hook = self._hook or IcebergHook(self.iceberg_conn_id)
            found = look(hook.catalog, self.table, condition, wait_for_table=self.wait_for_table)
        if found is None:
            return PokeReturnValue(is_done=False)
        return PokeReturnValue(is_done=True, xcom_value=self._done(context, found))

    def execute_complete(self, context: Context, event: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Go on where the trigger stopped: return the snapshot, or raise what the trigger ran into."""
        event = dict(event or {})
        with airflow_failures():
            if event.get("status") != "found":
                raise from_event(event)
        return self._done(context, dict(event["snapshot"]))

    def _done(self, context: Context, found: dict[str, Any]) -> dict[str, Any]:
        self.log.info(
            "snapshot %s of %s (%s) is new on branch %r",
            found["snapshot_id"],
            found["table"],
            found["operation"],
            found["branch"],
        )
        context["ti"].xcom_push(
            key=LAST_SEEN_KEY,
            value={
                **{name: found[name] for name in ("table", "branch", "snapshot_id", "timestamp_ms")},
                "map_index": map_index_of(context["ti"]),
            },
        )
        return found

    def _trigger(self) -> IcebergSnapshotTrigger:
        condition = cast(SnapshotCondition, self._wanted)
        after = condition.after_snapshot_id
        return IcebergSnapshotTrigger(
            table=self.table,
            iceberg_conn_id=self.iceberg_conn_id,
            branch=self.branch,
            after_snapshot_id=None if after is None else str(after),
            after_snapshot_ms=condition.after_snapshot_ms,
            after_ms=condition.after_ms,
            operations=condition.operations,
            include_maintenance=self.include_maintenance,
            wait_for_table=self.wait_for_table,
            poll_interval=self.poke_interval,
        )

    def _condition(self, context: Context) -> SnapshotCondition:
        after_id = snapshot_id_of(self.after_snapshot_id)
        after_snapshot_ms: int | None = None
        after_ms: int | None = None
        after = self.after or (LAST_SEEN if self.after_snapshot_id is None else None)
        check_one_start(self.task_id, self.after, self.after_snapshot_id)
        if after == LAST_SEEN:
            after_id, after_snapshot_ms = self._last_seen(context) or (None, None)
        elif after is not None:
            after_ms = after_to_ms(after, context)
        return SnapshotCondition(
            branch=self.branch,
            after_snapshot_id=after_id,
            after_snapshot_ms=after_snapshot_ms,
            after_ms=after_ms,
            operations=None if self.operations is None else tuple(self.operations),
            include_maintenance=self.include_maintenance,
        )

    def _last_seen(self, context: Context) -> tuple[int, int] | None:
        """Return id and time of the snapshot that the latest earlier run of this task returned, None at the first run.

        XCom is the one store that lives from run to run on every Airflow 3: the task state store of 3.3 belongs to a
        single run, the asset state store needs an asset. This run's own entries were cleared when its task started,
        so clearing a task makes it see the same snapshots again.
        """
        ti = context["ti"]
        # All earlier runs, not the latest: Airflow sorts them by logical date alone, databases differ in where runs
        # without one come, and the latest may have watched another table. Small entries, read once per run.
        seen = ti.xcom_pull(task_ids=[self.task_id], key=LAST_SEEN_KEY, include_prior_dates=True)
        mine = [value for value in seen or () if value and self._is_mine(value, ti)]
        newest = max(mine, key=lambda value: int(value["timestamp_ms"]), default=None)
        return None if newest is None else (int(newest["snapshot_id"]), int(newest["timestamp_ms"]))

    def _is_mine(self, seen: Mapping[str, Any], ti: Any) -> bool:
        """Whether it is about what this task watches now; the table may be a template, the task mapped."""
        return (seen["table"], seen["branch"], seen["map_index"]) == (self.table, self.branch, map_index_of(ti))
