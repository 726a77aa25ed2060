"""Variants as Python values: the package takes only their objects apart, and never writes their metadata."""

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from itertools import accumulate, pairwise
from typing import Any
from uuid import UUID

from airflow_iceberg.format import types as t
from airflow_iceberg.format.values.variant import object_fields, read_names

NUMBERS: Mapping[int, tuple[str, t.IcebergType]] = {
    **{3: ("<b", t.IntegerType()), 4: ("<h", t.IntegerType()), 5: ("<i", t.IntegerType()), 6: ("<q", t.LongType())},
    **{7: ("<d", t.DoubleType()), 14: ("<f", t.FloatType()), 11: ("<i", t.DateType()), 17: ("<q", t.TimeType())},
    **{12: ("<q", t.TimestamptzType()), 13: ("<q", t.TimestampType())},
    **{18: ("<q", t.TimestamptzNsType()), 19: ("<q", t.TimestampNsType())},
}
DECIMALS = {8: (4, 9), 9: (8, 18), 10: (16, 38)}


@dataclass(frozen=True, slots=True)
class Primitive:
    """A value that is neither an object nor an array, with the Iceberg type that it has."""

    type: t.IcebergType
    value: t.Value


Node = Primitive | dict[str, Any] | list[Any]


def decode(metadata: bytes, value: bytes) -> Node:
    """Return a variant that is not damaged as objects (dicts), arrays (lists) and primitive values."""
    return _decode(read_names(metadata), value)


def _decode(names: Sequence[str], data: bytes) -> Node:
    kind, header = data[0] & 3, data[0] >> 2
    if kind == 1:
        return Primitive(t.StringType(), data[1 : 1 + header].decode())
    if kind == 2:
        return {name: _decode(names, child) for name, child in object_fields(names, data).items()}
    if kind == 3:
        width, at = (header & 3) + 1, 5 if header >> 2 & 1 else 2
        count = int.from_bytes(data[1:at], "little")
        ends = [int.from_bytes(data[at + i * width : at + (i + 1) * width], "little") for i in range(count + 1)]
        first = at + (count + 1) * width
        return [_decode(names, data[first + start : first + stop]) for start, stop in pairwise(ends)]
    if header in NUMBERS:
        form, type_ = NUMBERS[header]
        return Primitive(type_, struct.unpack_from(form, data, 1)[0])
    if header in DECIMALS:
        (size, precision), scale = DECIMALS[header], data[1]
        unscaled = Decimal(int.from_bytes(data[2 : 2 + size], "little", signed=True))
        return Primitive(t.DecimalType(max(precision, scale), scale), unscaled.scaleb(-scale, Context(prec=60)))
    if header in (1, 2):
        return Primitive(t.BooleanType(), header == 1)
    return {
        0: lambda: Primitive(t.UnknownType(), None),
        15: lambda: Primitive(t.BinaryType(), data[5:]),
        16: lambda: Primitive(t.StringType(), data[5:].decode()),
        20: lambda: Primitive(t.UUIDType(), UUID(bytes=data[1:17])),
    }[header]()


def encode_names(names: Sequence[str]) -> bytes:
    data = [name.encode() for name in names]
    ends = list(accumulate(map(len, data), initial=0))
    width = max(1, (max(len(data), ends[-1]).bit_length() + 7) // 8)
    is_sorted = all(left < right for left, right in pairwise(data))
    numbers = b"".join(number.to_bytes(width, "little") for number in (len(data), *ends))
    return bytes([1 | is_sorted << 4 | (width - 1) << 6]) + numbers + b"".join(data)


def plain(node: Any) -> Any:
    if isinstance(node, Primitive):
        return node.value
    if isinstance(node, Mapping):
        return {name: plain(child) for name, child in node.items()}
    return [plain(child) for child in node]
