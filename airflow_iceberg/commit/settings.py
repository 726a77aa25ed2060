"""Committing changes of a table's files: settings for an action, landing it, and what it did.

Here: what `Table.commit_settings`, `Table.commit` and the commits of appends are made of. Clock and dice come in here.
Not here: the actions (`commit`), the loop (`commit.engine`).
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping, Sequence
from uuid import uuid4

from airflow_iceberg import __version__
from airflow_iceberg.catalogs.base import TableState
from airflow_iceberg.commit.actions.append import AppendFiles
from airflow_iceberg.commit.actions.with_new_columns import WithNewColumns
from airflow_iceberg.commit.earlier_runs import EarlierRuns
from airflow_iceberg.commit.operation_key import OperationKey, WriteResult, check_properties, find_landed, result_of
from airflow_iceberg.commit.snapshot_action import CommitSettings, SnapshotAction
from airflow_iceberg.errors import InvalidInputError
from airflow_iceberg.format.manifests.entries import DataFile
from airflow_iceberg.format.metadata.table_metadata import TableMetadata
from airflow_iceberg.format.schemas.schema import Schema
from airflow_iceberg.format.snapshots import MAIN_BRANCH
from airflow_iceberg.storage.base import FileIO

ADD_COLUMNS = "add_columns"
ENGINE = {"engine-name": "airflow-iceberg", "engine-version": __version__}


def now_ms() -> int:
    """Milliseconds since the epoch, UTC."""
    return time.time_ns() // 1_000_000


def new_snapshot_id() -> int:
    """A random positive 63-bit id; a collision within one table is refused when the metadata is built."""
    return secrets.randbits(63) or 1


def settings_for(
    metadata: TableMetadata,
    *,
    table_uuid: str | None = None,
    branch: str = MAIN_BRANCH,
    operation: OperationKey | None = None,
    try_number: int = 1,
    snapshot_properties: Mapping[str, str] | None = None,
) -> CommitSettings:
    """Return the settings of one commit, with a snapshot id of its own.

    Args:
        table_uuid: of the table that was planned for; by default the one of `metadata`.

    Raises:
        InvalidInputError: a snapshot property that the commit itself writes.
    """
    properties = snapshot_properties or {}
    check_properties(properties)
    own = operation.summary(try_number) if operation else {}
    return CommitSettings(
        table_uuid=(metadata.table_uuid or "") if table_uuid is None else table_uuid,
        branch=branch,
        snapshot_id=new_snapshot_id(),
        commit_uuid=uuid4(),
        now_ms=now_ms,
        properties={**properties, **own, **ENGINE},
        operation=operation,
    )


def adds_columns(schema_evolution: str | None) -> bool:
    """Tell whether columns of a source may join the table's schema.

    Raises:
        InvalidInputError: neither None nor "add_columns".
    """
    if schema_evolution not in (None, ADD_COLUMNS):
        raise InvalidInputError(f"schema_evolution is {schema_evolution!r}, expected {ADD_COLUMNS!r} or None")
    return schema_evolution is not None


def with_new_columns(action: SnapshotAction, written: Schema, planned_on: Schema) -> SnapshotAction:
    """Return the action, with the new columns of its files in the same commit where there are some."""
    return action if written.fields == planned_on.fields else WithNewColumns(action, written)


def describe(state: TableState, settings: CommitSettings) -> WriteResult:
    """Say what became of an action, from the table that holds its snapshot."""
    table, branch, operation = str(state.table), settings.branch, settings.operation
    mine = state.metadata.snapshot(settings.snapshot_id)
    if mine is not None:
        return result_of(mine, table=table, branch=branch, outcome="committed")
    landed = find_landed(state.metadata, operation, branch) if operation else None
    if landed is not None:
        return result_of(landed, table=table, branch=branch, outcome="found")
    key = str(operation) if operation else None
    return WriteResult(table=table, branch=branch, outcome="empty", operation_key=key)


def append_action(
    io: FileIO,
    files: Sequence[DataFile],
    settings: CommitSettings,
    *,
    written_schema: Schema,
    try_number: int = 1,
    replace_earlier: bool = False,
) -> AppendFiles:
    """Return the action that appends files; it knows what earlier runs of the same task have committed."""
    earlier = earlier_runs(io, settings, try_number=try_number, replace=replace_earlier)
    return AppendFiles(io, files, settings, written_schema=written_schema, earlier=earlier)


def earlier_runs(io: FileIO, settings: CommitSettings, *, try_number: int, replace: bool) -> EarlierRuns | None:
    """Return what finds the rows of a task's earlier runs; None outside of Airflow."""
    if settings.operation is None:
        return None
    return EarlierRuns(io, settings.operation, settings.branch, try_number=try_number, replace=replace)
