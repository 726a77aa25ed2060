"""The pages of a Parquet file as they lie on disk, of which pyarrow tells nothing."""

from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq
from thrift.protocol.TCompactProtocol import TCompactProtocol
from thrift.Thrift import TType
from thrift.transport.TTransport import TMemoryBuffer

DATA, DICTIONARY, DATA_V2 = 0, 2, 3
# Fields of PageHeader: the page's kind, its sizes, and where each kind of page keeps its number of values.
_KIND, _SIZE, _SIZE_ON_DISK, _COUNTED_IN = 1, 2, 3, (5, 7, 8)


@dataclass(frozen=True, kw_only=True, slots=True)
class Page:
    """A page: DATA, DICTIONARY or DATA_V2; its size before compression, in bytes."""

    kind: int
    values: int
    size_bytes: int


def pages_of(path: str | Path, column: int = 0) -> list[Page]:
    """Return the pages of a column in the first row group."""
    chunk = pq.read_metadata(path).row_group(0).column(column)
    start = chunk.dictionary_page_offset if chunk.has_dictionary_page else chunk.data_page_offset
    with open(path, "rb") as file:
        file.seek(start)
        data = file.read(chunk.total_compressed_size)
    found, at = [], 0
    while at < len(data):
        buffer = TMemoryBuffer(data[at:])
        numbers = _numbers(TCompactProtocol(buffer))
        values = next(numbers[(field, 1)] for field in _COUNTED_IN if (field, 1) in numbers)
        found.append(Page(kind=numbers[(_KIND,)], values=values, size_bytes=numbers[(_SIZE,)]))
        at += buffer.cstringio_buf.tell() + numbers[(_SIZE_ON_DISK,)]
    return found


def _numbers(protocol: TCompactProtocol, path: tuple[int, ...] = ()) -> dict[tuple[int, ...], int]:
    """Read a struct, and return its numbers by the ids of the fields that lead to them."""
    found: dict[tuple[int, ...], int] = {}
    protocol.readStructBegin()
    while True:
        _, kind, number = protocol.readFieldBegin()
        if kind == TType.STOP:
            break
        if kind == TType.I32:
            found[(*path, number)] = protocol.readI32()
        elif kind == TType.STRUCT:
            found |= _numbers(protocol, (*path, number))
        elif kind == TType.STRING:
            protocol.readBinary()  # a bound, which is no text
        else:
            protocol.skip(kind)
        protocol.readFieldEnd()
    protocol.readStructEnd()
    return found
