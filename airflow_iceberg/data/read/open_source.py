"""Opens a data file of any format as rows; each format has its own module."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from airflow_iceberg.data.arrow_version import explained
from airflow_iceberg.data.read.metadata_columns import FileFacts
from airflow_iceberg.data.read.parquet import ParquetSource
from airflow_iceberg.data.read.raw_rows import Source
from airflow_iceberg.errors import FormatError, UnsupportedError, missing_file, store_error
from airflow_iceberg.storage.base import FileIO
from airflow_iceberg.storage.local_names import native_name
from airflow_iceberg.storage.stores.store import UnclearError

FORMATS = ("parquet", "orc", "avro")


@contextmanager
def open_source(
    io: FileIO, file_format: str, facts: FileFacts, name_mapping: str | None = None, *, keep_dictionaries: bool = False
) -> Iterator[Source]:
    """Open a data file or a delete file; errors of Arrow and of the store, while it is open, become IcebergErrors.

    Args:
        keep_dictionaries: whether texts are read as dictionaries if a Parquet file has small ones.
    Raises:
        NotFoundError, FormatError, UnsupportedError, StorageError: the message names the file.
    """
    with open_handle(io, file_format, facts.location) as (handle, is_local):
        yield as_source(handle, file_format, facts, name_mapping, is_local, keep_dictionaries=keep_dictionaries)


@contextmanager
def open_handle(io: FileIO, file_format: str, location: str) -> Iterator[tuple[Any, bool]]:
    """Open the bytes of a file, and tell whether it is a local one; errors as of `open_source`."""
    filesystem, path = io.filesystem(location)
    is_local = "file" in ([filesystem.protocol] if isinstance(filesystem.protocol, str) else filesystem.protocol)
    name = "a Parquet file" if file_format == "parquet" else f"an {file_format.upper()} file"
    try:
        # Arrow reads local files itself, without Python's lock at every read.
        with _local_file(filesystem, path) if is_local else filesystem.open(path, "rb") as handle:
            yield handle, is_local
    except FileNotFoundError as error:
        raise missing_file(f"data file {location} does not exist, although the table lists it") from error
    except IsADirectoryError as error:
        raise FormatError(f"cannot read {name}: {location} is a directory", path=location) from error
    except OSError as error:
        # Arrow raises OSError for pages that cannot be decompressed, too, but without a number.
        if error.errno is None and not isinstance(error, UnclearError):
            raise FormatError(f"cannot read {name}: {explained(error)}", path=location) from error
        raise store_error(f"cannot read {location}", error, str(error)) from error
    except pa.ArrowNotImplementedError as error:
        raise UnsupportedError(f"cannot read data file {location}: {error}") from error
    except pa.ArrowException as error:
        raise FormatError(f"cannot read {name}: {explained(error)}", path=location) from error
    except FormatError as error:
        error.path = error.path or location
        raise


def _local_file(filesystem: Any, path: str) -> Any:
    with native_name(filesystem, path) as name:
        return pa.OSFile(name)


def as_source(
    handle: Any,
    file_format: str,
    facts: FileFacts,
    name_mapping: str | None,
    is_local: bool,
    *,
    keep_dictionaries: bool = False,
) -> Source:
    """Return an open file as rows."""
    if file_format == "orc":
        from airflow_iceberg.data.read.orc import OrcSource

        return OrcSource(handle, facts, name_mapping)
    if file_format == "avro":
        from airflow_iceberg.data.read.avro import AvroSource

        return AvroSource(handle, facts, name_mapping)
    return ParquetSource(handle, facts, name_mapping, pre_buffer=not is_local, keep_dictionaries=keep_dictionaries)
