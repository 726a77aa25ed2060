"""Parquet files of a few KB that become gigabytes, page by page: what no writer writes, and every reader believes."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

DATA, DICTIONARY, DATA_V2 = 0, 2, 3
BOOLEAN, INT32, INT64, DOUBLE, BYTE_ARRAY, FIXED = 0, 1, 2, 5, 6, 7
PLAIN, RLE, DELTA_TEXTS, INDICES = 0, 3, 7, 8
CODECS = {"none": 0, "snappy": 1, "gzip": 2, "brotli": 4, "zstd": 6, "lz4_raw": 7}
REQUIRED, OPTIONAL, REPEATED = 0, 1, 2
_I32, _I64, _BINARY, _LIST, _STRUCT = 5, 6, 8, 9, 12


def varint(value: int) -> bytes:
    result = bytearray()
    while value > 0x7F:
        result.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*result, value])


def zigzag(value: int) -> bytes:
    return varint((value << 1) ^ (value >> 63))


def struct(fields: dict[int, Any]) -> bytes:
    """Return a struct of Thrift's compact protocol: int is i64, `Small` i32, bytes are a text, a dict is a struct."""
    result, before = b"", 0
    for number, value in fields.items():
        if value is None:
            continue
        kind, data = _encoded(value)
        result += bytes([(number - before) << 4 | kind]) + data
        before = number
    return result + b"\0"


class Small(int):
    """An integer of 32 bits."""


def _encoded(value: Any) -> tuple[int, bytes]:
    if isinstance(value, Small):
        return _I32, zigzag(value)
    if isinstance(value, int):
        return _I64, zigzag(value)
    if isinstance(value, bytes):
        return _BINARY, varint(len(value)) + value
    if isinstance(value, dict):
        return _STRUCT, struct(value)
    items = [_encoded(each) for each in value]
    kind = items[0][0] if items else _STRUCT
    head = bytes([len(items) << 4 | kind]) if len(items) < 15 else bytes([0xF0 | kind]) + varint(len(items))
    return _LIST, head + b"".join(data for _, data in items)


def packed(codec: str, unit: bytes, times: int = 1) -> bytes:
    """Return a unit of bytes, repeated and compressed, without making it as a whole."""
    if codec == "none":
        return unit * times
    if codec == "zstd":
        return pa.Codec("zstd").compress(unit, asbytes=True) * times  # frames follow each other
    if codec == "gzip":
        gzip = zlib.compressobj(wbits=31)
        return b"".join(gzip.compress(unit) for _ in range(times)) + gzip.flush()
    if codec == "brotli":
        sink = pa.BufferOutputStream()
        with pa.CompressedOutputStream(sink, "brotli") as stream:
            for _ in range(times):
                stream.write(unit)
        return sink.getvalue().to_pybytes()
    return pa.Codec(codec).compress(unit * times, asbytes=True)


def page(
    codec: str,
    unit: bytes,
    values: int,
    encoding: int = PLAIN,
    *,
    times: int = 1,
    kind: int = DATA,
    before: bytes = b"",
) -> bytes:
    """Return a page with its header; its bytes are `before` and then `unit`, so many times."""
    stored = (packed(codec, before) if before else b"") + packed(codec, unit, times)
    inner = {1: Small(values), 2: Small(encoding)}
    if kind == DATA:
        inner |= {3: Small(RLE), 4: Small(RLE)}
    head = {1: Small(kind), 2: Small(len(before) + len(unit) * times), 3: Small(len(stored))}
    return struct({**head, (7 if kind == DICTIONARY else 5): inner}) + stored


def run(value: int, count: int, width: int = 1) -> bytes:
    """Return a run of equal values, as levels and indices are written."""
    return varint(count << 1) + value.to_bytes((width + 7) // 8, "little")


def levels(*runs: bytes) -> bytes:
    data = b"".join(runs)
    return len(data).to_bytes(4, "little") + data


def text(size: int) -> bytes:
    """Return a plain text of some size."""
    return size.to_bytes(4, "little") + b"x" * size


@dataclass(frozen=True, kw_only=True)
class Bomb:
    """A column of values with its pages.

    Attributes:
        is_list: whether it is a list of such values.
    """

    kind: int
    pages: bytes
    values: int
    codec: str = "zstd"
    length: int | None = None
    is_list: bool = False
    is_required: bool = True
    dictionary_bytes: int = 0
    name: str = "a"
    field_id: int = 1
    converted: int | None = None

    @property
    def path(self) -> list[bytes]:
        name = self.name.encode()
        return [name, b"list", b"element"] if self.is_list else [name]

    def elements(self) -> list[dict[int, Any]]:
        repetition = Small(REQUIRED if self.is_required else OPTIONAL)
        leaf = {
            1: Small(self.kind),
            2: None if self.length is None else Small(self.length),
            3: repetition,
            4: self.path[-1],
            6: None if self.converted is None else Small(self.converted),
            9: Small(self.field_id if not self.is_list else self.field_id + 1000),
        }
        if not self.is_list:
            return [leaf]
        return [
            {3: Small(REQUIRED), 4: self.path[0], 5: Small(1), 6: Small(3), 9: Small(self.field_id)},
            {3: Small(REPEATED), 4: b"list", 5: Small(1)},
            leaf,
        ]


def write(path: Path, columns: Sequence[Bomb], rows: int, *, groups: int = 1, shared: bool = False) -> Path:
    """Write a file.

    Args:
        groups: the number of row groups, all of the same bytes.
        shared: whether all columns are the bytes of the first one.
    """
    data, chunks = b"PAR1", []
    for at, column in enumerate(columns):
        if at and shared:
            start = len(b"PAR1")
        else:
            start, data = len(data), data + column.pages
        meta = {
            1: Small(column.kind),
            2: [Small(PLAIN), Small(INDICES), Small(RLE)],
            3: column.path,
            4: Small(CODECS[column.codec]),
            5: column.values,
            6: len(column.pages),
            7: len(column.pages),
            9: start + column.dictionary_bytes,
            11: start if column.dictionary_bytes else None,
        }
        chunks.append({2: start, 3: meta})
    group = {1: chunks, 2: len(data), 3: rows}
    elements = [{4: b"schema", 5: Small(len(columns))}, *(each for column in columns for each in column.elements())]
    footer = struct({1: Small(1), 2: elements, 3: rows * groups, 4: [group] * groups})
    path.write_bytes(data + footer + len(footer).to_bytes(4, "little") + b"PAR1")
    return path


_MB = 1 << 20


def with_dictionary(entry: int, rows: int, *, codec: str = "zstd", is_list: bool = False, pages: int = 1) -> Bomb:
    """Return a column of rows that all are the one long text of a dictionary."""
    dictionary = page(codec, text(entry), 1, PLAIN, kind=DICTIONARY)
    each = rows // pages
    data = b"".join(page(codec, b"\x01" + run(0, each), each, INDICES) for _ in range(pages))
    if is_list:
        data = page(
            codec, levels(run(0, 1), run(1, rows - 1)) + levels(run(1, rows)) + b"\x01" + run(0, rows), rows, INDICES
        )
    return Bomb(
        kind=BYTE_ARRAY,
        pages=dictionary + data,
        values=rows,
        codec=codec,
        dictionary_bytes=len(dictionary),
        is_list=is_list,
        converted=0,
    )


def bombs(size: int) -> dict[str, tuple[list[Bomb], int, dict[str, Any]]]:
    """Return columns, rows and options of files that become `size` bytes, by what does it."""
    units, unit = size // (16 * _MB), bytes(16 * _MB)
    values = size // 8
    found: dict[str, tuple[list[Bomb], int, dict[str, Any]]] = {}
    for codec in ("zstd", "gzip", "brotli"):
        pages = page(codec, unit, values, times=units)
        found[f"a page of {codec}"] = [Bomb(kind=INT64, pages=pages, values=values, codec=codec)], values, {}
    one = page("zstd", text(64 * _MB - 4), 1)
    count = size // (64 * _MB)
    found["a text a page"] = [Bomb(kind=BYTE_ARRAY, pages=one * count, values=count, converted=0)], count, {}
    long = page("zstd", b"x" * (16 * _MB), 1, times=units, before=size.to_bytes(4, "little"))
    found["one long text"] = [Bomb(kind=BYTE_ARRAY, pages=long, values=1, converted=0)], 1, {}
    found["a text for all rows"] = [with_dictionary(_MB, size // _MB)], size // _MB, {}
    found["a text for all items"] = [with_dictionary(_MB, size // _MB, is_list=True)], 1, {}
    items = levels(run(0, 1), run(1, values - 1)) + levels(run(1, values))
    dictionary = page("zstd", bytes(8), 1, PLAIN, kind=DICTIONARY)
    data = page("zstd", items + b"\x01" + run(0, values), values, INDICES)
    number = Bomb(kind=INT64, pages=dictionary + data, values=values, dictionary_bytes=len(dictionary), is_list=True)
    found["a list of equal items"] = [number], 1, {}
    nulls = page("zstd", levels(run(0, 1), run(1, values - 1)) + levels(run(1, values)), values)
    found["a list of nulls"] = [Bomb(kind=INT64, pages=nulls, values=values, is_list=True, is_required=False)], 1, {}
    width = size // 4
    absent = page("zstd", levels(run(0, 4)), 4)
    found["nulls of wide values"] = [Bomb(kind=FIXED, length=width, pages=absent, values=4, is_required=False)], 4, {}
    shared = page("zstd", unit, 2 * _MB)
    columns = [
        Bomb(kind=INT64, pages=shared, values=2 * _MB, name=f"c{number}", field_id=number + 1)
        for number in range(size // (16 * _MB))
    ]
    found["columns of the same bytes"] = columns, 2 * _MB, {"shared": True}
    return found
