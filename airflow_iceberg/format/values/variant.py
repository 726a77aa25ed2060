"""Variant values as bytes: objects are taken apart, and all values are put together.

Here: the binary encoding of metadata (a dictionary of field names) and value. Not here: files that hold parts of a
value in columns of their own (`data.variant_shredding`).

Spec: Parquet's Variant Binary Encoding, version 1, to which Iceberg's variant type refers.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from decimal import Context, Decimal
from itertools import pairwise

from airflow_iceberg.errors import FormatError
from airflow_iceberg.format import types as t

NULL = b"\x00"
_PRIMITIVE, _SHORT_STRING, _OBJECT, _ARRAY = range(4)
_EXACT = Context(prec=60)

_NUMBERS: Mapping[int, tuple[str, t.IcebergType]] = {
    3: ("<b", t.IntegerType()),
    4: ("<h", t.IntegerType()),
    5: ("<i", t.IntegerType()),
    6: ("<q", t.LongType()),
    7: ("<d", t.DoubleType()),
    11: ("<i", t.DateType()),
    12: ("<q", t.TimestamptzType()),
    13: ("<q", t.TimestampType()),
    14: ("<f", t.FloatType()),
    17: ("<q", t.TimeType()),
    18: ("<q", t.TimestamptzNsType()),
    19: ("<q", t.TimestampNsType()),
}
_DECIMALS: Mapping[int, tuple[int, int]] = {8: (4, 9), 9: (8, 18), 10: (16, 38)}
"""Bytes and largest precision by the id of the primitive type."""


# --- taking apart -----------------------------------------------------------------------------------------------------


def split(data: bytes) -> tuple[bytes, bytes]:
    """Return metadata and value of a variant that was written as one sequence of bytes, as bounds are.

    Raises:
        FormatError: an unknown version, or damaged bytes.
    Spec: Bounds for Variant.
    """
    read_names(data)
    width = (data[0] >> 6) + 1
    count = _unsigned(data, 1, width)
    end = 1 + width * (count + 2) + _unsigned(data, 1 + width * (count + 1), width)
    if end >= len(data):
        raise FormatError(f"a variant of {len(data)} bytes has metadata of {end} bytes, and no value")
    return data[:end], data[end:]


def read_names(metadata: bytes) -> tuple[str, ...]:
    """Return the field names of the dictionary.

    Raises:
        FormatError: an unknown version, or damaged bytes.
    """
    if not metadata or metadata[0] & 0x0F != 1:
        raise FormatError(f"unexpected version of variant metadata {metadata[:1]!r} (expected 1)")
    width = (metadata[0] >> 6) + 1
    count = _unsigned(metadata, 1, width)
    first = 1 + width * (count + 2)
    if first > len(metadata):
        raise FormatError(f"variant metadata of {len(metadata)} bytes has {count} names")
    offsets = [_unsigned(metadata, 1 + width * (index + 1), width) for index in range(count + 1)]
    spans = pairwise(offsets)
    try:
        return tuple(_slice(metadata, first + start, first + stop).decode("utf-8") for start, stop in spans)
    except UnicodeDecodeError as error:
        raise FormatError(f"a field name in variant metadata is not UTF-8 ({error})") from error


def object_fields(names: Sequence[str], data: bytes) -> dict[str, bytes]:
    """Return the fields of an object, each as the bytes of its value.

    Raises:
        FormatError: not an object, or damaged bytes.
    """
    kind, header = _header(data)
    if kind != _OBJECT:
        raise FormatError("expected an object in a variant, got something else")
    width, id_width, count_width = (header & 3) + 1, (header >> 2 & 3) + 1, 4 if header >> 4 & 1 else 1
    count = _unsigned(data, 1, count_width)
    ids_at = 1 + count_width
    offsets_at = ids_at + count * id_width
    first = offsets_at + (count + 1) * width
    if first > len(data):
        raise FormatError(f"an object of {len(data)} bytes in a variant has {count} fields")
    ids = [_unsigned(data, ids_at + index * id_width, id_width) for index in range(count)]
    offsets = [_unsigned(data, offsets_at + index * width, width) for index in range(count + 1)]
    # The values need not stand in the order of the names; each ends where the next one in the file starts.
    ordered = sorted(set(offsets))
    if len(ordered) != len(offsets) or ordered[-1] != offsets[-1] or any(found >= len(names) for found in ids):
        raise FormatError("the fields of an object in a variant overlap, or have no names")
    if len({names[found] for found in ids}) != len(ids):
        raise FormatError("an object in a variant has a field twice")
    end = dict(pairwise(ordered))
    return {
        names[found]: _slice(data, first + offset, first + end[offset])
        for found, offset in zip(ids, offsets[:-1], strict=True)
    }


def _header(data: bytes) -> tuple[int, int]:
    if not data:
        raise FormatError("a value of a variant has no bytes")
    return data[0] & 3, data[0] >> 2


def _unsigned(data: bytes, offset: int, width: int) -> int:
    return int.from_bytes(_slice(data, offset, offset + width), "little")


def _slice(data: bytes, start: int, stop: int) -> bytes:
    if not 0 <= start <= stop <= len(data):
        raise FormatError(f"unexpected end of a variant: bytes {start} to {stop} of {len(data)}")
    return data[start:stop]


# --- putting together -------------------------------------------------------------------------------------------------


def encode_primitive(type_: t.IcebergType, value: t.Value, *, int_size: int | None = None) -> bytes:
    """Return a primitive value as bytes.

    Args:
        int_size: bytes of an integer: 1, 2, 4 or 8; those of the type if left out.
    """
    match type_:
        case _ if value is None:
            return NULL
        case t.BooleanType():
            return _tag(1 if value else 2)
        case t.IntegerType() | t.LongType():
            size = int_size or (4 if isinstance(type_, t.IntegerType) else 8)
            return _tag({1: 3, 2: 4, 4: 5, 8: 6}[size]) + int(value).to_bytes(size, "little", signed=True)
        case t.DecimalType():
            kind = next(kind for kind, (_, precision) in _DECIMALS.items() if type_.precision <= precision)
            unscaled = int(Decimal(value).scaleb(type_.scale, _EXACT))
            return _tag(kind) + bytes([type_.scale]) + unscaled.to_bytes(_DECIMALS[kind][0], "little", signed=True)
        case t.StringType():
            return _encode_text(str(value))
        case t.BinaryType():
            return _tag(15) + len(value).to_bytes(4, "little") + bytes(value)
        case t.UUIDType():
            return _tag(20) + bytes(value.bytes)
    kind = next(kind for kind, (_, found) in _NUMBERS.items() if found == type_)
    return _tag(kind) + struct.pack(_NUMBERS[kind][0], value)


def _encode_text(text: str) -> bytes:
    data = text.encode()
    if len(data) < 64:
        return bytes([len(data) << 2 | _SHORT_STRING]) + data
    return _tag(16) + len(data).to_bytes(4, "little") + data


def _tag(kind: int) -> bytes:
    return bytes([kind << 2])


def encode_object(ids: Mapping[str, int], fields: Mapping[str, bytes]) -> bytes:
    """Return an object as bytes.

    Args:
        ids: number of each name in the metadata.
        fields: the bytes of each field's value.
    Raises:
        FormatError: a name is not in the metadata.
    """
    missing = [name for name in fields if name not in ids]
    if missing:
        raise FormatError(f"field '{missing[0]}' of a variant is not in its metadata")
    # Ordered by name, as bytes: readers search for a name by halving.
    names = sorted(fields, key=str.encode)
    numbers = [ids[name] for name in names]
    id_width, (width, offsets) = _width(max(numbers, default=0)), _offsets([fields[name] for name in names])
    is_large = len(names) > 255
    header = (width - 1) | (id_width - 1) << 2 | is_large << 4
    parts = [bytes([header << 2 | _OBJECT]), len(names).to_bytes(4 if is_large else 1, "little")]
    parts += [number.to_bytes(id_width, "little") for number in numbers]
    return b"".join([*parts, offsets, *(fields[name] for name in names)])


def encode_array(items: Sequence[bytes]) -> bytes:
    """Return an array as bytes, of the bytes of its items."""
    width, offsets = _offsets(items)
    is_large = len(items) > 255
    header = (width - 1) | is_large << 2
    count = len(items).to_bytes(4 if is_large else 1, "little")
    return b"".join([bytes([header << 2 | _ARRAY]), count, offsets, *items])


def _offsets(items: Sequence[bytes], width: int | None = None) -> tuple[int, bytes]:
    ends = [0]
    for item in items:
        ends.append(ends[-1] + len(item))
    width = width or _width(ends[-1])
    return width, b"".join(end.to_bytes(width, "little") for end in ends)


def _width(largest: int) -> int:
    return max(1, (largest.bit_length() + 7) // 8)
