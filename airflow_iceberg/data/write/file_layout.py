"""What all files of a writer share, whatever their format: columns, names, places.

Not here: the formats (`parquet_file`, `avro_file`), when a file ends and which partition a row belongs to
(`partitioned`).
"""

from __future__ import annotations

import errno
import itertools
import os
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, Protocol

import pyarrow as pa

from airflow_iceberg.data.write.metrics import LeafColumn, MetricsPlan, leaf_columns
from airflow_iceberg.data.write.options import WriteOptions
from airflow_iceberg.errors import advised, store_error
from airflow_iceberg.format.manifests.entries import DataFile
from airflow_iceberg.format.partitions.spec import PartitionSpec
from airflow_iceberg.format.schemas.arrow import schema_to_arrow
from airflow_iceberg.format.schemas.schema import Schema
from airflow_iceberg.format.types import Value
from airflow_iceberg.storage.base import FileIO
from airflow_iceberg.storage.local_names import native_name

UNSORTED_ORDER_ID = 0
_UPLOAD_BLOCK_BYTES = 8 * 1024 * 1024


class OpenFile(Protocol):
    """A data file that is being written."""

    @property
    def location(self) -> str: ...

    @property
    def size_bytes(self) -> int:
        """Bytes written so far."""

    def write_rows(self, table: pa.Table) -> None:
        """Write rows in the types of the file: as one row group, if the format has such."""

    def close(self) -> DataFile:
        """Finish the file and describe it."""

    def abort(self) -> None:
        """Close the file's handles; the caller deletes the file."""


class FileLayout(ABC):
    """What all files of a writer have in common: types, encoder settings, names.

    Args:
        schema: the schema of the rows, with the table's field ids.
        spec: the partition spec of the files.
        data_location: the directory of the data files.
        file_prefix: the start of every file name; a uuid makes the names unique.
        sort_order_id: the id of the sort order of the rows.
    Raises:
        UnsupportedError: a type of the schema cannot be written yet.
    """

    file_format: ClassVar[str]

    def __init__(
        self,
        io: FileIO,
        *,
        schema: Schema,
        spec: PartitionSpec,
        options: WriteOptions,
        data_location: str,
        file_prefix: str,
        sort_order_id: int = UNSORTED_ORDER_ID,
    ) -> None:
        self.schema = schema
        self.sort_order_id = sort_order_id
        self.spec = spec
        self.options = options
        self.columns: tuple[LeafColumn, ...] = leaf_columns(schema)
        self.metrics = MetricsPlan(self.columns, options.metrics)
        self.row_schema = schema_to_arrow(schema)
        self._data_location = data_location.rstrip("/")
        self._filesystem, self._data_path = io.filesystem(self._data_location)
        self._name = f"{file_prefix}-{uuid.uuid4()}"
        self._numbers = itertools.count(1)

    @abstractmethod
    def to_file(self, table: pa.Table) -> pa.Table:
        """Return rows in the types of the file, mostly without a copy."""

    @abstractmethod
    def encoded_bytes(self, sample: pa.Table) -> int:
        """Return the size of some rows in a file; they are in its types."""

    @abstractmethod
    def open(self, partition: tuple[Value, ...], first: pa.Table) -> OpenFile:
        """Open a new file.

        Args:
            first: the first rows, which are not written here.
        Raises:
            StorageError: the store rejects the file.
            UnsupportedError: the table requires another file format.
        """

    def next_location(self, partition: tuple[Value, ...]) -> str:
        """Return the location of a new file."""
        path = self.spec.partition_path(partition, self.schema) if self.spec.fields else ""
        name = f"{self._name}-{next(self._numbers):05d}.{self.file_format}"
        return self.options.file_location(self._data_location, path, name)

    def open_sink(self, location: str) -> Any:
        """Open a new file for writing: natively on a local disk, through fsspec elsewhere."""
        path = self._data_path + location.removeprefix(self._data_location)
        if "file" not in self._filesystem.protocol:  # a name or a tuple of names
            # Large default blocks of object stores (50 MiB) times many open partitions would need gigabytes.
            return pa.PythonFile(self._filesystem.open(path, "wb", block_size=_UPLOAD_BLOCK_BYTES), mode="w")
        with native_name(self._filesystem, path, new=True) as name:
            return pa.OSFile(name, "wb")


@contextmanager
def storage_errors(location: str) -> Iterator[None]:
    """Raise a store's error as a StorageError that names the file; ArrowInvalid is an error in the rows."""
    try:
        yield
    except OSError as error:
        # pyarrow puts the place and the same words into the text; of a link the store has more to say.
        own_words = error.strerror if error.errno == errno.ELOOP else str(error)
        reason = os.strerror(error.errno).lower() if error.errno and error.errno != errno.ELOOP else str(own_words)
        failed = store_error(f"cannot write {location}", error, reason)
        if failed.advice is None:
            failed = advised(failed, "check that the place exists, has room and may be written to")
        raise failed from error
