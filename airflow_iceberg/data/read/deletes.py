"""Deleted rows: position delete files, deletion vectors and equality delete files, read once for a scan.

Not here: which delete files apply to a data file (`plan.deletes`), sets of positions (`format.deletion_vectors`) and of
keys (`equality`).

Memory: the positions of a delete file of at most `_WHOLE_FILE_ROWS` rows, or of one data file; and all keys, shared by
the data files that they apply to.

Spec: Position Delete Files, Deletion Vectors, Equality Delete Files.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from threading import Lock
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from airflow_iceberg.data.read.columns import identity_constants
from airflow_iceberg.data.read.equality import KeySet
from airflow_iceberg.data.read.metadata_columns import FileFacts
from airflow_iceberg.data.read.open_source import open_source
from airflow_iceberg.data.read.raw_rows import BATCH_SIZE, RawRows
from airflow_iceberg.errors import FormatError, NotFoundError, UnsupportedError, missing_file
from airflow_iceberg.expressions.binding import column_path
from airflow_iceberg.expressions.metrics import may_match
from airflow_iceberg.expressions.tree import Column, Comparison, Expression
from airflow_iceberg.format.arrow.buffers import numbers_of
from airflow_iceberg.format.arrow.types import type_to_arrow
from airflow_iceberg.format.deletion_vectors import OVERHEAD, RowPositions
from airflow_iceberg.format.manifests.entries import DataFile, FileContent
from airflow_iceberg.format.partitions.spec import PartitionSpec
from airflow_iceberg.format.schemas.schema import Schema
from airflow_iceberg.format.types import GEOSPATIAL, LongType, NestedField, PrimitiveType, StringType, UnknownType
from airflow_iceberg.storage.base import FileIO

Mask = npt.NDArray[np.bool_]

_PATH = NestedField(id=2147483546, name="file_path", type=StringType(), required=True)
_POSITION = NestedField(id=2147483545, name="pos", type=LongType(), required=True)
POSITION_SCHEMA = Schema((_PATH, _POSITION))

CACHE_BYTES = 256 << 20
# A position delete file is read once for all its data files, unless it is larger than this.
_WHOLE_FILE_ROWS = 5_000_000
# Deleted positions that a data file does not have; more of them are no writer's.
_MOST_BEYOND = 1 << 16


@dataclass(frozen=True, kw_only=True, slots=True)
class RowDeletes:
    """The deleted rows of one data file.

    Attributes:
        keys: sets of deleted keys, each with its columns: one schema of a single column for each.
    """

    positions: RowPositions | None = None
    keys: tuple[tuple[tuple[Schema, ...], KeySet], ...] = ()

    @property
    def schemas(self) -> tuple[Schema, ...]:
        """The columns that are needed to apply the deletes."""
        return tuple(schema for schemas, _ in self.keys for schema in schemas)

    def deleted(self, rows: RawRows) -> Mask | None:
        """Return which rows are deleted, None for none."""
        mask = None if self.positions is None else self.positions.mask(rows.position, rows.count)
        needed = {_key_field(schema).id: schema for schema in self.schemas}
        columns = {field_id: _key_column(rows, schema) for field_id, schema in needed.items()}
        for schemas, keys in self.keys:
            matched = keys.matches([columns[_key_field(schema).id] for schema in schemas])
            mask = matched if mask is None else mask | matched
        return mask


NO_DELETES = RowDeletes()


class DeleteReader:
    """Reads each delete file once for a scan; may be shared by threads.

    Args:
        schemas: the table's schemas, which have the columns of equality ids, dropped ones included.
        name_mapping: the table's property `schema.name-mapping.default`.
        specs: the table's specs: a delete file may lack a column whose value is in its partition.
    """

    def __init__(
        self,
        io: FileIO,
        *,
        schemas: Sequence[Schema],
        name_mapping: str | None = None,
        specs: Sequence[PartitionSpec] = (),
        cache_bytes: int = CACHE_BYTES,
    ) -> None:
        self._specs = {spec.spec_id: spec for spec in specs}
        self._io = io
        self._schemas = tuple(schemas)
        self._name_mapping = name_mapping
        self._cache = _Cache(cache_bytes)

    def of(self, file: DataFile, delete_files: Sequence[DataFile]) -> RowDeletes:
        """Read the deletes of a data file, from the delete files that apply to it.

        Raises:
            FormatError: a malformed delete file.
            UnsupportedError: a delete file that cannot be read.
        """
        if not delete_files:
            return NO_DELETES
        positions: list[RowPositions] = []
        by_ids: dict[tuple[int, ...], list[DataFile]] = {}
        for delete in delete_files:
            check_delete_file(delete)
            if delete.content is FileContent.EQUALITY_DELETES:
                by_ids.setdefault(tuple(sorted(delete.equality_ids or ())), []).append(delete)
            else:
                positions.append(self._positions(delete, file))
        keys = tuple((self._key_schemas(ids), self._keys(ids, deletes)) for ids, deletes in by_ids.items())
        merged = positions[0].union(*positions[1:]) if positions else None
        return RowDeletes(positions=merged, keys=keys)

    # --- positions ----------------------------------------------------------------------------------------------------

    def _positions(self, delete: DataFile, file: DataFile) -> RowPositions:
        if delete.is_deletion_vector:
            return self._vector(delete, file)
        path = file.file_path
        if delete.record_count > _WHOLE_FILE_ROWS:
            return self._read_positions(delete, path).get(path, RowPositions.of(()))
        return self._whole_file(delete).get(path, RowPositions.of(()))

    def _whole_file(self, delete: DataFile) -> Mapping[str, RowPositions]:
        def load() -> tuple[Mapping[str, RowPositions], int]:
            found = self._read_positions(delete, None)
            return found, sum(len(path) + positions.size_bytes for path, positions in found.items())

        result: Mapping[str, RowPositions] = self._cache.get(delete.identity, load)
        return result

    def _read_positions(self, delete: DataFile, path: str | None) -> Mapping[str, RowPositions]:
        """Return the positions in a delete file by data file, or only those of one data file."""
        column = Column(_PATH.name, _PATH.id, _PATH.type, (_PATH.name,))
        row_filter = None if path is None else Comparison("=", column, path)
        parts: dict[str, _Positions] = {}
        for batch in self._rows(delete, (POSITION_SCHEMA,), row_filter):
            for found, positions in _by_path(batch.column(_PATH), batch.column(_POSITION), delete):
                if path is None or found == path:
                    parts.setdefault(found, _Positions()).add(positions)
        return {found: positions.all() for found, positions in parts.items()}

    def _vector(self, delete: DataFile, file: DataFile) -> RowPositions:
        offset, size = delete.content_offset, delete.content_size_in_bytes
        where = delete.file_path
        if delete.referenced_data_file != file.file_path:
            raise FormatError(
                f"expected a deletion vector of {file.file_path}, got one of {delete.referenced_data_file}"
            )
        if offset is None or size is None or offset < 0 or size < OVERHEAD:
            raise FormatError(f"unexpected span of {size} bytes at byte {offset} of a deletion vector", path=where)
        most = _most_positions(file)
        if delete.record_count > most or size > _most_vector_bytes(most):
            raise FormatError(
                f"unexpected size of a deletion vector, {delete.record_count} positions in {size} bytes, for data file "
                f"{file.file_path}, which has {file.record_count} rows",
                path=where,
            )
        try:
            blob = self._io.read(where, offset=offset, length=size)
        except NotFoundError as error:
            raise missing_file(f"delete file {where} does not exist, although the table lists it") from error
        found = RowPositions.from_blob(blob, path=where)
        if found.cardinality != delete.record_count:
            raise FormatError(
                f"a deletion vector holds {found.cardinality} positions, but the table says {delete.record_count}",
                path=where,
            )
        return found

    # --- keys ---------------------------------------------------------------------------------------------------------

    def _key_schemas(self, ids: tuple[int, ...]) -> tuple[Schema, ...]:
        return tuple(self._key_schema(field_id) for field_id in ids)

    def _key_schema(self, field_id: int) -> Schema:
        """Return a schema of one column, of its widest type, which the newest schema has."""
        for schema in self._schemas:
            if column_path(schema, field_id) is not None:
                kind = schema.find_field(field_id).type
                if not isinstance(kind, PrimitiveType) or isinstance(kind, GEOSPATIAL):
                    name = type(kind).__name__.removesuffix("Type").lower()
                    raise FormatError(f"equality deletes are by field id {field_id}, which is a {name}")
                return replace(schema.select([schema.find_name(field_id) or ""]), identifier_field_ids=())
        raise FormatError(f"equality deletes are by field id {field_id}, which is in no schema of the table")

    def _keys(self, ids: tuple[int, ...], deletes: Sequence[DataFile]) -> KeySet:
        def load() -> tuple[KeySet, int]:
            schemas = self._key_schemas(ids)
            columns = [[pa.nulls(0, type_to_arrow(_key_field(schema).type))] for schema in schemas]
            for delete in deletes:
                for rows in self._rows(delete, schemas):
                    for chunks, schema in zip(columns, schemas, strict=True):
                        chunks.append(_key_column(rows, schema))
            keys = KeySet([pa.concat_arrays(chunks) for chunks in columns])
            return keys, keys.size_bytes

        result: KeySet = self._cache.get((ids, tuple(delete.identity for delete in deletes)), load)
        return result

    # --- rows of a delete file ----------------------------------------------------------------------------------------

    def _rows(
        self, delete: DataFile, schemas: Sequence[Schema], row_filter: Expression | None = None
    ) -> Iterator[RawRows]:
        constants = identity_constants(self._specs.get(delete.spec_id), delete.partition)
        facts = FileFacts(location=delete.file_path, spec_id=delete.spec_id, constants=constants)
        with open_source(self._io, delete.file_format, facts, self._name_mapping) as source:
            known = {field.field_id for field in source.fields} | constants.keys()
            for field in (field for schema in schemas for field in schema.fields):
                if field.id not in known and not isinstance(field.type, UnknownType):
                    raise FormatError(f"a delete file has no column '{field.name}' (field id {field.id})")
            left = delete.record_count
            for part in source.parts():
                ranges = part.ranges(schemas[0]) if row_filter is not None else None
                if row_filter is None or ranges is None or may_match(row_filter, ranges):
                    for rows in part.read(schemas, BATCH_SIZE):
                        left -= rows.count
                        if left < 0:  # a few bytes may hold any number of equal rows
                            raise FormatError(
                                f"a delete file has more rows than the table says, {delete.record_count}",
                                path=delete.file_path,
                            )
                        yield rows


def _most_positions(file: DataFile) -> int:
    """Return how many positions of a data file may be deleted; some writers name rows that it does not have."""
    return file.record_count + _MOST_BEYOND


def _most_vector_bytes(positions: int) -> int:
    """Return the largest size of a vector: with a bitmap and a container for each position."""
    return 64 + 32 * positions


class _Positions:
    """The positions of one data file, in the order of a delete file: held as a set whenever there are many."""

    def __init__(self) -> None:
        self._parts: list[Any] = []
        self._waiting = 0
        self._found: list[RowPositions] = []

    def add(self, positions: Any) -> None:
        self._parts.append(positions)
        self._waiting += len(positions)
        if self._waiting > _WHOLE_FILE_ROWS:
            self.all()

    def all(self) -> RowPositions:
        """Return the set of all positions."""
        if self._parts:
            self._found.append(RowPositions.of(np.concatenate(self._parts)))
        self._parts, self._waiting = [], 0
        self._found = [self._found[0].union(*self._found[1:])]
        return self._found[0]


def check_delete_file(delete: DataFile) -> None:
    """Raise UnsupportedError for an unknown format or encryption, before a file is opened."""
    formats = ("puffin",) if delete.is_deletion_vector else ("parquet", "orc", "avro")
    if delete.file_format not in formats:
        raise UnsupportedError(f"delete file {delete.file_path} is {delete.file_format}, expected {', '.join(formats)}")
    if delete.key_metadata is not None:
        raise UnsupportedError(f"delete file {delete.file_path} is encrypted; encrypted tables cannot be read")


def _by_path(paths: pa.Array, positions: pa.Array, delete: DataFile) -> Iterator[tuple[str, Any]]:
    """Yield the path of each data file with its deleted positions."""
    if paths.null_count or positions.null_count:
        raise FormatError("a position delete has no path or no position", path=delete.file_path)
    encoded = paths.dictionary_encode()
    codes, numbers = numbers_of(encoded.indices), numbers_of(positions)
    if len(numbers) and numbers.min() < 0:
        raise FormatError(f"unexpected position {numbers.min()} of a deleted row", path=delete.file_path)
    order = np.argsort(codes, kind="stable")
    starts = np.searchsorted(codes[order], np.arange(len(encoded.dictionary)))
    for path, rows in zip(encoded.dictionary.to_pylist(), np.split(order, starts[1:]), strict=False):
        yield path, numbers[rows]


def _key_field(schema: Schema) -> NestedField:
    """Return the one column of a key, which may be inside of structs."""
    field = schema.fields[0]
    while (below := getattr(field.type, "fields", None)) is not None:
        field = below[0]
    return field


def _key_column(rows: RawRows, schema: Schema) -> pa.Array:
    array = rows.column(schema.fields[0])
    while pa.types.is_struct(array.type):
        # A field of a null struct is null.
        array = pc.struct_field(array, [0])
    return array


class _Cache:
    """The most recently used values, up to a number of bytes; one thread loads a value while others wait for it."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._lock = Lock()
        self._loading: dict[Hashable, Lock] = {}
        self._found: dict[Hashable, tuple[Any, int]] = {}

    def get(self, key: Hashable, load: Callable[[], tuple[Any, int]]) -> Any:
        """Return the value of a key, loaded if it is not cached."""
        with self._lock:
            own = self._loading.setdefault(key, Lock())
        with own:
            with self._lock:
                if key in self._found:
                    self._found[key] = self._found.pop(key)  # used last
                    return self._found[key][0]
            value, size = load()
            with self._lock:
                self._found[key] = value, size
                self._shrink()
            return value

    def _shrink(self) -> None:
        total = sum(size for _, size in self._found.values())
        for key in list(self._found):
            if total <= self._limit:
                return
            total -= self._found.pop(key)[1]
            self._loading.pop(key, None)
