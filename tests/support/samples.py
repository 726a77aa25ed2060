"""Rows that hold every type of format version 2, with nulls, extremes and odd names, for tests with other engines."""

import datetime as dt
import decimal
import uuid

import pyarrow as pa

SCHEMA = {
    "id": "long not null",
    "flag": "boolean",
    "small": "int",
    "ratio": "float",
    "amount": "double",
    "price": "decimal(9, 2)",
    "total": "decimal(18, 6)",
    "huge": "decimal(38, 10)",
    "day": "date",
    "local": "timestamp",
    "moment": "timestamptz",
    "name": "string",
    "blob": "binary",
    "code": "fixed[4]",
    "place": "struct<x: double, y: double not null, tags: list<string>>",
    "tags": "list<string>",
    "counts": "map<string, long>",
    "deep": "list<struct<k: string, v: map<int, list<long>>>>",
}
# What PyIceberg and Spark handle differently: a time of day and a uuid have no Spark type.
ODD_COLUMNS = {"mit leerzeichen": "int", "punkt.im.namen": "int", "größe": "string", "select": "int", "1st": "int"}

INT, LONG = 2**31, 2**63


def rows(first: int = 0) -> pa.Table:
    place = [{"x": 1.5, "y": 2.5, "tags": ["a", None]}, {"x": None, "y": -1.0, "tags": []}, None]
    place += [{"x": 0.0, "y": 0.0, "tags": None}] * 5
    columns = {
        "id": (range(first, first + 8), pa.int64()),
        "flag": ([True, False, None] * 2 + [True, False], pa.bool_()),
        "small": ([-INT, INT - 1, 0, None, 1, -1, 42, 7], pa.int32()),
        "ratio": ([1.5, -0.0, None, 3.4e38, float("inf"), -float("inf"), 1e-45, 0.0], pa.float32()),
        "amount": ([1.5, None, -0.0, 1.7e308, float("inf"), -float("inf"), 5e-324, 0.0], pa.float64()),
        "price": (decimals("0.00 9999999.99 -9999999.99 None 1.23 -0.01 5.50 7.00"), pa.decimal128(9, 2)),
        "total": (decimals("0.000001 999999999999.999999 None -1.5 2 3 4 5"), pa.decimal128(18, 6)),
        "huge": (decimals("9999999999999999999999999999.9999999999 -1 None 0 1 2 3 4"), pa.decimal128(38, 10)),
        "day": (
            [dt.date(1969, 12, 31), dt.date(1970, 1, 1), None, dt.date(2026, 2, 28), dt.date(1900, 1, 1)]
            + [dt.date(2100, 1, 1)] * 3,
            pa.date32(),
        ),
        "local": (moments(None), pa.timestamp("us")),
        "moment": (moments(dt.UTC), pa.timestamp("us", tz="UTC")),
        "name": (["", "a", None, "ä" * 20, "𝄞" * 20, "\u0000x", "z" * 100, "'\"\\"], pa.string()),
        "blob": ([b"", b"\x00\xff", None, b"\xff" * 20, b"abc", b"d", b"e", b"f"], pa.binary()),
        "code": (
            [b"\x00\x00\x00\x00", b"\xff\xff\xff\xff", None, b"abcd", b"efgh", b"ijkl", b"mnop", b"qrst"],
            pa.binary(4),
        ),
        "place": (
            place,
            pa.struct(
                [("x", pa.float64()), pa.field("y", pa.float64(), nullable=False), ("tags", pa.list_(pa.string()))]
            ),
        ),
        "tags": ([["a", "b"], [], None, [None], ["c"], ["d"], ["e", "f", "g"], [""]], pa.list_(pa.string())),
        "counts": (
            [{"a": 1}, {}, None, {"b": None, "c": LONG - 1}] + [{"d": -LONG}] * 4,
            pa.map_(pa.string(), pa.int64()),
        ),
        "deep": (
            [[{"k": "a", "v": {1: [1, None]}}], [], None, [None], [{"k": None, "v": None}]]
            + [[{"k": "b", "v": {2: []}}]] * 3,
            DEEP,
        ),
    }
    return pa.table({name: pa.array(list(values), type_) for name, (values, type_) in columns.items()})


DEEP = pa.list_(pa.struct([("k", pa.string()), ("v", pa.map_(pa.int32(), pa.list_(pa.int64())))]))


def decimals(text: str) -> list[decimal.Decimal | None]:
    return [None if word == "None" else decimal.Decimal(word) for word in text.split()]


def moments(zone: dt.tzinfo | None) -> list[dt.datetime | None]:
    """Return points in time around every edge that truncation by year, month, day and hour has."""
    texts = ("1969-12-31T23:59:59.999999", "1970-01-01T00:00:00", None, "2026-03-29T01:30:00.000001")
    texts += ("2000-02-29T12:00:00", "1900-01-01T00:00:00", "2099-12-31T23:59:59.999999", "2026-01-01T00:00:00")
    return [None if text is None else dt.datetime.fromisoformat(text).replace(tzinfo=zone) for text in texts]


def other_types(first: int = 0) -> pa.Table:
    """Return rows of the types that Spark does not have."""
    ids = [uuid.UUID(int=0), uuid.UUID(int=2**128 - 1), None, uuid.UUID("f79c3e09-677c-4bbd-a479-3f349cb785e7")]
    times = [dt.time(0), dt.time(23, 59, 59, 999999), None, dt.time(22, 31, 8)]
    return pa.table(
        {
            "id": pa.array(range(first, first + 4), pa.int64()),
            "key": pa.array([None if value is None else value.bytes for value in ids], pa.binary(16)),
            "at": pa.array(times, pa.time64("us")),
        }
    )


OTHER_SCHEMA = {"id": "long", "key": "uuid", "at": "time"}
