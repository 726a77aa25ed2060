"""Rows deleted from data files: copy-on-write writes a file without them, merge-on-read writes delete files.

Here too: what other changes have in common with deletes. Not here: rows that get new values (`data.edit_rows`), which
files are read and which are deleted whole (`operations.delete`), how rows are read (`read`), how delete files are
written (`write.delete_files`), and the commit.

A file is read twice: first the columns of the predicate, where statistics say that it may be true, to find the
positions; then, copy-on-write, the rest of its rows. A file without selected rows is not written at all.

A table may list a data file in several places, each with deletes and row ids of its own. They are changed together: a
commit removes a path from all of them, and a path has one deletion vector. How many rows are left is counted among the
rows that the file has: other writers mark positions beyond them.

Spec: Row-level Deletes; Row Lineage.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeVar

import numpy as np
import pyarrow as pa

from airflow_iceberg.data.carried_rows import carried_rows
from airflow_iceberg.data.read.deletes import DeleteReader, RowDeletes
from airflow_iceberg.data.read.file import ReadAs, Unit
from airflow_iceberg.data.write.delete_files import write_position_deletes, write_vectors
from airflow_iceberg.data.write.options import WriteOptions
from airflow_iceberg.data.write.partitioned import PartitionedWriter
from airflow_iceberg.errors import IcebergError, UnsupportedError
from airflow_iceberg.expressions.tree import Expression
from airflow_iceberg.format.arrow.buffers import numbers_of
from airflow_iceberg.format.deletion_vectors import RowPositions
from airflow_iceberg.format.manifests.entries import DataFile, FileContent
from airflow_iceberg.format.metadata_columns import LAST_UPDATED, POSITION, ROW_ID
from airflow_iceberg.format.partitions.spec import PartitionSpec
from airflow_iceberg.format.schemas.arrow import schema_to_arrow
from airflow_iceberg.format.schemas.evolving_fields import check_lineage_names
from airflow_iceberg.format.schemas.schema import Schema
from airflow_iceberg.format.values.bytes import canonical_key

log = logging.getLogger(__name__)

COPY_ON_WRITE, MERGE_ON_READ = "copy-on-write", "merge-on-read"
MODES = (COPY_ON_WRITE, MERGE_ON_READ)


@dataclass(frozen=True, kw_only=True, slots=True)
class WriteAs:
    """How new files are written.

    Attributes:
        mode: one of MODES.
        format_version: the table's version; position deletes are files in version 2 and vectors in version 3.
        file_prefix: the start of every file name.
        delete_options: the encoding of position delete files.
    """

    mode: str
    format_version: int
    options: WriteOptions
    data_location: str
    file_prefix: str
    delete_options: WriteOptions = field(default_factory=WriteOptions)


@dataclass(frozen=True, kw_only=True, slots=True)
class RowChange:
    """What a delete, an update or a merge did to one data file, in all places where the table lists it.

    Attributes:
        deleted_count: the number of rows that were deleted.
        is_gone: whether no row is left in the file, and, copy-on-write, no file replaces this one.
        updated_count: the number of rows that got new values; with neither these nor deleted ones nothing has changed.
    """

    file_path: str
    deleted_count: int
    is_gone: bool = False
    updated_count: int = 0


@dataclass(kw_only=True, slots=True)
class RowChanges:
    """What an operation did to data files, and the files that it wrote: data files and delete files, by `content`."""

    changes: list[RowChange] = field(default_factory=list)
    written: list[DataFile] = field(default_factory=list)


class FileChanger:
    """Changes data files one by one; all vectors are written into one Puffin file at the end.

    Attributes:
        found: the changes and the new files so far.
    """

    def __init__(self, read: ReadAs, write: WriteAs) -> None:
        self.read = read
        self.write = write
        self.deletes = read.delete_reader()
        self.found = RowChanges()
        self._vectors: list[tuple[DataFile, RowPositions]] = []

    @cached_property
    def schema(self) -> Schema:
        """The columns of new data files."""
        return written_schema(self.read.schemas[0], self.write.format_version)

    @cached_property
    def row_schema(self) -> pa.Schema:
        """The same in Arrow, with field ids."""
        return schema_to_arrow(self.schema)

    def done(self) -> RowChanges:
        """Write the vectors and return all changes."""
        if self._vectors:
            location = self._location(self._vectors[0][0], "deletes.puffin")
            self.found.written += write_vectors(self.read.io, location, self._vectors)
        return self.found

    def abort(self) -> None:
        """Delete the new files; never raises."""
        try:
            self.read.io.delete([file.file_path for file in self.found.written])
        except IcebergError as error:
            log.warning("left unreferenced files behind: %s", error)

    def new_writer(self, spec: PartitionSpec, name: str, *, sort_order_id: int = 0) -> PartitionedWriter:
        """Return a writer of data files; `name` is a part of their names."""
        return PartitionedWriter(
            self.read.io,
            schema=self.schema,
            spec=spec,
            options=self.write.options,
            data_location=self.write.data_location,
            file_prefix=f"{self.write.file_prefix}-{name}",
            sort_order_id=sort_order_id,
        )

    def positions_before(self, unit: Unit) -> RowPositions | None:
        """Return the positions of a file that its delete files mark."""
        by_position = [delete for delete in unit.delete_files if delete.content is FileContent.POSITION_DELETES]
        return self.deletes.of(unit.file, by_position).positions

    def mark(self, places: Sequence[tuple[Unit, RowPositions]], number: int) -> bool:
        """Mark the rows of a file as deleted; return whether no row is left.

        Args:
            places: the places of the file, each with the rows that are deleted there.

        Raises:
            UnsupportedError: the places have other rows afterwards, which deletes by position cannot say.
        """
        file, selected = places[0][0].file, places[0][1].union(*(rows for _, rows in places[1:]))
        if len(places) > 1:
            self._check_same_rows(places, selected)
        before = [self.positions_before(unit) for unit, _ in places]
        counts = [unit.file.record_count for unit, _ in places]
        gone = [selected if one is None else selected.union(one) for one in before]
        gone_rows = [one.count_below(count) for one, count in zip(gone, counts, strict=True)]
        if gone_rows == counts:
            return True
        if self.write.format_version >= 3:
            # A file has one vector: the new one also holds the positions that were deleted before.
            vector = gone[0].union(*gone[1:])
            if gone_rows != [vector.count_below(count) for count in counts]:
                raise _in_other_places(file)
            self._vectors.append((file, vector))
            return False
        options = self.write.delete_options
        options.check_format()
        location = self._location(file, f"{number:05d}-deletes.{options.file_format}")
        self.found.written.append(write_position_deletes(self.read.io, location, file, selected, options))
        return False

    def _check_same_rows(self, places: Sequence[tuple[Unit, RowPositions]], selected: RowPositions) -> None:
        """Check that the rows which are deleted in one place are deleted in all: now, or before."""
        partitions = {(unit.file.spec_id, canonical_key(unit.file.partition)) for unit, _ in places}
        for unit, rows in places:
            others = selected.without(rows)
            is_other = others.cardinality and count_rows(self.read, unit, self.deletes, positions=others)
            if is_other or len(partitions) > 1:
                raise _in_other_places(unit.file)

    def _location(self, file: DataFile, name: str) -> str:
        spec = self.read.specs[file.spec_id]
        has_path = spec.fields and not name.endswith(".puffin")
        path = spec.partition_path(file.partition, self.read.schemas[0]) if has_path else ""
        unique = f"{self.write.file_prefix}-{uuid.uuid4()}-{name}"
        return self.write.options.file_location(self.write.data_location, path, unique)


def delete_rows(read: ReadAs, write: WriteAs, row_filter: Expression, units: Iterable[Unit]) -> RowChanges:
    """Delete the selected rows from data files; after an error the new files are deleted.

    Args:
        row_filter: a bound predicate; rows for which it is null are kept.

    Raises:
        NotFoundError, FormatError, UnsupportedError: a file cannot be read.
        StorageError: the store failed.
    """
    deleter = _Deleter(read, write, row_filter)
    try:
        for number, places in enumerate(by_path(units)):
            deleter.change(places, number)
        return deleter.done()
    except BaseException:
        deleter.abort()
        raise


class _Deleter(FileChanger):
    def __init__(self, read: ReadAs, write: WriteAs, row_filter: Expression) -> None:
        super().__init__(read, write)
        self._filter = row_filter

    def change(self, places: Sequence[Unit], number: int) -> None:
        found = [(unit, _selected_rows(self.read, unit, self.deletes, self._filter)) for unit in places]
        count, is_gone = sum(selected.cardinality for _, selected in found), False
        if count and self.write.mode == COPY_ON_WRITE:
            files = [file for unit, selected in found for file in self._rewrite(unit, selected, number)]
            is_gone = not files
        elif count:
            is_gone = self.mark(found, number)
        self.found.changes.append(RowChange(file_path=places[0].file.file_path, deleted_count=count, is_gone=is_gone))

    def _rewrite(self, unit: Unit, selected: RowPositions, number: int) -> tuple[DataFile, ...]:
        """Write the rows of a file that are kept, in their order, into its partition."""
        # Rows of a sorted file are still sorted when some are deleted.
        order_id = unit.file.sort_order_id or 0
        writer = self.new_writer(self.read.specs[unit.file.spec_id], f"{number:05d}", sort_order_id=order_id)
        try:
            into = writer.into(unit.file.partition)
            deletes = _WithMore(self.deletes, selected)
            for batch in self.read.rows(unit, deletes, schema=self.schema, keep_dictionaries=True):
                into.write(carried_rows(batch, self.schema, self.row_schema, path=unit.file.file_path))
            files = into.close()
            self.found.written += files
            return files
        except BaseException:
            writer.abort()
            raise


T_Unit = TypeVar("T_Unit", bound=Unit)


def by_path(units: Iterable[T_Unit]) -> list[list[T_Unit]]:
    """Return the places of each data file together, in the order of the first ones."""
    found: dict[str, list[T_Unit]] = {}
    for unit in units:
        found.setdefault(unit.file.file_path, []).append(unit)
    return list(found.values())


def _in_other_places(file: DataFile) -> UnsupportedError:
    return UnsupportedError(
        f"data file {file.file_path} is in the table more than once, with other deleted rows in each place, and "
        f"deletes by position are the same for all of them: use mode 'copy-on-write', or compact the table before"
    )


class _WithMore(DeleteReader):
    """A reader of deletes that adds positions to those of the only file that it is called for."""

    def __init__(self, reader: DeleteReader, positions: RowPositions) -> None:
        self._reader = reader
        self._more = positions

    def of(self, file: DataFile, delete_files: Sequence[DataFile]) -> RowDeletes:
        found = self._reader.of(file, delete_files)
        merged = self._more if found.positions is None else found.positions.union(self._more)
        return RowDeletes(positions=merged, keys=found.keys)


def written_schema(schema: Schema, format_version: int) -> Schema:
    """Return the columns of a file with existing rows: from version 3 on rows keep their lineage.

    Raises:
        InvalidInputError: a column of the table has the name of one of the lineage.
    """
    if format_version < 3:
        return schema
    check_lineage_names(schema)
    return Schema((*schema.fields, ROW_ID, LAST_UPDATED), schema.schema_id)


def _selected_rows(read: ReadAs, unit: Unit, deletes: DeleteReader, row_filter: Expression) -> RowPositions:
    batches = read.rows(unit, deletes, schema=Schema((POSITION,)), row_filter=row_filter)
    found = [numbers_of(batch.column(0)) for batch in batches]
    return RowPositions.of(np.concatenate(found) if found else ())


def count_rows(read: ReadAs, unit: Unit, deletes: DeleteReader, *, positions: RowPositions | None = None) -> int:
    """Return the number of rows of a file that are not deleted, of all or of those at some positions.

    Rows that are deleted by position alone are counted without opening the file.
    """
    by_position = all(delete.content is FileContent.POSITION_DELETES for delete in unit.delete_files)
    if positions is None and by_position and unit.parts is None:
        gone = deletes.of(unit.file, unit.delete_files).positions
        return unit.file.record_count - (0 if gone is None else gone.count_below(unit.file.record_count))
    return sum(batch.num_rows for batch in read.rows(unit, deletes, schema=Schema(), positions=positions))
