"""Whether columns have the same values, which decides whether an update changes anything."""

import datetime as dt
import math

import pyarrow as pa
import pytest

from airflow_iceberg.data.same_values import are_same

STRUCT = pa.struct([("x", pa.float64()), ("y", pa.list_(pa.string()))])
VALUES = [
    (pa.int32(), [1, None, 3], [1, None, 4]),
    (pa.int32(), [1, None, 3], [1, 2, 3]),
    (pa.float64(), [math.nan, 1.0, None], [math.nan, 2.0, None]),
    (pa.float64(), [0.0, 1.0, None], [-0.0, 1.0, None]),
    (pa.float32(), [math.nan, 1.0, None], [1.0, 1.0, None]),
    (pa.string(), ["a", "", None], ["a", None, ""]),
    (pa.binary(), [b"a", b"", None], [b"a", b"b", None]),
    (pa.bool_(), [True, None], [False, None]),
    (pa.timestamp("us", "UTC"), [dt.datetime(2026, 1, 1, tzinfo=dt.UTC)], [dt.datetime(2026, 1, 2, tzinfo=dt.UTC)]),
    (pa.list_(pa.int64()), [[1, 2], [], None], [[1], [2], None]),
    (pa.list_(pa.int64()), [[1, 2], [None], None], [[1, 2], [3], None]),
    (pa.list_(pa.float64()), [[math.nan], [None]], [[math.nan], [0.0]]),
    (pa.map_(pa.string(), pa.int32()), [[("a", 1)], [], None], [[("a", 2)], [], None]),
    (pa.map_(pa.string(), pa.int32()), [[("a", 1), ("b", None)]], [[("b", None), ("a", 1)]]),
    (STRUCT, [{"x": math.nan, "y": ["a", None]}, None], [{"x": math.nan, "y": ["a", "b"]}, None]),
    (STRUCT, [{"x": None, "y": None}, None], [None, {"x": None, "y": None}]),
    (pa.list_(STRUCT), [[{"x": 1.0, "y": []}, None]], [[{"x": 1.0, "y": None}, None]]),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "values", "others"), VALUES)
def test_equal_values_and_others(kind, values, others):
    left, right = pa.array(values, kind), pa.array(others, kind)
    assert are_same(left, pa.array(values, kind))
    assert not are_same(left, right)
    assert not are_same(right, left)
    # As parts of longer arrays, with other buffers.
    longer = pa.concat_arrays([right, left, right])
    assert are_same(longer.slice(len(right), len(left)), left)
    assert not are_same(longer.slice(0, len(left)), left)


def test_encodings_and_types():
    texts = pa.array(["a", "b", None, "a"])
    assert are_same(texts.dictionary_encode(), texts)
    assert not are_same(pa.array([1], pa.int32()), pa.array([1], pa.int64()))
    assert not are_same(texts, texts.slice(1))
