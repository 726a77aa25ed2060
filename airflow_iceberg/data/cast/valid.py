"""Values that Arrow takes without looking, and that no reader of a table can take: found before they are written.

Arrow believes its buffers. A text may be no UTF-8, a time may have 25 hours, a decimal more digits than its type, an
offset may point behind its values, and a map may have a key twice. Rows that a data file has already are carried as
they are (`data.carried_rows`), so that a table with such values can be mended; only new rows are checked.

What lies below a null, or behind an index that no row has, is not a value. So Arrow's own check, which is fast and
looks at everything, decides only that all is well; if it finds something, the values themselves are looked at.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from airflow_iceberg.data.cast.nulls import Offence, in_parent, lengths_of, map_entries
from airflow_iceberg.format.arrow.buffers import number_array, numbers_of

is_ = pa.types

_SHOWN_BYTES = 40
_DAY = {"s": 86_400, "ms": 86_400_000, "us": 86_400_000_000, "ns": 86_400_000_000_000}


class Damaged(Exception):
    """An array whose buffers contradict each other, so that none of its values can be read."""

    def __init__(self, name: str, problem: str) -> None:
        super().__init__(problem)
        self.name = name


def check_values(array: pa.Array, name: str) -> None:
    """Check the values of a source before anything else is done with them; keys of maps are checked by `check_keys`.

    Args:
        name: the name of the column, for errors.
    Raises:
        Offence: a text that is no UTF-8, a time that is not in a day, a decimal with more digits than its type.
        Damaged: the buffers of the array contradict each other.
    """
    try:
        if not _is_plain(array):
            array.validate(full=True)
    except pa.ArrowInvalid as error:
        _check_closely(array, name, str(error))


def _is_plain(array: pa.Array) -> bool:
    """Return whether an array is one of ASCII texts, by far less work than Arrow needs.

    Raises:
        ArrowInvalid: its buffers contradict each other.
    """
    kind = array.type
    if is_.is_string(kind) or is_.is_large_string(kind):
        width = np.int32 if is_.is_string(kind) else np.int64
        array.view(pa.binary() if width is np.int32 else pa.large_binary()).validate(full=True)
        _, offsets, data = array.buffers()
        if not len(array) or data is None:
            return True
        ends = np.frombuffer(offsets, width, len(array) + 1, array.offset * np.dtype(width).itemsize)
        used = np.frombuffer(data, np.uint8)[ends[0] : ends[-1]]
        return not used.size or bool(used.max() < _ASCII)
    return False


_ASCII = 128


def _check_closely(array: pa.Array, name: str, problem: str) -> None:
    """As `check_values`, of an array about which Arrow complains: a null and what no row refers to are no values."""
    kind = array.type
    _require(array.validate, name)
    if isinstance(kind, pa.BaseExtensionType):
        check_values(array.storage, name)
    elif is_.is_dictionary(kind):
        _check_dictionary(array, name)
    elif is_.is_run_end_encoded(kind):
        ends = pa.RunEndEncodedArray.from_arrays(array.run_ends, pa.nulls(len(array.run_ends)))
        _require(lambda: ends.validate(full=True), name)
        check_values(pc.run_end_decode(array), name)
    elif is_.is_struct(kind):
        # flatten() applies the nulls of the struct to its fields.
        for item, child in zip(kind, array.flatten(), strict=True):
            check_values(child, f"{name}.{item.name}")
    elif is_.is_map(kind):
        _check_offsets(map_entries(array), name)
        _check_elements(map_entries(array), ("key", "value"), name)
    elif is_.is_nested(kind):
        _check_offsets(array, name)
        _check_elements(array, ("element",), name)
    else:
        _check_leaf(array, name, problem)


def _require(check: Callable[[], None], name: str) -> None:
    try:
        check()
    except pa.ArrowInvalid as error:
        raise Damaged(name, str(error)) from None


def _check_dictionary(array: pa.DictionaryArray, name: str) -> None:
    indices, count = array.indices.drop_null(), len(array.dictionary)
    if len(indices):
        found = pc.min_max(indices)
        if found["min"].as_py() < 0 or found["max"].as_py() >= count:
            raise Damaged(name, f"an index from {found['min']} to {found['max']} into a dictionary of {count} values")
    # The texts of a damaged dictionary cannot be decoded; those that no row has do not count.
    used = pc.unique(indices)
    values = array.dictionary.take(used)
    try:
        check_values(values, name)
    except Offence as offence:
        row = pc.index(array.indices, used[offence.index]).as_py()
        raise Offence(offence.name, row, offence.problem) from None


def _check_offsets(array: pa.Array, name: str) -> None:
    """Check where lists begin and end, without their elements."""
    kind = array.type
    if is_.is_list_view(kind) or is_.is_large_list_view(kind):
        _require(lambda: _without_elements(array, pa.list_view(pa.null())), name)
    elif is_.is_fixed_size_list(kind):
        return  # their number follows from the length, which is checked
    else:
        plain = pa.large_list(pa.null()) if is_.is_large_list(kind) else pa.list_(pa.null())
        _require(lambda: _without_elements(array, plain), name)


def _without_elements(array: pa.Array, plain: pa.DataType) -> None:
    elements = pa.nulls(len(array.values))
    if is_.is_list(plain) or is_.is_large_list(plain):
        buffers, factory = array.buffers()[:2], type(pa.array([], plain))
        bare = factory.from_buffers(plain, len(array), buffers, -1, array.offset, children=[elements])
    else:
        is_large = is_.is_large_list_view(array.type)
        factory = pa.LargeListViewArray if is_large else pa.ListViewArray
        bare = factory.from_arrays(array.offsets, array.sizes, elements)
    bare.validate(full=True)


def _check_elements(lists: pa.Array, names: tuple[str, ...], name: str) -> None:
    flat = lists.flatten()
    parts = [flat] if len(names) == 1 else [flat.field(position) for position in range(len(names))]
    for part, inner in zip(parts, names, strict=True):
        try:
            check_values(part, f"{name}.{inner}")
        except Offence as offence:
            raise in_parent(offence, lengths_of(lists)) from None


def _check_leaf(array: pa.Array, name: str, problem: str) -> None:
    kind = array.type
    if is_.is_date64(kind):
        return  # whole days are demanded where it becomes a date
    if is_.is_time(kind):
        number = array.view(pa.int32() if kind.bit_width == 32 else pa.int64())
        wrong = pc.or_(pc.less(number, 0), pc.greater_equal(number, _DAY[kind.unit]))
        index = pc.index(wrong, True).as_py()
        if index >= 0:
            raise Offence(name, index, _wrong_time(int(number[index].as_py()), kind.unit))
        return
    bytes_of = _BYTES_OF.get(str(kind))
    if bytes_of is not None:
        _require(lambda: array.view(bytes_of).validate(full=True), name)
    index = first_refused(array, lambda part: part.validate(full=True), (pa.ArrowInvalid,))
    if bytes_of is not None:
        raise Offence(name, index, _wrong_text(array.slice(index, 1).view(bytes_of)[0].as_py()))
    if is_.is_decimal(kind):
        raise Offence(
            name, index, f"the decimal {array[index].as_py()} has more digits than {kind}; correct it in the source"
        )
    raise Damaged(name, problem)


_BYTES_OF = {
    "string": pa.binary(),
    "large_string": pa.large_binary(),
    "string_view": pa.binary_view(),
}


def _wrong_text(value: bytes) -> str:
    cut = "…" if len(value) > _SHOWN_BYTES else ""
    return (
        f"the text {value[:_SHOWN_BYTES]!r}{cut} is not UTF-8; give it in UTF-8, or, if it is no text, make the column "
        f"binary"
    )


def _wrong_time(number: int, unit: str) -> str:
    whole = {"s": "seconds", "ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds"}[unit]
    return (
        f"the time {number} ({whole} since midnight) is not in a day; expected 00:00:00 to 23:59:59.999999, change the "
        f"value in the source"
    )


def first_refused(array: pa.Array, check: Callable[[pa.Array], object], errors: tuple[type[Exception], ...]) -> int:
    """Return the index of the first value that a check refuses, by halving; the last one if it refuses none before."""
    low, high = 0, len(array)
    while high - low > 1:
        middle = (low + high) // 2
        try:
            check(array.slice(low, middle - low))
            low = middle
        except errors:
            high = middle
    return low


# -- keys of maps ------------------------------------------------------------------------------------------------------


def has_maps(kind: pa.DataType) -> bool:
    """Return whether a plain Arrow type is or contains a map."""
    return bool(is_.is_map(kind)) or any(has_maps(kind.field(at).type) for at in range(kind.num_fields))


def check_keys(array: pa.Array, name: str) -> None:
    """Check that no map has a key twice, at any depth; of plain types, as a table has them.

    Raises:
        Offence: a map has.
    """
    kind = array.type
    if not has_maps(kind):
        return
    if is_.is_struct(kind):
        for item, child in zip(kind, array.flatten(), strict=True):
            check_keys(child, f"{name}.{item.name}")
        return
    lists = map_entries(array) if is_.is_map(kind) else array
    flat, lengths = lists.flatten(), lengths_of(lists)
    inner = {"element": flat}
    if is_.is_map(kind):
        inner = {"key": flat.field(0), "value": flat.field(1)}
        _check_unique(inner["key"], lengths, name)
    for part, child in inner.items():
        try:
            check_keys(child, f"{name}.{part}")
        except Offence as offence:
            raise in_parent(offence, lengths) from None


def _check_unique(keys: pa.Array, lengths: npt.NDArray[np.int64], name: str) -> None:
    if not len(keys) or lengths.max() < 2:
        return
    codes = _codes(keys)
    rows = np.repeat(np.arange(len(lengths)), lengths)
    order = np.lexsort((codes, rows))
    twice = (rows[order][1:] == rows[order][:-1]) & (codes[order][1:] == codes[order][:-1])
    if twice.any():
        at = order[1:][twice]
        key = int(at[np.argmin(rows[at])])
        raise Offence(
            name, int(rows[key]), f"the map has the key {_shown(keys[key])} twice; give each key of a map one value"
        )


def _codes(keys: pa.Array) -> npt.NDArray[np.int64]:
    """Return a number for each key, equal for equal keys; 0.0 and -0.0 are two keys, and NaN is one."""
    if is_.is_nested(keys.type):
        # The bytes of rows would differ by their offsets, so nested keys, which are rare, are compared in Python.
        known: dict[str, int] = {}
        return np.array([known.setdefault(repr(key.as_py()), len(known)) for key in keys], np.int64)
    encoded = keys.dictionary_encode(null_encoding="encode").indices
    return numbers_of(number_array(encoded.to_numpy(zero_copy_only=False).astype(np.int64)))


def _shown(key: pa.Scalar) -> str:
    try:
        text = repr(key.as_py())
    except (ValueError, OverflowError):
        text = str(getattr(key, "value", key))
    return text if len(text) <= _SHOWN_BYTES else f"{text[: _SHOWN_BYTES - 1]}…"
