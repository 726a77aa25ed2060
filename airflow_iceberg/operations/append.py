"""Append: rows or files become a snapshot of the table, once an operation key."""

from __future__ import annotations

from collections.abc import Sequence

from airflow_iceberg.commit.actions.append import AppendFiles
from airflow_iceberg.commit.actions.with_new_columns import WithNewColumns
from airflow_iceberg.commit.earlier_runs import EarlierRuns
from airflow_iceberg.commit.settings import CommitSettings
from airflow_iceberg.commit.snapshot_action import SnapshotAction
from airflow_iceberg.errors import InvalidInputError
from airflow_iceberg.format.manifests.entries import DataFile
from airflow_iceberg.format.schemas.schema import Schema
from airflow_iceberg.storage.base import FileIO

ADD_COLUMNS = "add_columns"


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
