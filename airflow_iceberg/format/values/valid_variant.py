"""Whether the bytes of a variant are one: the whole of metadata and value, whoever has made them.

Every offset is followed and every byte belongs to a value, so that no reader can fail or see something else later. Work
grows with the number of bytes: each part is looked at once, without recursion, and a count is believed only after the
bytes for it were found. Not here: taking values apart and putting them together (`values.variant`).

Spec: Parquet's Variant Binary Encoding, version 1, to which Iceberg's variant type refers.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import pairwise

from airflow_iceberg.errors import FormatError
from airflow_iceberg.format.values.variant import read_names

MOST_LEVELS = 1000
"""How deep objects and arrays may be nested. No rule says so, but readers recurse, and parsers of JSON end here."""

_SHORT_STRING, _OBJECT, _ARRAY = 1, 2, 3
# Bytes of the value by the id of the primitive type.
_SIZES: Mapping[int, int] = {
    **dict.fromkeys((0, 1, 2), 0),
    **{3: 1, 4: 2, 5: 4, 6: 8, 7: 8, 11: 4, 12: 8, 13: 8, 14: 4, 17: 8, 18: 8, 19: 8, 20: 16},
    **{8: 5, 9: 9, 10: 17},
}
_MOST_UNSCALED: Mapping[int, int] = {8: 10**9, 9: 10**18, 10: 10**38}
_MOST_SCALE = 38
_TIME, _BINARY, _LONG_STRING = 17, 15, 16
_MICROS_PER_DAY = 86_400_000_000
# Rows of one source often have the same metadata; large ones are not kept.
_CACHED_BYTES = 4096


def check_variant(metadata: bytes, value: bytes) -> None:
    """Check metadata and value of one variant.

    Raises:
        FormatError: says what is wrong.
    """
    names = _cached_names(metadata) if len(metadata) <= _CACHED_BYTES else _names(metadata)
    _check_value(value, names)


# --- metadata ---------------------------------------------------------------------------------------------------------


def _names(metadata: bytes) -> Sequence[str]:
    names = read_names(metadata)
    width = (metadata[0] >> 6) + 1
    first = 1 + width * (len(names) + 2)
    offsets = _numbers(metadata, 1 + width, len(names) + 1, width)
    if offsets[0] != 0 or first + offsets[-1] != len(metadata):
        raise FormatError(
            f"variant metadata of {len(metadata)} bytes has its names from byte {first + offsets[0]} to byte "
            f"{first + offsets[-1]}, expected from {first} to the end"
        )
    if metadata[0] >> 4 & 1 and not _is_sorted(names):
        raise FormatError("variant metadata says that its names are sorted and different, and they are not")
    return names


_cached_names = lru_cache(maxsize=256)(_names)


def _is_sorted(names: Sequence[str]) -> bool:
    """Return whether names ascend, by their UTF-8 as the specification says, or as Java compares texts."""
    if all(map(str.isascii, names)):
        return all(left < right for left, right in pairwise(names))
    for codec in ("utf-8", "utf-16-be"):
        encoded = [name.encode(codec) for name in names]
        if all(left < right for left, right in pairwise(encoded)):
            return True
    return False


# --- values -----------------------------------------------------------------------------------------------------------


def _check_value(data: bytes, names: Sequence[str]) -> None:
    if not data:
        raise FormatError("a value of a variant has no bytes")
    if data[0] & 3 < _OBJECT:
        _check_leaf(data, 0, len(data))
        return
    # Objects and arrays that were not looked at yet; other values are checked where they are found.
    waiting = [(0, len(data), 1)]
    while waiting:
        start, end, level = waiting.pop()
        if level > MOST_LEVELS:
            raise FormatError(f"a variant has objects and arrays in more than {MOST_LEVELS} levels")
        is_object = data[start] & 3 == _OBJECT
        first, offsets = _layout(data, start, end, names if is_object else None)
        # The values of an object need not stand in the order of the names, those of an array do.
        spans = sorted(offsets) if is_object else offsets
        if spans[0] != 0 or spans[-1] != offsets[-1] or first + spans[-1] != end:
            raise FormatError(
                f"the values of an object or array in a variant are not in the bytes for them, {first} to {end}"
            )
        for low, high in pairwise(spans):
            if low >= high:
                raise FormatError("two values of an object or array in a variant have the same bytes")
            if data[first + low] & 3 < _OBJECT:
                _check_leaf(data, first + low, first + high)
            else:
                waiting.append((first + low, first + high, level + 1))


def _layout(data: bytes, start: int, end: int, names: Sequence[str] | None) -> tuple[int, Sequence[int]]:
    """Return where the values of an object, or without names of an array, begin, and their offsets."""
    header = data[start] >> 2
    width, id_width = (header & 3) + 1, (header >> 2 & 3) + 1 if names is not None else 0
    count_width = 4 if header >> (4 if names is not None else 2) & 1 else 1
    ids_at = start + 1 + count_width
    if ids_at > end:
        raise FormatError("an object or array in a variant ends in its count")
    count = int.from_bytes(data[start + 1 : ids_at], "little")
    offsets_at = ids_at + count * id_width
    first = offsets_at + (count + 1) * width
    if first > end:
        raise FormatError(f"an object or array of {end - start} bytes in a variant has {count} values")
    if names is not None and count:
        _check_ids(_numbers(data, ids_at, count, id_width), names)
    return first, _numbers(data, offsets_at, count + 1, width)


def _check_ids(ids: Sequence[int], names: Sequence[str]) -> None:
    if max(ids) >= len(names):
        raise FormatError(
            f"an object in a variant has a field of number {max(ids)}, and metadata of {len(names)} names"
        )
    if not _is_sorted([names[number] for number in ids]):
        raise FormatError(
            "the fields of an object in a variant are not in the order of their names, or one is there twice"
        )


def _numbers(data: bytes, start: int, count: int, width: int) -> Sequence[int]:
    """Return unsigned numbers; the bytes for them are there."""
    part = data[start : start + count * width]
    if width == 1:
        return part
    return array("I", (int.from_bytes(part[at : at + width], "little") for at in range(0, len(part), width)))


def _check_leaf(data: bytes, start: int, end: int) -> None:
    kind, header, first = data[start] & 3, data[start] >> 2, start + 1
    if kind == _SHORT_STRING:
        expected, is_text = header, True
    elif header in (_BINARY, _LONG_STRING):
        expected, first, is_text = int.from_bytes(data[first : first + 4], "little"), first + 4, header == _LONG_STRING
    elif header in _SIZES:
        expected, is_text = _SIZES[header], False
    else:
        raise FormatError(f"a value of a variant is of type {header}, which version 1 does not have")
    if end - first != expected:
        raise FormatError(
            f"a value of type {header if not kind else 'short string'} in a variant has {max(end - first, 0)} bytes, "
            f"expected {expected}"
        )
    if is_text:
        _check_text(data[first:end])
    elif header in _MOST_UNSCALED:
        _check_decimal(data[first], int.from_bytes(data[first + 1 : end], "little", signed=True), header)
    elif header == _TIME and not 0 <= int.from_bytes(data[first:end], "little", signed=True) < _MICROS_PER_DAY:
        raise FormatError("a time in a variant is not in a day")


def _check_text(data: bytes) -> None:
    if data.isascii():
        return
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise FormatError(f"a text in a variant is not UTF-8 ({error})") from None


def _check_decimal(scale: int, unscaled: int, header: int) -> None:
    if scale > _MOST_SCALE:
        raise FormatError(f"a decimal in a variant has a scale of {scale}, expected {_MOST_SCALE} at most")
    if abs(unscaled) >= _MOST_UNSCALED[header]:
        digits = len(str(_MOST_UNSCALED[header])) - 1
        raise FormatError(f"a decimal in a variant has more than {digits} digits, which its type does not have")
