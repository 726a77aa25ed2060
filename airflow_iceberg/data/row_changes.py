"""Rows that go: which rows of a data file a predicate selects, the file without them, or delete files that name them.

Here: `RowDeleter`, which changes one data file after another, copy-on-write or merge-on-read, and the writing of
position delete files and deletion vectors. Not here: which files are looked at and which go as a whole
(`operations.delete`), how rows are read (`read`), deletes applied (`deletes`) and files written (`write`), the commit.

A file is read twice: first the columns of the predicate, where statistics say that it may be true, to find the
positions; then, copy-on-write, the rest of its rows. A file without selected rows is not written at all.

Spec: Row-level Deletes; Position Delete Files; Deletion Vectors; Row Lineage.
"""

from __future__ import annotations

import io as bytes_io
import logging
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pyarrow as pa

from airflow_iceberg.data.dictionaries import with_field_ids
from airflow_iceberg.data.read.deletes import DeleteReader, RowDeletes
from airflow_iceberg.data.read.file import FileToRead, read_file
from airflow_iceberg.data.read.metadata_columns import LAST_UPDATED, POSITION, ROW_ID
from airflow_iceberg.data.write.options import WriteOptions
from airflow_iceberg.data.write.parquet_file import encoder_settings
from airflow_iceberg.data.write.partitioned import PartitionedWriter
from airflow_iceberg.errors import IcebergError
from airflow_iceberg.expressions.tree import ALWAYS_TRUE, Expression
from airflow_iceberg.format.arrow.buffers import number_array, numbers_of, text_array
from airflow_iceberg.format.deletion_vectors import RowPositions
from airflow_iceberg.format.manifests.entries import DataFile, FileContent
from airflow_iceberg.format.partitions.spec import PartitionSpec
from airflow_iceberg.format.puffin import DELETION_VECTOR, Blob, write_puffin
from airflow_iceberg.format.schemas.arrow import schema_to_arrow
from airflow_iceberg.format.schemas.schema import Schema
from airflow_iceberg.format.types import LongType
from airflow_iceberg.format.values.bytes import to_bytes
from airflow_iceberg.storage.base import FileIO

if TYPE_CHECKING:
    from collections.abc import Iterator


log = logging.getLogger(__name__)

COPY_ON_WRITE, MERGE_ON_READ = "copy-on-write", "merge-on-read"
MODES = (COPY_ON_WRITE, MERGE_ON_READ)

PATH_ID, POSITION_ID = 2147483546, 2147483545
# A row of a position delete file before it is encoded: the position, since the path is the same in all of them.
_ROW_BYTES, _MOST_ROWS_PER_GROUP = 8, 1 << 20


class Unit(Protocol):
    """A data file of the table with the deletes that apply to it."""

    @property
    def file(self) -> DataFile: ...
    @property
    def sequence_number(self) -> int: ...
    @property
    def delete_files(self) -> tuple[DataFile, ...]: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class ReadAs:
    """How the files of a table are read; all of it comes from the table's metadata.

    Attributes:
        schemas: of the table, the one that the predicate is bound to first.
        specs: by id.
    """

    io: FileIO
    schemas: tuple[Schema, ...]
    specs: Mapping[int, PartitionSpec]
    name_mapping: str | None = None

    def rows(
        self,
        unit: Unit,
        deletes: DeleteReader,
        *,
        schema: Schema,
        row_filter: Expression = ALWAYS_TRUE,
        keep_dictionaries: bool = False,
    ) -> Iterator[pa.RecordBatch]:
        """Yield rows that are left of a file."""
        source = FileToRead(
            file=unit.file,
            spec=self.specs[unit.file.spec_id],
            name_mapping=self.name_mapping,
            delete_files=unit.delete_files,
            deletes=deletes,
            sequence_number=unit.sequence_number,
        )
        return read_file(
            self.io,
            source,
            schema=schema,
            table_schema=self.schemas[0],
            row_filter=row_filter,
            keep_dictionaries=keep_dictionaries,
        )

    def delete_reader(self) -> DeleteReader:
        """Return what reads delete files; one for all files of a task."""
        return DeleteReader(self.io, schemas=self.schemas, name_mapping=self.name_mapping)


@dataclass(frozen=True, kw_only=True, slots=True)
class WriteAs:
    """How new files are written.

    Attributes:
        mode: one of MODES.
        format_version: of the table: position deletes are files in version 2 and vectors in version 3.
        file_prefix: begin of every file name.
        delete_options: how position delete files are encoded.
    """

    mode: str
    format_version: int
    options: WriteOptions
    data_location: str
    file_prefix: str
    delete_options: WriteOptions = field(default_factory=WriteOptions)


@dataclass(frozen=True, kw_only=True, slots=True)
class RowChange:
    """What became of one data file.

    Attributes:
        file_path: of the data file.
        deleted_count: rows that the predicate selects, of those that were left; 0 leaves the file as it is.
        is_gone: no row is left: the file goes, and nothing comes in its place.
    """

    file_path: str
    deleted_count: int
    is_gone: bool = False


@dataclass(kw_only=True, slots=True)
class RowChanges:
    """What became of some data files, and the files that were written for that: data files or delete files."""

    changes: list[RowChange] = field(default_factory=list)
    written: list[DataFile] = field(default_factory=list)


def delete_rows(read: ReadAs, write: WriteAs, row_filter: Expression, units: Iterable[Unit]) -> RowChanges:
    """Take the selected rows out of data files; when that fails, what was written is removed.

    Args:
        row_filter: bound; rows of which it is null stay.

    Raises:
        NotFoundError, FormatError, UnsupportedError: a file cannot be read.
        StorageError: the store failed.
    """
    deleter = _Deleter(read, write, row_filter)
    try:
        for number, unit in enumerate(units):
            deleter.change(unit, number)
        return deleter.done()
    except BaseException:
        deleter.abort()
        raise


class _Deleter:
    """Changes data files one by one; vectors are kept, and written into one Puffin file at the end."""

    def __init__(self, read: ReadAs, write: WriteAs, row_filter: Expression) -> None:
        self._read = read
        self._write = write
        self._filter = row_filter
        self._deletes = read.delete_reader()
        self._vectors: list[tuple[DataFile, RowPositions]] = []
        self._found = RowChanges()

    def change(self, unit: Unit, number: int) -> None:
        """Take the selected rows out of a file."""
        selected = selected_rows(self._read, unit, self._deletes, self._filter)
        is_gone = False
        if selected.cardinality:
            if self._write.mode == COPY_ON_WRITE:
                files = self._rewrite(unit, selected, number)
                self._found.written += files
                is_gone = not files
            else:
                is_gone = self._mark(unit, selected, number)
        self._found.changes.append(
            RowChange(file_path=unit.file.file_path, deleted_count=selected.cardinality, is_gone=is_gone)
        )

    def done(self) -> RowChanges:
        """Write the vectors and return what was done."""
        if self._vectors:
            location = self._location(self._vectors[0][0], "deletes.puffin")
            self._found.written += write_vectors(self._read.io, location, self._vectors)
        return self._found

    def abort(self) -> None:
        """Remove what was written; never raises."""
        try:
            self._read.io.delete([file.file_path for file in self._found.written])
        except IcebergError as error:
            log.warning("left unreferenced files behind: %s", error)

    def _rewrite(self, unit: Unit, selected: RowPositions, number: int) -> tuple[DataFile, ...]:
        """Write the rows of a file that stay, in their order, into its partition."""
        schema = written_schema(self._read.schemas[0], self._write.format_version)
        writer = PartitionedWriter(
            self._read.io,
            schema=schema,
            spec=self._read.specs[unit.file.spec_id],
            options=self._write.options,
            data_location=self._write.data_location,
            file_prefix=f"{self._write.file_prefix}-{number:05d}",
            # Rows that are left of sorted rows are sorted.
            sort_order_id=unit.file.sort_order_id or 0,
        )
        row_schema = schema_to_arrow(schema)
        try:
            into = writer.into(unit.file.partition)
            deletes = _WithMore(self._deletes, selected)
            for batch in self._read.rows(unit, deletes, schema=schema, keep_dictionaries=True):
                into.write(with_field_ids(batch, row_schema))
            return into.close()
        except BaseException:
            writer.abort()
            raise

    def _mark(self, unit: Unit, selected: RowPositions, number: int) -> bool:
        """Note the rows of a file as deleted; return whether none is left then."""
        file = unit.file
        by_position = [delete for delete in unit.delete_files if delete.content is FileContent.POSITION_DELETES]
        before = self._deletes.of(file, by_position).positions
        positions = selected if before is None else selected.union(before)
        if positions.cardinality >= file.record_count:
            return True
        if self._write.format_version >= 3:
            # There is one vector for a file: it takes up what was deleted before.
            self._vectors.append((file, positions))
            return False
        location = self._location(file, f"{number:05d}-deletes.parquet")
        described = write_position_deletes(self._read.io, location, file, selected, self._write.delete_options)
        self._found.written.append(described)
        return False

    def _location(self, file: DataFile, name: str) -> str:
        spec = self._read.specs[file.spec_id]
        path = "" if name.endswith(".puffin") or not spec.fields else self._partition_path(spec, file)
        unique = f"{self._write.file_prefix}-{uuid.uuid4()}-{name}"
        return self._write.options.file_location(self._write.data_location, path, unique)

    def _partition_path(self, spec: PartitionSpec, file: DataFile) -> str:
        return spec.partition_path(file.partition, self._read.schemas[0])


class _WithMore(DeleteReader):
    """A reader of deletes that has more positions to say of the one file that it is asked about."""

    def __init__(self, reader: DeleteReader, positions: RowPositions) -> None:
        self._reader = reader
        self._more = positions

    def of(self, file: DataFile, delete_files: Sequence[DataFile]) -> RowDeletes:
        """See `DeleteReader.of`."""
        found = self._reader.of(file, delete_files)
        merged = self._more if found.positions is None else found.positions.union(self._more)
        return RowDeletes(positions=merged, keys=found.keys)


def written_schema(schema: Schema, format_version: int) -> Schema:
    """Return the columns of a file with rows that were there before: from version 3 on they keep their lineage."""
    if format_version < 3:
        return schema
    return Schema((*schema.fields, ROW_ID, LAST_UPDATED), schema.schema_id)


def selected_rows(read: ReadAs, unit: Unit, deletes: DeleteReader, row_filter: Expression) -> RowPositions:
    """Return the positions of the rows that are left in a file and that a predicate selects."""
    found = [
        numbers_of(batch.column(0))
        for batch in read.rows(unit, deletes, schema=Schema((POSITION,)), row_filter=row_filter)
    ]
    return RowPositions.of(np.concatenate(found) if found else ())


def count_rows(read: ReadAs, unit: Unit, deletes: DeleteReader) -> int:
    """Return the number of rows that are left in a file."""
    return sum(batch.num_rows for batch in read.rows(unit, deletes, schema=Schema()))


# -- delete files ------------------------------------------------------------------------------------------------------


def write_position_deletes(
    io: FileIO, location: str, file: DataFile, positions: RowPositions, options: WriteOptions
) -> DataFile:
    """Write a position delete file about one data file, and describe it.

    Spec: Position Delete Files: sorted by path and position; the bounds of the path are never truncated, so that
    readers can tell that it is about one file.
    """
    import pyarrow.parquet as pq

    # One path for all rows: as a dictionary it takes no memory.
    schema = pa.schema(
        [
            pa.field("file_path", pa.dictionary(pa.int32(), pa.string()), False, {"PARQUET:field_id": str(PATH_ID)}),
            pa.field("pos", pa.int64(), False, {"PARQUET:field_id": str(POSITION_ID)}),
        ]
    )
    numbers, sink = positions.to_array(), bytes_io.BytesIO()
    rows_per_group = max(1, min(options.row_group_size_bytes // _ROW_BYTES, _MOST_ROWS_PER_GROUP))
    with pq.ParquetWriter(sink, schema, **encoder_settings(options)) as writer:
        for start in range(0, len(numbers), rows_per_group):
            part = numbers[start : start + rows_per_group]
            writer.write_table(_position_rows(schema, file.file_path, part))
    io.create(location, sink.getvalue())
    path, first, last = file.file_path.encode(), int(numbers[0]), int(numbers[-1])
    return DataFile(
        content=FileContent.POSITION_DELETES,
        file_path=location,
        file_format="parquet",
        partition=file.partition,
        spec_id=file.spec_id,
        record_count=len(numbers),
        file_size_in_bytes=sink.tell(),
        lower_bounds={PATH_ID: path, POSITION_ID: to_bytes(LongType(), first)},
        upper_bounds={PATH_ID: path, POSITION_ID: to_bytes(LongType(), last)},
        referenced_data_file=file.file_path,
    )


def _position_rows(schema: pa.Schema, path: str, positions: Any) -> pa.Table:
    numbers = number_array(positions)
    paths = pa.DictionaryArray.from_arrays(number_array(np.zeros(len(numbers), np.int32)), text_array([path]))
    return pa.Table.from_arrays([paths, numbers], schema=schema)


def write_vectors(io: FileIO, location: str, vectors: Sequence[tuple[DataFile, RowPositions]]) -> list[DataFile]:
    """Write deletion vectors into one Puffin file, and describe them."""
    blobs = [
        Blob(
            type=DELETION_VECTOR,
            data=positions.to_blob(),
            fields=(POSITION.id,),
            properties={"referenced-data-file": file.file_path, "cardinality": str(positions.cardinality)},
        )
        for file, positions in vectors
    ]
    data, places = write_puffin(blobs, properties={"created-by": "airflow-iceberg"})
    io.create(location, data)
    return [
        DataFile(
            content=FileContent.POSITION_DELETES,
            file_path=location,
            file_format="puffin",
            partition=file.partition,
            spec_id=file.spec_id,
            record_count=positions.cardinality,
            file_size_in_bytes=len(data),
            referenced_data_file=file.file_path,
            content_offset=place.offset,
            content_size_in_bytes=place.length,
        )
        for (file, positions), place in zip(vectors, places, strict=True)
    ]
