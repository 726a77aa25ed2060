"""Data files that decode the rest of their manifest entry on demand, for `columns`.

Here: `ColumnDataFile`, and making many of them at once. Not here: decoding columns.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields, replace
from itertools import repeat
from typing import Any

import numpy as np

from airflow_iceberg.errors import FormatError
from airflow_iceberg.format.avro.columns_read import Column, Ints, Records
from airflow_iceberg.format.manifests.blocks import RecordReader
from airflow_iceberg.format.manifests.entries import NO_STATISTICS, DataFile, FileContent
from airflow_iceberg.format.manifests.records import record_to_entry

_CONTENTS = tuple(FileContent)


class Origin:
    """The bytes of some records and the values that they inherit."""

    __slots__ = ("_content", "_data", "_ends", "_first_row_id", "_reader", "_spec_id", "_starts")

    def __init__(
        self, records: Records, rows: Ints, reader: RecordReader, *, spec_id: Ints, content: Ints, first_row_id: Column
    ) -> None:
        self._data, self._reader = records.data, reader
        self._spec_id, self._content, self._first_row_id = spec_id, content, first_row_id
        starts, ends = records.starts[rows], records.starts[rows + 1]
        sizes = ends - starts
        if 4 * int(sizes.sum()) < len(records.data):
            # Else a few files would keep all the bytes in memory.
            spans = zip(starts.tolist(), ends.tolist(), strict=True)
            self._data = b"".join([records.data[start:end] for start, end in spans])
            ends = np.cumsum(sizes)
            starts = ends - sizes
        self._starts, self._ends = starts, ends

    def __len__(self) -> int:
        return len(self._starts)

    def spec_id(self, number: int) -> int:
        """Return the partition spec of a file."""
        return int(self._spec_id[number])

    def content(self, number: int) -> FileContent:
        """Return the content of a file."""
        return _CONTENTS[int(self._content[number])]

    def first_row_id(self, number: int) -> int | None:
        """Return the row id of the first row of a file."""
        valid = self._first_row_id.valid
        return int(self._first_row_id.values[number]) if valid is None or valid[number] else None

    def file(self, number: int) -> DataFile:
        """Return the file of a record, without inherited values."""
        record = self._reader.read(self._data[self._starts[number] : self._ends[number]])
        return record_to_entry(self._reader.reading, self.spec_id(number))(record).data_file


class ColumnDataFile(DataFile):
    """A data file that decodes the rest of its entry on demand, which most files never need.

    It is a `DataFile` in every respect: it equals one with the same values and is pickled as a whole.
    """

    __slots__ = ("number", "origin")

    origin: Origin
    number: int

    def __getattr__(self, name: str) -> Any:
        # Called only for attributes that are not set yet.
        if name not in _FIELDS:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        if name in _INHERITED:
            value = getattr(self.origin, name)(self.number)
            _SETTERS[name](self, value)
            return value
        file = self._decoded()
        for later in _LATER:
            _SETTERS[later](self, getattr(file, later))
        return getattr(self, name)

    def _decoded(self) -> DataFile:
        try:
            return self.origin.file(self.number)
        except (FormatError, ValueError) as error:
            raise FormatError(f"unexpected value in the entry of file {self.file_path} ({error})") from error

    def without_statistics(self) -> DataFile:
        """Return the file without the statistics that only planning needs; this object does not keep them either."""
        return replace(self._decoded(), first_row_id=self.first_row_id, **NO_STATISTICS)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, DataFile):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in _FIELDS)

    __hash__ = DataFile.__hash__


_new = object.__new__
_FIELDS = tuple(field.name for field in fields(DataFile))
_AT_ONCE = ("file_path", "partition", "record_count", "file_size_in_bytes")
_INHERITED = ("content", "spec_id", "first_row_id")  # or known without decoding the record again
_LATER = tuple(name for name in _FIELDS if name not in (*_AT_ONCE, *_INHERITED))
_SETTERS: dict[str, Callable[[Any, Any], None]] = {
    name: getattr(ColumnDataFile, name).__set__ for name in (*_FIELDS, *ColumnDataFile.__slots__)
}


def _set(name: str, objects: list[ColumnDataFile], values: Iterable[Any]) -> None:
    """Set a field of each object by its slot: frozen objects refuse assignment."""
    deque(map(_SETTERS[name], objects, values), maxlen=0)


def column_files(
    origin: Origin,
    *,
    file_path: Iterable[str],
    partition: Iterable[tuple[Any, ...]],
    record_count: Iterable[int],
    file_size_in_bytes: Iterable[int],
) -> Sequence[DataFile]:
    """Return the files of some records; they decode all other fields on demand."""
    result = list(map(_new, repeat(ColumnDataFile, len(origin))))
    _set("origin", result, repeat(origin))
    _set("number", result, range(len(result)))
    _set("file_path", result, file_path)
    _set("partition", result, partition)
    _set("record_count", result, record_count)
    _set("file_size_in_bytes", result, file_size_in_bytes)
    return result
