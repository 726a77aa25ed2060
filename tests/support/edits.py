"""Edits of the rows of a table by position, and what they mean: `edit` writes and commits them, `edited` is the model.

rows = table_rows(table, columns)                       # texts of values, with `_file` and `_pos`
changes = edit(table, {path: FileEdits(...)}, mode=...)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from airflow_iceberg.commit.actions.overwrite import OverwriteFiles
from airflow_iceberg.commit.actions.row_delta import RowDelta
from airflow_iceberg.data.edit_rows import FileEdits, edit_rows
from airflow_iceberg.data.row_changes import MERGE_ON_READ, RowChanges, WriteAs
from airflow_iceberg.data.write.options import WriteOptions, data_location
from airflow_iceberg.format.deletion_vectors import RowPositions
from airflow_iceberg.format.manifests.entries import DataFile, FileContent
from airflow_iceberg.jobs.protocol.table_input import FileUnit
from airflow_iceberg.operations.row_changes import read_as, replaced_deletes
from airflow_iceberg.plan.scan import FileScanTask
from airflow_iceberg.table import Table

LINEAGE = ("_row_id", "_last_updated_sequence_number")


def write_edits(table: Table, edits: Mapping[str, FileEdits], *, mode: str) -> RowChanges:
    """Write the edits of data files, by path; commit nothing."""
    units = [(FileUnit.of(task), edits[path]) for path, task in tasks_of(table).items() if path in edits]
    assert len(units) == len(edits)
    return write_units(table, units, mode=mode)


def write_units(table: Table, units: Sequence[tuple[FileUnit, FileEdits]], *, mode: str) -> RowChanges:
    metadata = table.metadata
    write = WriteAs(
        mode=mode,
        format_version=metadata.format_version,
        options=WriteOptions.from_properties(metadata.properties, metadata.schema(), metadata.sort_order()),
        data_location=data_location(metadata.location, metadata.properties),
        file_prefix="edited",
        delete_options=WriteOptions.of_deletes(metadata.properties),
    )
    orders = {order.order_id: order for order in metadata.sort_orders}
    edits = ((one,) for one in units)
    return edit_rows(read_as(table.io, metadata), write, metadata.spec(), edits, sort_orders=orders)


def edit(table: Table, edits: Mapping[str, FileEdits], *, mode: str) -> RowChanges:
    """Write the edits of data files, by path, and commit them."""
    tasks = tasks_of(table)
    changes = write_edits(table, edits, mode=mode)
    common: dict[str, Any] = {
        "written_schema": table.schema(),
        "starting_snapshot_id": table.metadata.current_snapshot_id,
    }
    changed = [change for change in changes.changes if change.deleted_count or change.updated_count]
    if mode == MERGE_ON_READ:
        gone = {change.file_path for change in changed if change.is_gone}
        marked = [tasks[change.file_path] for change in changed if not change.is_gone]
        action: Any = RowDelta(
            table.io,
            table.commit_settings(),
            added_data=data_files(changes),
            added_deletes=[file for file in changes.written if file.content is not FileContent.DATA],
            removed_deletes=replaced_deletes(marked) if table.metadata.format_version >= 3 else (),
            removed_data=[tasks[path].file for path in sorted(gone)],
            referenced={task.file.file_path for task in marked},
            command="update",
            **common,
        )
    else:
        removed = [tasks[change.file_path].file for change in changed]
        action = OverwriteFiles(table.io, table.commit_settings(), added=changes.written, removed=removed, **common)
    table.commit(action)
    return changes


def data_files(changes: RowChanges) -> list[DataFile]:
    return [file for file in changes.written if file.content is FileContent.DATA]


def tasks_of(table: Table) -> dict[str, FileScanTask]:
    return {task.file.file_path: task for task in table.scan().plan_files()}


def edits_of(
    deleted: Sequence[tuple[str, int]], updates: Sequence[tuple[Sequence[tuple[str, int]], pa.Table]]
) -> dict[str, FileEdits]:
    """Return the edits by file, from places (path, position); an update has a row of new values for each place."""
    paths = {path for path, _ in deleted} | {path for places, _ in updates for path, _ in places}
    found = {}
    for path in sorted(paths):
        tables = []
        for places, values in updates:
            chosen = [number for number, (other, _) in enumerate(places) if other == path]
            positions = pa.array([places[number][1] for number in chosen], pa.int64())
            if chosen:
                tables.append(values.take(chosen).append_column("_pos", positions))
        gone = RowPositions.of([position for other, position in deleted if other == path])
        found[path] = FileEdits(deleted=gone, updates=tuple(tables))
    return found
