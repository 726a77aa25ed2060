"""Rows of a run in files with other rows: found by their row ids, and marked in deletion vectors (version 3)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from airflow_iceberg.commit.conflicts import describe
from airflow_iceberg.data.edit_rows import FileEdits, edit_rows
from airflow_iceberg.data.row_changes import MERGE_ON_READ, RowChanges, WriteAs
from airflow_iceberg.data.write.options import WriteOptions, data_location
from airflow_iceberg.errors import IncompatibleChangeError
from airflow_iceberg.format.arrow.buffers import numbers_of, valid_of
from airflow_iceberg.format.deletion_vectors import RowPositions
from airflow_iceberg.format.manifests.entries import ManifestEntry
from airflow_iceberg.format.metadata_columns import POSITION, ROW_ID
from airflow_iceberg.format.schemas.schema import Schema
from airflow_iceberg.format.snapshots import Snapshot
from airflow_iceberg.jobs.protocol.table_input import FileUnit
from airflow_iceberg.operations import staging
from airflow_iceberg.operations.row_changes import read_as
from airflow_iceberg.operations.work import Work
from airflow_iceberg.plan.scan import FileScanTask

Longs = npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True, slots=True)
class FoundRows:
    """Rows of the run in a file with other rows."""

    task: FileScanTask
    positions: RowPositions


def find_rows(
    work: Work,
    run_files: Sequence[ManifestEntry],
    carriers: Iterable[tuple[Snapshot, frozenset[str]]],
    tasks: dict[str, FileScanTask],
) -> list[FoundRows]:
    """Return the rows of a run that others have written into their files.

    Args:
        run_files: the files of the run, all with row ids.
        tasks: the live files of the branch by their paths.

    Raises:
        IncompatibleChangeError: a writer did not keep the row ids, so that the rows cannot be found.
    """
    ids = _Ranges([(entry.data_file.first_row_id or 0, entry.data_file.record_count) for entry in run_files])
    read = read_as(work.table.io, work.table.metadata)
    deletes = read.delete_reader()
    found: list[FoundRows] = []
    for snapshot, paths in carriers:
        for path in sorted(paths & tasks.keys()):
            task = tasks[path]
            positions, row_ids = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
            for batch in read.rows(FileUnit.of(task), deletes, schema=Schema((POSITION, ROW_ID))):
                positions.append(numbers_of(batch.column(0)).astype(np.int64))
                column = batch.column(1)
                row_ids.append(np.where(valid_of(column), numbers_of(column), -1).astype(np.int64))
            every = np.concatenate(row_ids)
            _check_kept(snapshot, path, every)
            mine = np.concatenate(positions)[ids.contain(every)]
            if len(mine):
                found.append(FoundRows(task=task, positions=RowPositions.of(mine)))
    return found


def _check_kept(snapshot: Snapshot, path: str, row_ids: Longs) -> None:
    """Check that a file of old rows has their ids: a compaction has no new rows, and an update has old ones."""
    first = snapshot.first_row_id
    is_new = np.full(len(row_ids), True) if first is None else (row_ids < 0) | (row_ids >= first)
    if is_new.any() if snapshot.operation == "replace" else len(row_ids) and is_new.all():
        raise IncompatibleChangeError(
            f"cannot undo: {describe(snapshot)} has rewritten rows into file {path} with new row ids, so that those of "
            f"the run cannot be found; nothing was changed; delete the rows of the run with a predicate"
        )


def mark_rows(work: Work, found: Sequence[FoundRows]) -> RowChanges:
    """Write deletion vectors for rows; after an error the new files are deleted."""
    table = work.table
    metadata = table.metadata
    write = WriteAs(
        mode=MERGE_ON_READ,
        format_version=metadata.format_version,
        options=WriteOptions.from_properties(
            metadata.properties, metadata.schema(), metadata.sort_order(), writes_files=False
        ),
        data_location=data_location(metadata.location, metadata.properties),
        file_prefix=staging.new_file_prefix(work.operation_key, work.try_number or 1, carries_rows=True),
        delete_options=WriteOptions.of_deletes(metadata.properties),
    )
    edits = ((FileUnit.of(one.task), FileEdits(deleted=one.positions)) for one in found)
    return edit_rows(read_as(table.io, metadata), write, metadata.spec(), edits)


class _Ranges:
    """Row ids of some files: each has those from its first one on."""

    def __init__(self, ranges: Iterable[tuple[int, int]]) -> None:
        ordered = sorted(ranges)
        self._firsts = np.array([first for first, _ in ordered], np.int64)
        self._ends = np.array([first + count for first, count in ordered], np.int64)

    def contain(self, ids: Longs) -> npt.NDArray[np.bool_]:
        """Return which ids are in one of the ranges, which do not overlap."""
        place = np.searchsorted(self._firsts, ids, side="right") - 1
        inside: npt.NDArray[np.bool_] = (place >= 0) & (ids < self._ends[np.maximum(place, 0)])
        return inside
