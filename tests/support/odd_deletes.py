"""Deletes as only other writers make them: positions that a file does not have, deletes of other partitions, files that
a table lists several times, vectors of paths that were added again.

    table = new_table(tmp_path, …)
    table.append(id_rows(range(4)))
    delete_positions(table, table.scan().plan_files()[0].file, [1, 100])
    list_again(table, file)
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from airflow_iceberg.commit.actions.append import AppendFiles
from airflow_iceberg.commit.actions.row_delta import RowDelta
from airflow_iceberg.expressions.tree import ALWAYS_FALSE
from airflow_iceberg.format.manifests.entries import DataFile
from airflow_iceberg.table import Table
from tests.support.changes import write_position_deletes, write_vector

BEYOND = (100, 101, 102, 70_000)


def positions_file(table: Table, file: DataFile, positions: Iterable[int], **place: Any) -> DataFile:
    """Write deletes by position of a data file, a vector or a position delete file, in another place if one is given.

    Args:
        place: spec_id and partition.
    """
    write = write_vector if table.metadata.format_version >= 3 else write_position_deletes
    return replace(write(table.io, file, positions), **place)


def add_deletes(table: Table, *deletes: DataFile, removed: Iterable[DataFile] = ()) -> None:
    """Commit delete files, and remove others, without a check."""
    action = RowDelta(
        table.io,
        table.commit_settings(),
        added_deletes=deletes,
        removed_deletes=tuple(removed),
        conflict_filter=ALWAYS_FALSE,
        written_schema=table.schema(),
        starting_snapshot_id=table.metadata.current_snapshot_id,
    )
    table.commit(action)


def delete_positions(table: Table, file: DataFile, positions: Iterable[int], **place: Any) -> None:
    add_deletes(table, positions_file(table, file, positions, **place))


def list_again(table: Table, file: DataFile, times: int = 1) -> None:
    """Append a file that the table has already, or had."""
    again = replace(file, first_row_id=None)
    action = AppendFiles(table.io, [again] * times, table.commit_settings(), written_schema=table.schema())
    table.commit(action)


def only_file(table: Table) -> DataFile:
    return table.scan().plan_files()[0].file
