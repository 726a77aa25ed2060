"""An existing file as an entry of the table's metadata: opened, checked and measured by its footer, never rewritten.

Parquet files tell counts, sizes, bounds and row groups. Of ORC files pyarrow returns the number of rows only, and Avro
files have the numbers of rows of their blocks; their other bytes are not decoded.
"""

from __future__ import annotations

from typing import Any

import pyarrow.parquet as pq

from airflow_iceberg.data.existing.fields import FieldCheck
from airflow_iceberg.data.existing.parquet_footer import FooterStatistics, read_footer
from airflow_iceberg.data.existing.parquet_types import schema_nodes
from airflow_iceberg.data.existing.partition import folder_values, partition_of
from airflow_iceberg.data.existing.target import ExistingFile, Target
from airflow_iceberg.data.read.metadata_columns import FileFacts
from airflow_iceberg.data.read.open_source import as_source, open_handle
from airflow_iceberg.errors import FormatError, IcebergError, InvalidInputError, NotFoundError, UnsupportedError
from airflow_iceberg.format.manifests.entries import DataFile
from airflow_iceberg.storage.base import FileIO

_SUFFIXES = {".parquet": "parquet", ".pq": "parquet", ".orc": "orc", ".avro": "avro"}
_MAGICS = {b"PAR1": "parquet", b"PARE": "parquet", b"ORC": "orc", b"Obj\x01": "avro"}


def describe(io: FileIO, file: ExistingFile, target: Target) -> DataFile:
    """Return the entry of a file.

    Raises:
        NotFoundError: it does not exist.
        UnfitFileError: readers of the table would misread it.
        InvalidInputError: it does not fit the table, or its partition is not known.
        FormatError, UnsupportedError: it is damaged, or is no file of these formats, or is encrypted.
        StorageError: it cannot be read.
    """
    folders = folder_values(file, target.spec, target.schema)
    file_format = "data"
    try:
        file_format = format_of(io, file)
        with open_handle(io, file_format, file.location) as (handle, is_local):
            size_bytes = file.size_bytes if file.size_bytes is not None else _size_of(handle)
            footer_bytes = read_footer(handle, size_bytes, file.location) if file_format == "parquet" else b""
            facts = FileFacts(location=file.location)
            source: Any = as_source(handle, file_format, facts, target.name_mapping, is_local)
            known = {}
            ranges = None
            unzoned: frozenset[int] = frozenset()
            footer = None
            if isinstance(getattr(source, "parquet", None), pq.ParquetFile):
                footer = FooterStatistics(
                    source.parquet.metadata, footer_bytes, size_bytes=size_bytes, location=file.location
                )
                unzoned = footer.int96_leaves()
            nodes = schema_nodes(footer_bytes) if file_format == "parquet" else None
            check = FieldCheck(
                file.location, file_format, target, constants=folders.keys(), unzoned=unzoned, nodes=nodes
            )
            check.check(source.fields)
            if footer is None:
                record_count = source.count_rows()
            else:
                found, ranges = footer.metrics(source.fields, target)
                known, record_count = _statistics(found), footer.record_count
    except NotFoundError as error:
        raise NotFoundError(f"cannot add {file.location}: the file does not exist; nothing was committed") from error
    except UnsupportedError as error:
        raise UnsupportedError(f"cannot add {file.location}: {error}; nothing was committed") from error
    except IcebergError:
        raise
    except (ValueError, TypeError, OverflowError, LookupError) as error:  # names that are no UTF-8, and the like
        raise FormatError(f"cannot read the footer of the {file_format} file: {error}", path=file.location) from error
    partition = partition_of(file, target, folders, ranges) if record_count else ()
    return DataFile(
        file_path=file.location,
        file_format=file_format,
        partition=partition or tuple(None for _ in target.spec.fields),
        spec_id=target.spec.spec_id,
        record_count=record_count,
        file_size_in_bytes=size_bytes,
        **known,
    )


def format_of(io: FileIO, file: ExistingFile) -> str:
    """Return the format of a file by its suffix, or, as files of Hive have none, by its first bytes.

    Raises:
        InvalidInputError: it is none of Parquet, ORC and Avro.
    """
    name = file.location.rsplit("/", 1)[-1].lower()
    by_name = next((known for suffix, known in _SUFFIXES.items() if name.endswith(suffix)), None)
    if by_name is not None:
        return by_name
    start = io.read(file.location, offset=0, length=4)
    by_bytes = next((known for magic, known in _MAGICS.items() if start.startswith(magic)), None)
    if by_bytes is None:
        raise InvalidInputError(
            f"cannot add {file.location}: it is no Parquet, ORC or Avro file (first bytes {start!r}); nothing was "
            f"committed, load its rows with an append instead"
        )
    return by_bytes


def _statistics(found: Any) -> dict[str, Any]:
    """Return the attributes of a data file; those without a value are absent."""
    return {name: value or None for name, value in vars(found).items() if name != "record_count"}


def _size_of(handle: Any) -> int:
    handle.seek(0, 2)
    size = int(handle.tell())
    handle.seek(0)
    if size == 0:
        raise FormatError("the file is empty: not even a footer")
    return size
