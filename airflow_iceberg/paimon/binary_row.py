"""BinaryRow: the serialized form of partitions, keys and bounds in every manifest.

    blob    arity, 4 bytes, big-endian | row
    row     header byte (row kind) and null bits, in whole words | one slot of 8 bytes a field | variable part
    array   count, 4 bytes | null bits, in 4 bytes | elements, as wide as they are, in whole words | variable part
    map     size of the key array, 4 bytes | key array | value array
    vector  elements, as wide as they are, without nulls; how many the type says

All but the arity is little-endian. A value that does not fit into a slot is stored in the variable part; the slot then
has its offset, from the start of the row or array, and its length. Bytes are not trusted: the parts of one row must be
inside it, and together not be longer than it, so that the size of the bytes limits the work.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from decimal import Context, Decimal
from functools import partial
from typing import Any

from airflow_iceberg.errors import FormatError, UnsupportedError
from airflow_iceberg.paimon.types import PaimonType

Value = Any

COMPACT_DECIMAL = 18
"""Digits up to which a DECIMAL is a number of 8 bytes."""
COMPACT_TIMESTAMP = 3
"""Digits of the second's fraction up to which a TIMESTAMP is a number of 8 bytes."""

_MAX_DECIMAL_BYTES = 16
_NANOS = 1_000_000
_DECIMALS = Context(prec=80)
_LONG = struct.Struct("<q")
_INT = struct.Struct("<i")
_PAIR = struct.Struct("<ii")
_FIXED = {
    "TINYINT": struct.Struct("<b"),
    "SMALLINT": struct.Struct("<h"),
    "INT": _INT,
    "DATE": _INT,
    "BIGINT": _LONG,
    "FLOAT": struct.Struct("<f"),
    "DOUBLE": struct.Struct("<d"),
}
_VECTOR_ELEMENTS = ("BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE")
_WIDTHS = {"BOOLEAN": 1, "TINYINT": 1, "SMALLINT": 2, "INT": 4, "DATE": 4, "TIME": 4, "FLOAT": 4}


def row_arity(blob: bytes, *, where: str = "row", path: str | None = None) -> int:
    """Return the number of fields of a row; no bytes are a row without fields.

    Raises:
        FormatError: the bytes are shorter than a row of so many fields.
    """
    if not blob:
        return 0
    arity = int.from_bytes(blob[:4], "big", signed=True)
    if len(blob) < 4 or arity < 0 or len(blob) < 4 + _null_bits(arity) + 8 * arity:
        raise FormatError(
            f"unexpected {len(blob)} bytes for a row of {arity} fields "
            f"(expected at least {4 + _null_bits(max(arity, 0)) + 8 * max(arity, 0)}) in '{where}'",
            path=path,
        )
    return arity


class RowDecoder:
    """Decodes rows of the same types.

    Args:
        types: the types of the fields; a null is returned even if a type is not nullable.
    """

    __slots__ = ("_slots", "_start", "arity")

    def __init__(self, types: Iterable[PaimonType]) -> None:
        decoders = [_decoder(type_) for type_ in types]
        self.arity = len(decoders)
        self._start = _null_bits(self.arity)
        self._slots = tuple((1 << index, self._start + 8 * index, decode) for index, decode in enumerate(decoders))

    def decode(self, blob: bytes, *, where: str = "row", path: str | None = None) -> tuple[Value, ...]:
        """Return the values of a serialized row.

        Args:
            where: the name of the column, for the errors.
            path: the manifest, for the errors.

        Raises:
            FormatError: the bytes are no row of these types.
            UnsupportedError: the type of a value is unknown.
        """
        arity = row_arity(blob, where=where, path=path)
        if arity != self.arity:
            raise FormatError(f"a row has {arity} fields, expected {self.arity} in '{where}'", path=path)
        try:
            return self.row(_Region(memoryview(blob)[4:]))
        except FormatError as error:
            raise FormatError(f"{error} in '{where}'", path=path) from None
        except UnsupportedError as error:
            raise UnsupportedError(f"{error} in '{where}' of {path}") from None

    def row(self, region: _Region) -> tuple[Value, ...]:
        """Return the values of a row, without its arity."""
        if len(region.data) < self._start + 8 * self.arity:
            if not region.data and not self.arity:
                return ()
            raise FormatError(f"{len(region.data)} bytes are no row of {self.arity} fields")
        # The header byte, the kind of the row, comes before the null bits.
        nulls = int.from_bytes(region.data[: self._start], "little") >> 8
        return tuple([None if nulls & bit else decode(region, position) for bit, position, decode in self._slots])


def decode_row(
    blob: bytes, types: Iterable[PaimonType], *, where: str = "row", path: str | None = None
) -> tuple[Value, ...]:
    """Return the values of one serialized row; see `RowDecoder.decode`."""
    return RowDecoder(types).decode(blob, where=where, path=path)


class _Region:
    """The bytes of a row or an array, and the number of bytes that no slot has claimed yet."""

    __slots__ = ("data", "left")

    def __init__(self, data: memoryview) -> None:
        self.data = data
        self.left = len(data)

    def array(self, decode: Decode, width: int) -> tuple[Value, ...]:
        """Return the elements of an array, of so many bytes each in the fixed part."""
        count = int.from_bytes(self.data[:4], "little", signed=True)
        # Every element has at least one byte, so this limits the memory.
        if len(self.data) < 4 or not 0 <= count <= len(self.data):
            raise FormatError(f"unexpected {count} elements of an array in {len(self.data)} bytes")
        start = 4 + (count + 31) // 32 * 4
        if len(self.data) < start + width * count:
            raise FormatError(f"{len(self.data)} bytes are no array of {count} elements")
        nulls = int.from_bytes(self.data[4:start], "little")
        return tuple([None if nulls >> index & 1 else decode(self, start + width * index) for index in range(count)])

    def halves(self) -> tuple[_Region, _Region]:
        """Return the two arrays of a map."""
        size = int.from_bytes(self.data[:4], "little", signed=True)
        if len(self.data) < 4 or not 0 <= size <= len(self.data) - 4:
            raise FormatError(f"unexpected {size} bytes of keys in a map of {len(self.data)} bytes")
        return _Region(self.data[4 : 4 + size]), _Region(self.data[4 + size :])

    def part(self, position: int) -> memoryview:
        """Return the bytes that a slot names by length (low half) and offset (high half)."""
        length, offset = _PAIR.unpack_from(self.data, position)
        return self.claim(offset, length)

    def claim(self, offset: int, length: int) -> memoryview:
        if length < 0 or offset < 0 or offset + length > len(self.data):
            raise FormatError(f"{length} bytes at {offset} are outside of a row of {len(self.data)} bytes")
        self.left -= length
        if self.left < 0:
            raise FormatError(f"the parts of a row of {len(self.data)} bytes overlap")
        return self.data[offset : offset + length]

    def string(self, position: int) -> bytes:
        """Return bytes: up to 7 from the slot itself, marked by its highest bit, more from the variable part."""
        mark = self.data[position + 7]
        if not mark & 0x80:
            return bytes(self.part(position))
        length = mark & 0x7F
        if length > 7:
            raise FormatError(f"unexpected length {length} of bytes inside a slot")
        return bytes(self.data[position : position + length])


Decode = Callable[[_Region, int], Value]


def _null_bits(arity: int) -> int:
    """Return the size of the header and the null bits: one byte and a bit for each field, in words of 8 bytes."""
    return (arity + 63 + 8) // 64 * 8


def _width(type_: PaimonType) -> int:
    return _WIDTHS.get(type_.root, 8)


def _decoder(type_: PaimonType) -> Decode:
    """Return the function that decodes the value in the slot at a position."""
    fixed = _FIXED.get(type_.root)
    if fixed is not None:
        return lambda region, position: fixed.unpack_from(region.data, position)[0]
    return _SIMPLE.get(type_.root) or _DECODERS.get(type_.root, _unknown)(type_)


def _unknown(type_: PaimonType) -> Decode:
    def fail(region: _Region, position: int) -> Value:
        raise UnsupportedError(f"a value of type {type_} is not supported")

    return fail


def _boolean(region: _Region, position: int) -> bool:
    return region.data[position] != 0


def _time(region: _Region, position: int) -> int:
    return int(_INT.unpack_from(region.data, position)[0]) * 1000


def _text(region: _Region, position: int) -> str:
    data = region.string(position)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise FormatError(f"bytes {data[:40]!r} are no text in UTF-8") from error


def _decimal(type_: PaimonType) -> Decode:
    if type_.precision <= COMPACT_DECIMAL:
        return lambda region, position: _scaled(_LONG.unpack_from(region.data, position)[0], type_.scale)
    return partial(_wide_decimal, type_.scale)


def _wide_decimal(scale: int, region: _Region, position: int) -> Decimal:
    data = region.part(position)
    if not 0 < len(data) <= _MAX_DECIMAL_BYTES:
        raise FormatError(f"unexpected {len(data)} bytes of a decimal (expected 1 to {_MAX_DECIMAL_BYTES})")
    return _scaled(int.from_bytes(data, "big", signed=True), scale)


def _scaled(unscaled: int, scale: int) -> Decimal:
    return Decimal(unscaled).scaleb(-scale, context=_DECIMALS)


def _timestamp(type_: PaimonType) -> Decode:
    if type_.precision <= COMPACT_TIMESTAMP:
        return lambda region, position: _LONG.unpack_from(region.data, position)[0] * 1000
    return partial(_wide_timestamp, type_.precision > 6)


def _wide_timestamp(in_nanos: bool, region: _Region, position: int) -> int:
    nanos: int
    offset: int
    nanos, offset = _PAIR.unpack_from(region.data, position)
    if not 0 <= nanos < _NANOS:
        raise FormatError(f"unexpected {nanos} nanoseconds of a millisecond")
    millis: int = _LONG.unpack(region.claim(offset, 8))[0]
    return millis * _NANOS + nanos if in_nanos else millis * 1000 + nanos // 1000


def _array(type_: PaimonType) -> Decode:
    element = _part_of(type_, type_.element)
    decode, width = _decoder(element), _width(element)
    return lambda region, position: _Region(region.part(position)).array(decode, width)


def _map(type_: PaimonType) -> Decode:
    return _entries(_part_of(type_, type_.key), _part_of(type_, type_.value))


def _vector(type_: PaimonType) -> Decode:
    element = _part_of(type_, type_.element)
    if element.root not in _VECTOR_ELEMENTS:
        return _unknown(type_)
    decode, width, length = _decoder(element), _width(element), type_.precision

    def decode_vector(region: _Region, position: int) -> tuple[Value, ...]:
        part = _Region(region.part(position))
        if length < 1 or len(part.data) < width * length:
            raise FormatError(f"{len(part.data)} bytes are no vector of {length} elements of type {element}")
        return tuple([decode(part, width * index) for index in range(length)])

    return decode_vector


def _multiset(type_: PaimonType) -> Decode:
    return _entries(_part_of(type_, type_.element), PaimonType(root="INT", nullable=False))


def _entries(key: PaimonType, value: PaimonType) -> Decode:
    decode_key, key_width, decode_value, value_width = _decoder(key), _width(key), _decoder(value), _width(value)

    def decode(region: _Region, position: int) -> dict[Value, Value]:
        first, second = _Region(region.part(position)).halves()
        keys, values = first.array(decode_key, key_width), second.array(decode_value, value_width)
        if len(keys) != len(values):
            raise FormatError(f"a map has {len(keys)} keys and {len(values)} values")
        try:
            return dict(zip(keys, values, strict=True))
        except TypeError as error:
            raise UnsupportedError(f"a map with keys of type {key} is not supported") from error

    return decode


def _row(type_: PaimonType) -> Decode:
    fields = RowDecoder(field.type for field in type_.fields)
    return lambda region, position: fields.row(_Region(region.part(position)))


def _variant(region: _Region, position: int) -> tuple[bytes, bytes]:
    """Return value and metadata: the length of the value, 4 bytes, comes before both."""
    data = region.part(position)
    size = int.from_bytes(data[:4], "little", signed=True)
    if len(data) < 4 or not 0 <= size <= len(data) - 4:
        raise FormatError(f"unexpected {size} bytes of a variant's value in {len(data)} bytes")
    return bytes(data[4 : 4 + size]), bytes(data[4 + size :])


def _part_of(type_: PaimonType, part: PaimonType | None) -> PaimonType:
    if part is None:
        raise UnsupportedError(f"type {type_.root} has no type of its elements, keys or values")
    return part


_SIMPLE: dict[str, Decode] = {
    **{"BOOLEAN": _boolean, "TIME": _time, "CHAR": _text, "VARCHAR": _text, "VARIANT": _variant},
    **dict.fromkeys(("BINARY", "VARBINARY", "BLOB"), _Region.string),
}
# Those that depend on the parameters of the type.
_DECODERS: dict[str, Callable[[PaimonType], Decode]] = {
    "DECIMAL": _decimal,
    "TIMESTAMP": _timestamp,
    "TIMESTAMP_LTZ": _timestamp,
    "ARRAY": _array,
    "MAP": _map,
    "MULTISET": _multiset,
    "ROW": _row,
    "VECTOR": _vector,
}
