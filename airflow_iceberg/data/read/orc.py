"""The rows of an ORC file, a stripe at a time.

Field ids are attributes of the file's types (`iceberg.id`), which pyarrow hands on as metadata of the fields; so what
is found and converted is decided in `columns`, as for Parquet. Memory: the wanted columns of one stripe.

Spec: ORC (Appendix A): times of day are longs, uuids and fixed are binaries, timestamps have nanoseconds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyarrow import orc

from airflow_iceberg.data.read.file_fields import fields_by_id, file_fields
from airflow_iceberg.data.read.metadata_columns import FileFacts
from airflow_iceberg.data.read.raw_rows import RawRows, needed_columns, rows_without_columns
from airflow_iceberg.errors import UnsupportedError
from airflow_iceberg.format.schemas.schema import Schema


class OrcSource:
    """An open file and its columns."""

    def __init__(self, handle: Any, facts: FileFacts, name_mapping: str | None) -> None:
        self._file = orc.ORCFile(handle)
        self._facts = facts
        self._name_mapping = name_mapping
        self.fields = file_fields(self._file.schema, name_mapping)

    def parts(self) -> Iterator[OrcSource]:
        """Yield the file as a whole: pyarrow does not tell what the stripes hold."""
        yield self

    def ranges(self, schema: Schema) -> None:
        """Nothing is known before reading."""

    def read(self, schemas: Sequence[Schema], batch_size: int) -> Iterator[RawRows]:
        """Yield the rows with the columns that the schemas need."""
        wanted = needed_columns(schemas, self.fields)
        if not wanted:
            yield from rows_without_columns(self._facts, 0, self._file.nrows, batch_size)
            return
        names: list[str] | None = [field.name for field in wanted]
        if any("." in name for name in names or ()):
            # pyarrow takes a dot for a step into a struct.
            names = None
        position = 0
        for stripe in range(self._file.nstripes):
            rows = self._read_stripe(stripe, names)
            fields = fields_by_id(file_fields(rows.schema, self._name_mapping))
            for start in range(0, rows.num_rows, batch_size):
                batch = rows.slice(start, batch_size)
                yield RawRows(position=position, count=batch.num_rows, batch=batch, fields=fields, facts=self._facts)
                position += batch.num_rows

    def _read_stripe(self, stripe: int, names: list[str] | None) -> pa.RecordBatch:
        try:
            return self._file.read_stripe(stripe, columns=names)
        except pa.ArrowInvalid as error:
            others = [name for name in names or self._file.schema.names if not _has_timestamp(self._type(name))]
            if names is None or len(others) == len(names):
                raise
            # Where everything else can be read, it is not the file that is wrong.
            self._file.read_stripe(stripe, columns=others)
            raise UnsupportedError(
                f"ORC file {self._facts.location} has timestamps that cannot be read; pyarrow reads those of the years "
                f"1678 to 2261 only ({error})"
            ) from error

    def _type(self, name: str) -> pa.DataType:
        return self._file.schema.field(name).type


def _has_timestamp(kind: pa.DataType) -> bool:
    if pa.types.is_timestamp(kind):
        return True
    return any(_has_timestamp(kind.field(index).type) for index in range(kind.num_fields))
