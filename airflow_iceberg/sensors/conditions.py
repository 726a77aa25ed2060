"""The sensors that wait for a condition of an Iceberg table: a partition, freshness, rows, a schema, a publication.

Each reads metadata only. `plan.conditions` decides; the sensor for snapshots is in `iceberg`.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow_iceberg.sensors._sensor import LAST_SEEN, RemembersSeen
from airflow_iceberg.sensors._table_sensor import TableSensor

if TYPE_CHECKING:
    from airflow.sdk import Context

_PLACE = ("table", "iceberg_conn_id", "wait_for_table")


class IcebergPartitionSensor(TableSensor):
    """Waits until a partition is complete: it exists, has rows, or is marked. All that is given must hold.

    Args:
        table: the namespace and name of the table, `sales.orders`.
        iceberg_conn_id: the id of the catalog's connection.
        partition: values of some or all partition fields, as in its path: `{"ts_day": "2026-11-25"}`; a field
            may be given by the name of its column.
        min_rows: the least number of rows in the partition; without it, one data file is enough.
        properties: table properties that mark the partition as complete, with their values (None for any value).
        tag: a tag that marks the partition as complete.
        branch: the branch (or tag) to check.
        wait_for_table: whether the sensor waits for a table or branch that does not exist, instead of failing at once.
        deferrable: whether the sensor waits in the triggerer and frees its worker slot; it needs a triggerer.
        start_from_trigger: whether the sensor starts in the triggerer, without a worker before that; templates of its
            arguments need Airflow 3.3.

    Returns:
        table, branch, snapshot_id (text), partition, rows, data_files, tag and more about the snapshot.
    """

    kind = "partition"
    arguments = ("branch", "partition", "min_rows", "properties", "tag")
    template_fields: Sequence[str] = (*_PLACE, *arguments)

    def __init__(
        self,
        *,
        partition: Mapping[str, Any] | str | None = None,
        min_rows: int | str | None = None,
        properties: Mapping[str, Any] | str | None = None,
        tag: str | None = None,
        branch: str = "main",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.partition = partition
        self.min_rows = min_rows
        self.properties = properties
        self.tag = tag
        self.branch = branch
        self._start_in_trigger()


class IcebergFreshnessSensor(TableSensor):
    """Waits until the newest change of rows on a branch is new enough.

    Snapshots of compactions and of rewritten manifests change no rows and do not count.

    Args:
        table: the namespace and name of the table, `sales.orders`.
        iceberg_conn_id: the id of the catalog's connection.
        max_age: the largest age of the newest change at the time of a poll: a timedelta, or seconds.
        after: instead of `max_age`, the ISO 8601 time that the newest change must be later than.
        branch: the branch (or tag) to check.
        include_maintenance: whether snapshots that change no rows count, too.
        wait_for_table, deferrable, start_from_trigger: see `IcebergPartitionSensor`.

    Returns:
        table, branch, snapshot_id (text), timestamp_ms, operation, age_seconds.
    """

    kind = "freshness"
    arguments = ("branch", "max_age", "after", "include_maintenance")
    template_fields: Sequence[str] = (*_PLACE, *arguments)

    def __init__(
        self,
        *,
        max_age: timedelta | float | str | None = None,
        after: str | None = None,
        branch: str = "main",
        include_maintenance: bool | str = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.max_age = max_age
        self.after = after
        self.branch = branch
        self.include_maintenance = include_maintenance
        self._start_in_trigger()


class IcebergRowCountSensor(TableSensor):
    """Waits until a branch has at least, or at most, so many rows.

    The number comes from the snapshot's summary, or from manifests if the summary has none. Rows that position deletes
    may have removed do not count towards `min_rows` and count towards `max_rows`; equality deletes are not counted.

    Args:
        table: the namespace and name of the table, `sales.orders`.
        iceberg_conn_id: the id of the catalog's connection.
        min_rows: the least number of rows.
        max_rows: the largest number of rows.
        branch: the branch (or tag) to check.
        wait_for_table, deferrable, start_from_trigger: see `IcebergPartitionSensor`.

    Returns:
        table, branch, snapshot_id (text), total_records, total_position_deletes and more about the snapshot.
    """

    kind = "row_count"
    arguments = ("branch", "min_rows", "max_rows")
    template_fields: Sequence[str] = (*_PLACE, *arguments)

    def __init__(
        self,
        *,
        min_rows: int | str | None = None,
        max_rows: int | str | None = None,
        branch: str = "main",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.min_rows = min_rows
        self.max_rows = max_rows
        self.branch = branch
        self._start_in_trigger()


class IcebergSchemaChangeSensor(RemembersSeen, TableSensor):
    """Waits until a table has another schema, or certain columns, and returns what has changed.

    Args:
        table: the namespace and name of the table, `sales.orders`.
        iceberg_conn_id: the id of the catalog's connection.
        after_schema_id: the id of the known schema; by default the schema that the previous run of this task returned
            (in the first run any schema counts).
        columns: names of columns that the schema must have, nested ones with dots; then any schema that has them
            counts, unless `after_schema_id` is given, too.
        wait_for_table, deferrable: see `IcebergPartitionSensor`.
        start_from_trigger: as there; then give `after_schema_id` or `columns`.

    Returns:
        table, table_uuid, schema_id, previous_schema_id, added_columns, removed_columns, changed_columns; these three
        are None if nothing is known of the schema before, as of another table of the same name. Of each at most 1,000
        columns are named; if there are more, `cut` says how many: `{"added_columns": 2500}`.
    """

    kind = "schema_change"
    arguments = ("after_schema_id", "columns")
    template_fields: Sequence[str] = (*_PLACE, *arguments)
    last_seen_key = "iceberg_last_schema"
    branch = None

    def __init__(
        self, *, after_schema_id: int | str | None = None, columns: Sequence[str] | str | None = None, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.after_schema_id = after_schema_id
        self.columns = columns
        self._start_in_trigger()

    def _resolved(self, context: Context) -> dict[str, Any]:
        given = self._given()
        if given["after_schema_id"] is None and not given["columns"]:
            seen = self._read_seen(context, self.table, "seen_at_ms")
            if seen is not None:
                given |= {"after_schema_id": int(seen["schema_id"]), "after_table_uuid": seen.get("table_uuid")}
        return given

    def _for_trigger(self) -> dict[str, Any]:
        return {**self._given(), "after": LAST_SEEN}

    def _done(self, context: Context, result: dict[str, Any]) -> dict[str, Any]:
        seen = {name: result.get(name) for name in ("schema_id", "table_uuid")}
        self._write_seen(context, result["table"], {**seen, "seen_at_ms": time.time_ns() // 1_000_000})
        return super()._done(context, result)


class IcebergBranchPublishedSensor(TableSensor):
    """Waits until a snapshot of one branch is part of another: fast-forwarded, or cherry-picked.

    A branch that was just created from the other has nothing of its own, and counts as published: give the
    `snapshot_id` that its writer returned.

    Args:
        table: the namespace and name of the table, `sales.orders`.
        iceberg_conn_id: the id of the catalog's connection.
        branch: the branch that is published, such as `audit`.
        into: the branch that it is published to.
        snapshot_id: the snapshot, `{{ ti.xcom_pull("load")["snapshot_id"] }}`; by default the newest of the branch.
            With it, the branch may be dropped when it is published.
        wait_for_table, deferrable, start_from_trigger: see `IcebergPartitionSensor`.

    Returns:
        table, branch (the one that it is published to), snapshot_id (text) there, published_branch and
        published_snapshot_id, and more about the snapshot.
    """

    kind = "branch_published"
    arguments = ("branch", "into", "snapshot_id")
    template_fields: Sequence[str] = (*_PLACE, *arguments)

    def __init__(self, *, branch: str, into: str = "main", snapshot_id: int | str | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.branch = branch
        self.into = into
        self.snapshot_id = snapshot_id
        self._start_in_trigger()
