"""Rows of a run in files with other rows: found by their row ids, and marked in deletion vectors (version 3)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from airflow_iceberg.commit.conflicts import describe
from airflow_iceberg.commit.operation_key import OperationKey
from airflow_iceberg.commit.runs.replaced import MarkedRows
from airflow_iceberg.commit.runs.rows import Refused, RunRows, grouped
from airflow_iceberg.commit.write_result import UPDATED_ROWS
from airflow_iceberg.data.edit_rows import FileEdits, edit_rows
from airflow_iceberg.data.read.deletes import DeleteReader
from airflow_iceberg.data.read.file import ReadAs
from airflow_iceberg.data.row_changes import MERGE_ON_READ, RowChanges, WriteAs
from airflow_iceberg.data.write.options import WriteOptions, data_location
from airflow_iceberg.errors import IcebergError
from airflow_iceberg.format.arrow.buffers import numbers_of, valid_of
from airflow_iceberg.format.deletion_vectors import RowPositions
from airflow_iceberg.format.manifests.entries import ManifestEntry
from airflow_iceberg.format.metadata.table_metadata import TableMetadata
from airflow_iceberg.format.metadata_columns import POSITION, ROW_ID
from airflow_iceberg.format.schemas.schema import Schema
from airflow_iceberg.format.snapshots import Snapshot
from airflow_iceberg.jobs.protocol.table_input import FileUnit
from airflow_iceberg.operations import staging
from airflow_iceberg.operations.row_changes import read_as, replaced_deletes
from airflow_iceberg.plan.scan import FileScanTask
from airflow_iceberg.scan.table_scan import TableScan
from airflow_iceberg.storage.base import FileIO

log = logging.getLogger(__name__)

Longs = npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True, slots=True)
class FoundRows:
    """Rows of the run in a file with other rows."""

    task: FileScanTask
    positions: RowPositions


def find_rows(
    io: FileIO,
    metadata: TableMetadata,
    run_files: Sequence[ManifestEntry],
    carriers: Iterable[tuple[Snapshot, frozenset[str]]],
    tasks: Mapping[str, FileScanTask],
    refused: Refused,
) -> list[FoundRows]:
    """Return the rows of a run that others have written into their files.

    Args:
        run_files: the files of the run, all with row ids.
        tasks: the live files of the branch by their paths.

    Raises:
        IncompatibleChangeError: `refused`; a writer did not keep the row ids, so that the rows cannot be found.
    """
    ids = _Ranges([(entry.data_file.first_row_id or 0, entry.data_file.record_count) for entry in run_files])
    read = read_as(io, metadata)
    deletes = read.delete_reader()
    found: list[FoundRows] = []
    for snapshot, paths in carriers:
        for path in sorted(paths & tasks.keys()):
            task = tasks[path]
            positions, row_ids = _row_ids(read, replace(task, delete_files=()), deletes)
            _check_kept(snapshot, path, row_ids, refused)
            mine = positions[ids.contain(row_ids)]
            if task.delete_files and len(mine):
                mine = np.intersect1d(mine, _row_ids(read, task, deletes)[0])
            if len(mine):
                found.append(FoundRows(task=task, positions=RowPositions.of(mine)))
    return found


def _row_ids(read: ReadAs, task: FileScanTask, deletes: DeleteReader) -> tuple[Longs, Longs]:
    """Return the positions of the live rows of a file, and their row ids; -1 for a row without one."""
    positions, row_ids = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for batch in read.rows(FileUnit.of(task), deletes, schema=Schema((POSITION, ROW_ID))):
        positions.append(numbers_of(batch.column(0)).astype(np.int64))
        column = batch.column(1)
        row_ids.append(np.where(valid_of(column), numbers_of(column), -1).astype(np.int64))
    return np.concatenate(positions), np.concatenate(row_ids)


def _check_kept(snapshot: Snapshot, path: str, row_ids: Longs, refused: Refused) -> None:
    """Check that a file of old rows has their ids: a compaction has no new rows, and an update has old ones.

    Merges and updates of this package say how many rows they have updated, and keep the ids of these: a file of theirs
    may have inserted rows alone.
    """
    first = snapshot.first_row_id
    is_new = np.full(len(row_ids), True) if first is None else (row_ids < 0) | (row_ids >= first)
    all_new = bool(len(row_ids)) and bool(is_new.all()) and UPDATED_ROWS not in snapshot.summary
    if is_new.any() if snapshot.operation == "replace" else all_new:
        raise refused(
            f"{describe(snapshot)} rewrote its files together with other rows, into file {path} with new row ids, so "
            f"that those of the run cannot be found"
        )


def mark_rows(
    io: FileIO, metadata: TableMetadata, found: Sequence[FoundRows], *, key: OperationKey | None, try_number: int
) -> RowChanges:
    """Write deletion vectors for rows; after an error the new files are deleted."""
    write = WriteAs(
        mode=MERGE_ON_READ,
        format_version=metadata.format_version,
        options=WriteOptions.from_properties(
            metadata.properties, metadata.schema(), metadata.sort_order(), writes_files=False
        ),
        data_location=data_location(metadata.location, metadata.properties),
        file_prefix=staging.new_file_prefix(key, try_number, carries_rows=True),
        delete_options=WriteOptions.of_deletes(metadata.properties),
    )
    edits = (((FileUnit.of(one.task), FileEdits(deleted=one.positions)),) for one in found)
    return edit_rows(read_as(io, metadata), write, metadata.spec(), edits)


class RowMarker:
    """Marks rows of the task's earlier runs in files with other rows, for a commit that replaces them.

    Args:
        written: gets the locations of the new files.
    """

    def __init__(
        self, io: FileIO, branch: str, written: list[str], *, key: OperationKey | None, try_number: int
    ) -> None:
        self._io, self._branch, self._written = io, branch, written
        self._key, self._try_number = key, try_number
        self._marked: dict[object, MarkedRows] = {}

    def __call__(self, metadata: TableMetadata, rows: RunRows, refused: Refused) -> MarkedRows:
        """Mark the rows in the carriers, on the branch as `metadata` has it; the same files are written once."""
        wanted = {carrier.entry.data_file.file_path for carrier in rows.carriers}
        scan = TableScan.of(metadata, self._io, ref=self._branch)
        tasks = {one.file.file_path: one for one in scan.iter_files(whole_files=True) if one.file.file_path in wanted}
        state = frozenset((path, tuple(file.identity for file in one.delete_files)) for path, one in tasks.items())
        if state not in self._marked:
            found = find_rows(self._io, metadata, rows.written, grouped(rows.carriers), tasks, refused)
            self._marked[state] = self._mark(metadata, found)
        return self._marked[state]

    def remove_unused(self, used: Callable[[], Collection[str]]) -> None:
        """Delete the vectors that were written for plans and lost attempts; never raises."""
        written = {file.file_path for marked in self._marked.values() for file in marked.vectors}
        if not written:
            return
        try:
            self._io.delete(sorted(written.difference(used())))
        except IcebergError as error:
            log.warning("left unreferenced delete files behind: %s", error)

    def _mark(self, metadata: TableMetadata, found: Sequence[FoundRows]) -> MarkedRows:
        if not found:
            return MarkedRows()
        changes = mark_rows(self._io, metadata, found, key=self._key, try_number=self._try_number)
        self._written += [file.file_path for file in changes.written]
        whole, marked = parted(found, changes)
        return MarkedRows(
            vectors=tuple(changes.written),
            removed=(*(task.file for task in whole), *replaced_deletes(marked)),
            row_count=sum(one.positions.cardinality for one in found),
        )


def parted(found: Sequence[FoundRows], changes: RowChanges) -> tuple[list[FileScanTask], list[FileScanTask]]:
    """Return the files of which no row is left, and those that keep other rows."""
    empty = {change.file_path for change in changes.changes if change.is_gone}
    tasks = [one.task for one in found]
    return (
        [task for task in tasks if task.file.file_path in empty],
        [task for task in tasks if task.file.file_path not in empty],
    )


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
