"""Which columns the files of a source have: found over whole files, before rows are read.

The columns of most formats are in a header or a footer. Those of JSON lines are in the rows: all are read, and what is
kept is a shape, whose size does not depend on their number.
"""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa

from airflow_iceberg.errors import InvalidInputError
from airflow_iceberg.format.names import fold, spelled
from airflow_iceberg.format.schemas.schema import Schema
from airflow_iceberg.format.types import NestedField
from airflow_iceberg.jobs.protocol.merge_task import MergeTask
from airflow_iceberg.jobs.protocol.plan import AppendTask
from airflow_iceberg.jobs.sources import readers
from airflow_iceberg.jobs.sources.errors import read_errors
from airflow_iceberg.jobs.sources.json.absent import Absent, Path
from airflow_iceberg.jobs.sources.json.shape import MOST_KEYS, Shape, has_struct
from airflow_iceberg.jobs.sources.json.text import printable
from airflow_iceberg.jobs.sources.unit import Unit

if TYPE_CHECKING:
    from airflow_iceberg.storage.base import FileIO


@dataclass(frozen=True, kw_only=True)
class FileColumns:
    """The columns of a file.

    Attributes:
        location: the file; `name` is what messages call its rows.
        file_format: its format.
        schema: its columns, of other formats than JSON; None for an empty file.
        names: the keys of its objects, in the order in which they were seen.
        shape: what the table does not know of them.
        absent: paths of the fields with a default that none of them has.
    """

    location: str
    name: str
    file_format: str
    schema: pa.Schema | None = None
    names: tuple[str, ...] = ()
    shape: Shape | None = None
    absent: tuple[Path, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "location": self.location,
            "name": self.name,
            "format": self.file_format,
            "schema": None if self.schema is None else base64.b64encode(self.schema.serialize()).decode(),
            "names": self.names,
            "shape": None if self.shape is None else self.shape.to_dict(),
            "absent": self.absent,
        }

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Self:
        """Read what `to_dict` has written, in this process or in a task of the job."""
        schema, shape = document["schema"], document["shape"]
        return cls(
            location=document["location"],
            name=document["name"],
            file_format=document["format"],
            schema=None if schema is None else pa.ipc.read_schema(pa.py_buffer(base64.b64decode(schema))),
            names=tuple(document["names"]),
            shape=None if shape is None else Shape.from_dict(shape),
            absent=tuple(map(tuple, document["absent"])),
        )


def describe(
    units: Sequence[Unit], io: FileIO, *, schema: Schema, options: Mapping[str, str], any_case: bool = False
) -> tuple[FileColumns, ...]:
    """Return the columns of files, in their order; of a file that is cut into units once.

    Args:
        schema: the columns of the table.
        any_case: whether a column of the table may have another case in the source.
    Raises:
        as `sources.files.read_unit`.
    """
    whole = {unit.location: unit for unit in units}
    return tuple(_describe(unit, io, schema, options, any_case) for unit in whole.values())


def describe_units(task: AppendTask | MergeTask, units: Sequence[Unit], io: FileIO) -> tuple[FileColumns, ...]:
    """Return the columns of files."""
    is_merge = isinstance(task, MergeTask)
    options = task.source.format_options if task.source else {}
    return describe(units, io, schema=task.write.rows_schema, options=options, any_case=is_merge)


def json_columns(files: Iterable[FileColumns], schema: Schema, *, any_case: bool = False) -> pa.Schema:
    """Return what the table does not know of the JSON lines of a source: new columns, and new fields of its own."""
    names: dict[str, None] = {}
    shape = Shape()
    for file in files:
        if file.shape is not None:
            names |= dict.fromkeys(file.names)
            shape.merge(file.shape)
    known = known_columns(schema, list(names), any_case=any_case)
    fields = shape.fields or {}
    types = {n: fields[n].new_parts(known[n].type if n in known else None) for n in names if n in fields}
    return pa.schema([pa.field(name, kind) for name, kind in types.items() if kind is not None])


def known_columns(schema: Schema, names: Sequence[str], *, any_case: bool = False) -> dict[str, NestedField]:
    """Return the columns of the table by the names that they have in a source.

    Args:
        any_case: whether a name in another case means the column, too, unless one of the names is spelled as it.

    Raises:
        InvalidInputError: a name that may be two columns.
    """
    exact = {field.name: field for field in schema.fields}
    found = {name: exact[name] for name in names if name in exact}
    if any_case:
        # Most names are spelled as columns: the others alone are compared with them.
        near: dict[str, list[str]] = {}
        for own in exact:
            if own not in found:
                near.setdefault(fold(own), []).append(own)
        for name in names:
            meant = None if name in exact else spelled(name, near.get(fold(name), ()), where="the table")
            if meant is not None:
                found[name] = exact[meant]
    return {name: found[name] for name in names if name in found}


def _describe(unit: Unit, io: FileIO, schema: Schema, options: Mapping[str, str], any_case: bool) -> FileColumns:
    with read_errors(unit):
        if unit.file_format != "jsonl":
            found = readers.columns(unit, io, schema=schema, options=options)
            _check_names(found, unit.name)
            return FileColumns(location=unit.location, name=unit.name, file_format=unit.file_format, schema=found)
        absent = Absent(schema)
        rows = _rows(unit, io, options, absent)
        names, shape = _json_columns(rows, schema, unit.name, any_case)
        found = {"names": names, "shape": shape, "absent": tuple(sorted(absent.paths))}
        return FileColumns(location=unit.location, name=unit.name, file_format=unit.file_format, **found)


def _check_names(columns: pa.Schema | None, location: str) -> None:
    names = [] if columns is None else columns.names
    for name, count in Counter(names).items():
        if count > 1:
            raise InvalidInputError(f"column '{name}' appears twice in {location}")


def _rows(unit: Unit, io: FileIO, options: Mapping[str, str], absent: Absent) -> Iterator[tuple[int, dict[str, Any]]]:
    readers.check_options(unit, options)
    for lines in readers.objects(unit, io):
        for number, _, row in lines:
            absent.look(row)
            yield number, row


def _json_columns(
    rows: Iterator[tuple[int, dict[str, Any]]], schema: Schema, location: str, any_case: bool
) -> tuple[tuple[str, ...], Shape]:
    shape, seen = Shape(), set[str]()
    names: list[str] = []
    # What may have news: columns that the table does not have, and those with fields.
    open_names: dict[str, NestedField | None] = {}
    for number, row in rows:
        if not row.keys() <= seen:
            new = [name for name in row if name not in seen]
            names += new
            seen.update(new)
            known = known_columns(schema, new, any_case=any_case)
            open_names |= {n: known.get(n) for n in new if n not in known or has_struct(known[n].type)}
            if len(names) > MOST_KEYS:
                raise InvalidInputError(
                    f"row {number} of {location}: its objects have more than {MOST_KEYS} different keys, and each "
                    f"would be a column: put the keys into one object, for a map of the table"
                )
        for name, field in open_names.items():
            value = row.get(name)
            if value is None and name not in row:
                continue
            try:
                shape.field(name).add_known(value, None if field is None else field.type)
            except InvalidInputError as error:
                raise InvalidInputError(f"column '{printable(name)}', row {number} of {location}: {error}") from None
    return tuple(names), shape
