"""The rows of an ORC file, a stripe at a time.

Field ids are attributes of the file's types (`iceberg.id`), which pyarrow returns as metadata of the fields. Memory:
the wanted columns of one stripe.

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
        self.fields = file_fields(self._file.schema, name_mapping, facts.constants, path=facts.location)

    def parts(self) -> Iterator[OrcSource]:
        """Yield the whole file: pyarrow has no statistics of stripes."""
        yield self

    def ranges(self, schema: Schema) -> None:
        """Return None: nothing is known before reading."""

    def span(self) -> None:
        """Return None: a part is the whole file."""

    def count_rows(self) -> int:
        """Return the number of rows, by the footer."""
        return int(self._file.nrows)

    def read(self, schemas: Sequence[Schema], batch_size: int) -> Iterator[RawRows]:
        wanted = needed_columns(schemas, self.fields)
        if not wanted:
            yield from rows_without_columns(self._facts, 0, self._file.nrows, batch_size)
            return
        # pyarrow reads a name with a dot as a path.
        names = None if any("." in field.name for field in wanted) else [field.name for field in wanted]
        position = 0
        for stripe in range(self._file.nstripes):
            rows = self._read_stripe(stripe, names)
            fields = fields_by_id(file_fields(rows.schema, self._name_mapping, self._facts.constants))
            for start in range(0, rows.num_rows, batch_size):
                batch = rows.slice(start, batch_size)
                yield RawRows(position=position, count=batch.num_rows, batch=batch, fields=fields, facts=self._facts)
                position += batch.num_rows

    def _read_stripe(self, stripe: int, names: list[str] | None) -> pa.RecordBatch:
        try:
            return self._file.read_stripe(stripe, columns=names)
        except pa.ArrowInvalid as error:
            schema = self._file.schema
            others = [name for name in names or schema.names if not _has_timestamp(schema.field(name).type)]
            if names is None or len(others) == len(names):
                raise
            # If all other columns can be read, the file is not damaged.
            self._file.read_stripe(stripe, columns=others)
            raise UnsupportedError(
                f"ORC file {self._facts.location} has timestamps that cannot be read; pyarrow reads those of the years "
                f"1678 to 2261 only ({error})"
            ) from error


def _has_timestamp(kind: pa.DataType) -> bool:
    if pa.types.is_timestamp(kind):
        return True
    return any(_has_timestamp(kind.field(index).type) for index in range(kind.num_fields))
