"""The columns of a merge's source files, over all of them: united by name, each with one type.

A column of the table has the table's type as far as its values fit (`seen_types`), in CSV and JSON also if its name
has another case there: their values have no type of their own, or too few. A key that is compared with that of its own
name has the table's type in any case. The types of the others are those of the files, those of JSON as in
`sources.json.shape`, those of CSV text. A column or a field that a file does not have is null in its rows.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any, Self

import pyarrow as pa

from airflow_iceberg.data.cast.plain import plain_type, plainly, wider_type
from airflow_iceberg.data.cast.rows import check_rows, conform
from airflow_iceberg.errors import IcebergError, InvalidInputError
from airflow_iceberg.format.arrow.paths import spelled_path, twins
from airflow_iceberg.format.arrow.types import type_to_arrow
from airflow_iceberg.format.names import Path, fold
from airflow_iceberg.format.schemas.arrow import schema_from_arrow
from airflow_iceberg.format.schemas.schema import Schema, fresh_type
from airflow_iceberg.format.types import StructType, child_fields
from airflow_iceberg.jobs.merge.seen_types import read_type, seen_type, with_type
from airflow_iceberg.jobs.protocol.merge_task import MatchKey
from airflow_iceberg.jobs.sources.describe import FileColumns, json_columns, known_columns


@dataclass(frozen=True, kw_only=True, slots=True)
class SourceColumns:
    """The columns of a merge's source.

    Attributes:
        schema: all columns, as the SQL sees them.
        known: those that the table has, under their names in the source, as files are read: with all fields, and
            optional: a null is an error where a row of the table gets it.
    """

    schema: pa.Schema
    known: Schema

    @classmethod
    def of(cls, files: Sequence[FileColumns], table: Schema, keys: Sequence[MatchKey]) -> Self | None:
        """Return the columns of files, None without any.

        Args:
            keys: what rows are matched by, which each file must have; an object of JSON may lack it.
        Raises:
            InvalidInputError: a file without a key; a column of types that do not go together; names that differ by
                case alone, unless they stand side by side in a file of a format with types: then they are two columns.
        """
        found = _Found()
        for file in files:
            if file.schema is not None and file.schema.names:
                siblings = () if file.file_format == "csv" else file.schema.names
                for column in file.schema:
                    found.add(column.name, column.type, file.name, siblings)
                source_keys(keys, file.schema, file.name)
        in_json = [file for file in files if file.shape is not None and file.names]
        types = json_columns(in_json, table, any_case=True)
        for file in in_json:
            # Of a column of the table, `types` has new fields alone.
            of_table = known_columns(table, file.names, any_case=True)
            shapes = (file.shape and file.shape.fields) or {}
            for name in file.names:
                if name in of_table:
                    kind = shapes[name].seen_parts(of_table[name].type) if name in shapes else pa.null()
                else:
                    kind = types.field(name).type if name in types.names else pa.null()
                found.add(name, kind, file.name)
        texts = [name for file in files if file.file_format == "csv" and file.schema for name in file.schema.names]
        texts += [name for file in in_json for name in file.names]
        known_fields = known_columns(table, list(found.types)) | known_columns(table, texts, any_case=True)
        if not found.types:
            return None
        # A key is the table's value: what is no such value is in no row, and cannot be made one.
        fixed = _own_keys(keys, table)
        known_fields |= known_columns(table, _spelled_otherwise(fixed, found.types), any_case=True)
        read, columns = [], {}
        for name, field in known_fields.items():
            kinds = found.kinds(name)
            kind = read_type(field.type, kinds, [path[1:] for path in fixed if path[0] == field.name])
            read.append(with_type(replace(field, name=name, required=False), kind))
            columns[name] = seen_type(kind, kinds)
        seen = {
            n: found.type(n) if n not in columns else (kind := columns[n]) and type_to_arrow(kind) for n in found.types
        }
        schema = pa.schema([pa.field(name, kind) for name, kind in seen.items() if kind is not None])
        return cls(schema=schema, known=Schema(tuple(read)))

    def json_schema(self) -> Schema:
        """Return the columns that JSON lines are read as: the known ones, and those of types that JSON has."""
        known = {field.name for field in self.known.fields}
        others = [field for field in self.schema if field.name not in known]
        new = []
        for field in others:
            try:
                (found,) = schema_from_arrow(pa.schema([field])).fields
            except IcebergError:
                continue  # another format has it
            new.append(found)
        # Ids that are unique: no other is needed.
        numbers = count(1)
        struct = fresh_type(StructType(fields=(*self.known.fields, *new)), lambda: next(numbers))
        return Schema(child_fields(struct))

    def united(self, rows: pa.Table, source: str, *, first_row: int) -> pa.Table:
        """Return rows of a file with all columns, in their types.

        Raises:
            InvalidInputError: a value that does not fit; the message names column, file and row.
        """
        here = Schema(tuple(field for field in self.known.fields if field.name in rows.column_names))
        known = conform(rows.select([f.name for f in here.fields]), here, source=source, first_row=first_row)
        columns = []
        for field in self.schema:
            if field.name in known.column_names:
                columns.append(plainly(known.column(field.name), field.type))
            elif field.name in rows.column_names:
                one = rows.select([field.name])
                check_rows(one, source=source, first_row=first_row)
                columns.append(_plain(one.column(0), field, source))
            else:
                columns.append(pa.nulls(rows.num_rows, field.type))
        return pa.table(columns, schema=self.schema)


def source_keys(keys: Sequence[MatchKey], schema: pa.Schema, source: str) -> tuple[Path, ...]:
    """Return where the keys are in a source, in its own spelling.

    Raises:
        InvalidInputError: it has no such column or field, or several that differ by case alone from the name; two
            columns or fields of a name.
    """
    twice = twins(schema, str)
    if twice is not None:
        raise InvalidInputError(f"column '{twice[0]}' appears twice in {source}")
    found = []
    for key in keys:
        path = spelled_path(key.source, schema, where=source)
        if path is None:
            name, names = ".".join(key.source), ", ".join(schema.names)
            raise InvalidInputError(
                f"column {name!r}, by which rows are matched, is not in {source}; the columns there are {names}"
            )
        found.append(path)
    return tuple(found)


def _own_keys(keys: Sequence[MatchKey], table: Schema) -> list[Path]:
    """Return where the table has keys that are compared with those of the same name, whatever their case."""
    found = [(table.path(key.field_id), key.source) for key in keys]
    return [path for path, source in found if [*map(fold, path)] == [*map(fold, source)]]


def _spelled_otherwise(keys: Sequence[Path], names: Collection[str]) -> list[str]:
    """Return the columns of a source that are keys of the table, of which the only one differs by case."""
    columns = {fold(path[0]) for path in keys if len(path) == 1}
    by_fold: dict[str, list[str]] = {}
    for name in names:
        if fold(name) in columns:
            by_fold.setdefault(fold(name), []).append(name)
    return [near[0] for near in by_fold.values() if len(near) == 1]


class _Found:
    """The types of columns, and the files that they were found in."""

    def __init__(self) -> None:
        self.types: dict[str, list[tuple[pa.DataType, str]]] = {}
        self._files: dict[str, dict[str, str]] = {}

    def add(self, name: str, kind: pa.DataType, location: str, siblings: Collection[str] = ()) -> None:
        """Take a column of a file.

        Args:
            siblings: the columns of the file, of which those are two that differ by case alone.
        """
        same = self._files.setdefault(fold(name), {})
        for other, file in same.items() if name not in same else ():
            if other not in siblings:
                where = f"{file} and {location}" if file != location else location
                raise InvalidInputError(
                    f"columns {other!r} and {name!r} of {where} differ by case alone, and may be one: rename one"
                )
        same.setdefault(name, location)
        plain, seen = plain_type(kind), self.types.setdefault(name, [])
        if all(not one.equals(plain) for one, _ in seen):
            seen.append((plain, location))

    def kinds(self, name: str) -> list[pa.DataType]:
        """Return the plain types of a column, each once."""
        return [kind for kind, _ in self.types.get(name, ())]

    def type(self, name: str) -> pa.DataType:
        (found, first), *others = self.types[name]
        for kind, location in others:
            wider = wider_type(found, kind)
            if wider is None:
                raise InvalidInputError(
                    f"column {name!r} is {found} in {first} and {kind} in {location}, and no type holds both; a merge "
                    f"needs one type for each column of its source: convert one of the files, or add the column to the "
                    f"table, whose type it then gets"
                )
            found = wider
        return pa.string() if pa.types.is_null(found) else found


def _plain(column: pa.ChunkedArray, field: pa.Field, source: str) -> Any:
    try:
        return plainly(column, field.type)
    except pa.ArrowInvalid as error:
        raise InvalidInputError(
            f"column {field.name!r} of {source}: a value ({column.type}) cannot be {field.type}: {str(error)[:200]}; "
            f"change the value"
        ) from error
