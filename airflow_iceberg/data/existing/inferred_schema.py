"""The schema of existing Parquet files: the columns of all of them, and one for each folder name.

Columns are optional, since no file promises anything of the others. A column of several types gets the one that all may
be promoted to. The type of a folder's values is int, long, date or string, as Spark infers it; what Spark takes for a
timestamp, a double or a larger number is a text here, as it is written.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import date

import pyarrow as pa
import pyarrow.parquet as pq

from airflow_iceberg.data.declared import parquet_columns
from airflow_iceberg.data.existing.parquet_footer import read_footer
from airflow_iceberg.data.existing.partition import HIVE_NULL
from airflow_iceberg.data.existing.target import ExistingFile
from airflow_iceberg.data.read.open_source import open_handle
from airflow_iceberg.errors import InvalidInputError, UnsupportedError
from airflow_iceberg.format.names import fold
from airflow_iceberg.format.schemas.arrow import schema_from_arrow
from airflow_iceberg.format.schemas.schema import Schema
from airflow_iceberg.storage.base import FileIO

_WHOLE = re.compile(r"-?[0-9]{1,30}")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_INTS, _LONGS = range(-(2**31), 2**31), range(-(2**63), 2**63)


def columns_of(io: FileIO, file: ExistingFile) -> pa.Schema:
    """Return the columns of a Parquet file; a timestamp of INT96 has a time zone, as Spark and Hive mean it.

    Raises:
        NotFoundError, FormatError, UnsupportedError, StorageError: it cannot be read, or is no Parquet file.
    """
    if file.location.endswith((".orc", ".avro")):
        raise UnsupportedError(
            f"the columns of {file.location} are not inferred, only those of Parquet files; give the schema"
        )
    with open_handle(io, "parquet", file.location) as (handle, _):
        handle.seek(0, 2)
        footer = read_footer(handle, int(handle.tell()), file.location)
        found = pq.ParquetFile(handle, coerce_int96_timestamp_unit="us")
        declared = parquet_columns(found.schema_arrow, footer, file.location)
        return pa.schema([field.with_nullable(True) for field in declared])


def infer_schema(columns: Iterable[pa.Schema], files: Sequence[ExistingFile]) -> Schema:
    """Return the schema of a table that has all the files.

    Args:
        columns: the columns of each file.

    Raises:
        InvalidInputError: the files do not fit together, or have a type that Iceberg does not have.
    """
    distinct = {schema.to_string(): schema for schema in columns}
    try:
        found = pa.unify_schemas(list(distinct.values()), promote_options="permissive")
    except pa.ArrowException as error:
        raise InvalidInputError(f"the files have columns that do not fit together: {error}; give the schema") from error
    known = set(map(fold, found.names))
    for name in folder_names(files):
        if fold(name) not in known:
            found = found.append(pa.field(name, _type_of([file.folders[name] for file in files])))
    return schema_from_arrow(found)


def folder_names(files: Sequence[ExistingFile]) -> tuple[str, ...]:
    """Return the names of the folders `name=value`, from the outermost, which are the same for all files.

    Raises:
        InvalidInputError: they are not.
    """
    first, *others = files
    for other in others:
        if tuple(other.folders) != tuple(first.folders):
            raise InvalidInputError(
                f"file {first.location} lies in folders of {list(first.folders)}, and {other.location} in folders of "
                f"{list(other.folders)}; expected the same for all"
            )
    return tuple(first.folders)


def _type_of(texts: Sequence[str]) -> pa.DataType:
    given = {text for text in texts if text != HIVE_NULL}
    if given and all(_WHOLE.fullmatch(text) for text in given):
        numbers = [int(text) for text in given]
        for kind, values in ((pa.int32(), _INTS), (pa.int64(), _LONGS)):
            if all(number in values for number in numbers):
                return kind
    if given and all(_is_date(text) for text in given):
        return pa.date32()
    return pa.string()


def _is_date(text: str) -> bool:
    """Whether a text is a day of the calendar: 2026-02-30 is a text."""
    if not _DATE.fullmatch(text):
        return False
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True
