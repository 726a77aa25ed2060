"""New values at some places of a column: the same for numbers, which are replaced in a copy, as for any other type."""

import datetime as dt
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from airflow_iceberg.data.new_values import with_values

STORED = {
    pa.int32(): [1, 2, 3, 4, 5],
    pa.int64(): [1, -2, 1 << 62, 4, 5],
    pa.float32(): [1.5, -0.0, 3.0, float("inf"), 5.0],
    pa.float64(): [1.5, -0.0, 3.0, float("inf"), 5.0],
    pa.date32(): [dt.date(2020, 1, day) for day in range(1, 6)],
    pa.time64("us"): [dt.time(hour) for hour in range(5)],
    pa.timestamp("us"): [np.datetime64(f"1969-01-0{day}T01:02:03").item() for day in range(1, 6)],
    pa.timestamp("us", "UTC"): [dt.datetime(1969, 1, day, tzinfo=dt.UTC) for day in range(1, 6)],
    pa.bool_(): [True, False, True, False, True],
    pa.string(): ["a", "b", "", "d", "e"],
    pa.binary(4): [b"abcd", b"efgh", b"ijkl", b"mnop", b"qrst"],
    pa.decimal128(15, 2): [Decimal(f"{number}.25") for number in range(5)],
    pa.list_(pa.int32()): [[1], [], None, [4], [5]],
}


def _given(kind: pa.DataType, places: list[int], values: list[object]) -> tuple[np.ndarray, pa.ChunkedArray]:
    # In chunks that begin in the middle of their buffers.
    array = pa.array([values[0], *values], kind).slice(1)
    return np.array(places), pa.chunked_array([array.slice(0, 1), array.slice(1)], type=kind)


@pytest.mark.parametrize("kind", STORED, ids=str)
@pytest.mark.parametrize("case", ["values", "new nulls", "stored nulls"])
def test_values_are_replaced_where_they_are_new(kind, case):
    values = list(STORED[kind])
    new = [values[4], values[3], None if case == "new nulls" else values[0]]
    if case == "stored nulls":
        values[1] = values[2] = None
    stored = pa.array([values[0], *values], kind).slice(1)
    given = [_given(kind, [0, 2], new[:2]), _given(kind, [4], new[2:])]
    expected = pa.array([new[0], values[1], new[1], values[3], new[2]], kind)
    found = with_values(stored, given, 5)
    found.validate(full=True)
    assert found.equals(expected)
    assert stored.equals(pa.array(values, kind))  # the rows that were read stay as they are


def test_bits_of_a_number_are_kept():
    odd = np.array([0x7FF8000000000123, 0x8000000000000000, 0x7FF0000000000001], np.uint64).view(np.float64)
    found = with_values(pa.array(odd), [_given(pa.float64(), [1], [2.0])], 3)
    assert found.view(pa.int64()).to_pylist()[::2] == pa.array(odd).view(pa.int64()).to_pylist()[::2]


def test_all_rows_may_get_values():
    given = [_given(pa.int64(), [1], [20]), _given(pa.int64(), [0, 2], [10, 30])]
    assert with_values(None, given, 3).to_pylist() == [10, 20, 30]
    stored = pa.array([1, 2, 3])
    assert with_values(stored, [], 3) is stored
