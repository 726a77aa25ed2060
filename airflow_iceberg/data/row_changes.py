"""Rows deleted from data files: copy-on-write writes a file without them, merge-on-read writes delete files.

Not here: which files are read and which are deleted whole (`operations.delete`), how rows are read (`read`), and the
commit.

A file is read twice: first the columns of the predicate, where statistics say that it may be true, to find the
positions; then, copy-on-write, the rest of its rows. A file without selected rows is not written at all.

Spec: Row-level Deletes; Position Delete Files; Deletion Vectors; Row Lineage.
"""

from __future__ import annotations

import io as bytes_io
import logging
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from airflow_iceberg.data.carried_rows import carried_rows
from airflow_iceberg.data.read.deletes import POSITION_SCHEMA, DeleteReader, RowDeletes
from airflow_iceberg.data.read.file import ReadAs, Unit
from airflow_iceberg.data.write.avro_file import encoded_blocks, header_metadata, new_blocks
from airflow_iceberg.data.write.options import WriteOptions
from airflow_iceberg.data.write.parquet_file import encoder_settings
from airflow_iceberg.data.write.partitioned import PartitionedWriter
from airflow_iceberg.errors import IcebergError
from airflow_iceberg.expressions.tree import Expression
from airflow_iceberg.format.arrow.buffers import number_array, numbers_of, text_array
from airflow_iceberg.format.deletion_vectors import RowPositions
from airflow_iceberg.format.manifests.entries import DataFile, FileContent
from airflow_iceberg.format.metadata_columns import LAST_UPDATED, POSITION, ROW_ID
from airflow_iceberg.format.puffin import DELETION_VECTOR, Blob, write_puffin
from airflow_iceberg.format.schemas.arrow import schema_to_arrow
from airflow_iceberg.format.schemas.evolving_fields import check_lineage_names
from airflow_iceberg.format.schemas.schema import Schema
from airflow_iceberg.format.types import LongType
from airflow_iceberg.format.values.bytes import to_bytes
from airflow_iceberg.storage.base import FileIO

log = logging.getLogger(__name__)

COPY_ON_WRITE, MERGE_ON_READ = "copy-on-write", "merge-on-read"
MODES = (COPY_ON_WRITE, MERGE_ON_READ)

PATH_ID, POSITION_ID = 2147483546, 2147483545
# A row of a position delete file before it is encoded: the position, since the path is the same in all of them.
_ROW_BYTES, _MOST_ROWS_PER_GROUP = 8, 1 << 20
# The bytes of paths that an Avro delete file repeats at a time.
_PORTION_BYTES = 16 << 20


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
    """What a delete did to one data file.

    Attributes:
        deleted_count: the number of rows that were deleted; with 0 the file does not change.
        is_gone: whether no row is left, and no file replaces this one.
    """

    file_path: str
    deleted_count: int
    is_gone: bool = False


@dataclass(kw_only=True, slots=True)
class RowChanges:
    """What a delete did to data files, and the data files or delete files that it wrote."""

    changes: list[RowChange] = field(default_factory=list)
    written: list[DataFile] = field(default_factory=list)


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
        for number, unit in enumerate(units):
            deleter.change(unit, number)
        return deleter.done()
    except BaseException:
        deleter.abort()
        raise


class _Deleter:
    """Changes data files one by one; all vectors are written into one Puffin file at the end."""

    def __init__(self, read: ReadAs, write: WriteAs, row_filter: Expression) -> None:
        self._read = read
        self._write = write
        self._filter = row_filter
        self._deletes = read.delete_reader()
        self._vectors: list[tuple[DataFile, RowPositions]] = []
        self._found = RowChanges()

    def change(self, unit: Unit, number: int) -> None:
        selected = _selected_rows(self._read, unit, self._deletes, self._filter)
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
        """Write the vectors and return all changes."""
        if self._vectors:
            location = self._location(self._vectors[0][0], "deletes.puffin")
            self._found.written += _write_vectors(self._read.io, location, self._vectors)
        return self._found

    def abort(self) -> None:
        """Delete the new files; never raises."""
        try:
            self._read.io.delete([file.file_path for file in self._found.written])
        except IcebergError as error:
            log.warning("left unreferenced files behind: %s", error)

    def _rewrite(self, unit: Unit, selected: RowPositions, number: int) -> tuple[DataFile, ...]:
        """Write the rows of a file that are kept, in their order, into its partition."""
        schema = written_schema(self._read.schemas[0], self._write.format_version)
        writer = PartitionedWriter(
            self._read.io,
            schema=schema,
            spec=self._read.specs[unit.file.spec_id],
            options=self._write.options,
            data_location=self._write.data_location,
            file_prefix=f"{self._write.file_prefix}-{number:05d}",
            # Rows of a sorted file are still sorted when some are deleted.
            sort_order_id=unit.file.sort_order_id or 0,
        )
        row_schema = schema_to_arrow(schema)
        try:
            into = writer.into(unit.file.partition)
            deletes = _WithMore(self._deletes, selected)
            for batch in self._read.rows(unit, deletes, schema=schema, keep_dictionaries=True):
                into.write(carried_rows(batch, schema, row_schema, path=unit.file.file_path))
            return into.close()
        except BaseException:
            writer.abort()
            raise

    def _mark(self, unit: Unit, selected: RowPositions, number: int) -> bool:
        """Mark the rows of a file as deleted; return whether no row is left."""
        file = unit.file
        by_position = [delete for delete in unit.delete_files if delete.content is FileContent.POSITION_DELETES]
        before = self._deletes.of(file, by_position).positions
        positions = selected if before is None else selected.union(before)
        if positions.cardinality >= file.record_count:
            return True
        if self._write.format_version >= 3:
            # A file has one vector: the new one also holds the positions that were deleted before.
            self._vectors.append((file, positions))
            return False
        options = self._write.delete_options
        options.check_format()
        location = self._location(file, f"{number:05d}-deletes.{options.file_format}")
        self._found.written.append(_write_position_deletes(self._read.io, location, file, selected, options))
        return False

    def _location(self, file: DataFile, name: str) -> str:
        spec = self._read.specs[file.spec_id]
        has_path = spec.fields and not name.endswith(".puffin")
        path = spec.partition_path(file.partition, self._read.schemas[0]) if has_path else ""
        unique = f"{self._write.file_prefix}-{uuid.uuid4()}-{name}"
        return self._write.options.file_location(self._write.data_location, path, unique)


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


def count_rows(read: ReadAs, unit: Unit, deletes: DeleteReader) -> int:
    """Return the number of rows of a file that are not deleted."""
    return sum(batch.num_rows for batch in read.rows(unit, deletes, schema=Schema()))


# -- delete files ------------------------------------------------------------------------------------------------------


def _write_position_deletes(
    io: FileIO, location: str, file: DataFile, positions: RowPositions, options: WriteOptions
) -> DataFile:
    """Write a position delete file for one data file, and describe it.

    Spec: Position Delete Files: sorted by path and position. The bounds of the path are never truncated, so that
    readers see that all positions are in one file.
    """
    encode = _avro_deletes if options.file_format == "avro" else _parquet_deletes
    data, numbers = encode(file.file_path, positions, options), positions.to_array()
    io.create(location, data)
    path, first, last = file.file_path.encode(), int(numbers[0]), int(numbers[-1])
    return DataFile(
        content=FileContent.POSITION_DELETES,
        file_path=location,
        file_format=options.file_format,
        partition=file.partition,
        spec_id=file.spec_id,
        record_count=len(numbers),
        file_size_in_bytes=len(data),
        lower_bounds={PATH_ID: path, POSITION_ID: to_bytes(LongType(), first)},
        upper_bounds={PATH_ID: path, POSITION_ID: to_bytes(LongType(), last)},
        referenced_data_file=file.file_path,
    )


def _parquet_deletes(path: str, positions: RowPositions, options: WriteOptions) -> bytes:
    """Return a Parquet file with the deleted positions of one data file."""
    import pyarrow.parquet as pq

    # One path for all rows: as a dictionary it takes no memory.
    path_type = pa.dictionary(pa.int32(), pa.string())
    path_field = pa.field("file_path", path_type, False, {"PARQUET:field_id": str(PATH_ID)})
    schema = pa.schema([path_field, pa.field("pos", pa.int64(), False, {"PARQUET:field_id": str(POSITION_ID)})])
    numbers, sink = positions.to_array(), bytes_io.BytesIO()
    rows_per_group = max(1, min(options.row_group_size_bytes // _ROW_BYTES, _MOST_ROWS_PER_GROUP))
    with pq.ParquetWriter(sink, schema, **encoder_settings(options)) as writer:
        for start in range(0, len(numbers), rows_per_group):
            part = number_array(numbers[start : start + rows_per_group])
            indices = number_array(np.zeros(len(part), np.int32))
            paths = pa.DictionaryArray.from_arrays(indices, text_array([path]))
            writer.write_table(pa.Table.from_arrays([paths, part], schema=schema))
    return sink.getvalue()


def _avro_deletes(path: str, positions: RowPositions, options: WriteOptions) -> bytes:
    """Return an Avro file with the deleted positions of one data file."""
    metadata = header_metadata(POSITION_SCHEMA, **{"delete-type": "position"})
    blocks, numbers = new_blocks(metadata, options, name=f"{path} {uuid.uuid4()}"), positions.to_array()
    pieces, rows_per_portion = [blocks.header], max(1, _PORTION_BYTES // len(path.encode()))
    for start in range(0, len(numbers), rows_per_portion):
        part = number_array(numbers[start : start + rows_per_portion])
        indices = number_array(np.zeros(len(part), np.int32))
        paths = pa.DictionaryArray.from_arrays(indices, text_array([path])).cast(pa.string())
        pieces += encoded_blocks(blocks, POSITION_SCHEMA, pa.table({"file_path": paths, "pos": part}))
    return b"".join(pieces)


def _write_vectors(io: FileIO, location: str, vectors: Sequence[tuple[DataFile, RowPositions]]) -> list[DataFile]:
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
