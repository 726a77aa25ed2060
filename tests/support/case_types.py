"""The types of generated cases: their values, with the odd ones among them, as Python, SQL and Arrow have them."""

from __future__ import annotations

import base64
import datetime as dt
import math
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa

UTC = dt.UTC


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A column type.

    Attributes:
        type: by Iceberg's name.
        sql: by Spark's name; None if Spark 3.5 does not have it.
        values: as Python's; nanoseconds since the epoch as integers.
        transforms: that a partition field of it may have.
        since: format version.
    """

    type: str
    sql: str | None
    values: tuple[Any, ...]
    transforms: tuple[str, ...] = ()
    since: int = 1

    def __str__(self) -> str:
        return self.type

    @property
    def is_float(self) -> bool:
        return self.type in ("float", "double")


def _moments(zone: dt.tzinfo | None) -> tuple[dt.datetime, ...]:
    texts = (
        "1969-12-31T23:59:59.999999",
        "1970-01-01T00:00:00",
        "2026-02-28T13:05:01.000001",
        "2026-02-28T14:00:00",
        "1901-05-06T07:08:09",
    )
    return tuple(dt.datetime.fromisoformat(text).replace(tzinfo=zone) for text in texts)


_TIMES = ("identity", "bucket[4]", "year", "month", "day", "hour")
_NUMBERS = ("identity", "bucket[4]", "truncate[10]")
_NS = (-1, 0, 1_772_284_001_000_000_001, 1_772_284_001_000_000_002, 1_900_000_000_999_999_999)
_UUIDS = tuple(
    uuid.UUID(text)
    for text in (
        "00000000-0000-0000-0000-000000000000",
        "7fffffff-ffff-ffff-ffff-ffffffffffff",
        "80000000-0000-0000-0000-000000000001",
        "f79c3e09-677c-4bbd-a479-3f349cb785e7",
    )
)

KINDS = (
    Kind(type="boolean", sql="boolean", values=(True, False), transforms=("identity",)),
    Kind(type="int", sql="int", values=(-11, -1, 0, 3, 10, 2**31 - 1, -(2**31)), transforms=_NUMBERS),
    Kind(type="long", sql="bigint", values=(-11, -1, 0, 3, 10, 2**63 - 1, -(2**63)), transforms=_NUMBERS),
    Kind(type="float", sql="float", values=(math.nan, -0.0, 0.0, 1.5, -2.25, math.inf, -math.inf)),
    Kind(type="double", sql="double", values=(math.nan, -0.0, 0.0, 1.5, -2.25, math.inf, -math.inf, 1e300)),
    Kind(
        type="decimal(9, 2)",
        sql="decimal(9, 2)",
        values=tuple(map(Decimal, ("0.00", "-0.01", "9999999.99", "-12.34", "12.34", "5.50"))),
        transforms=_NUMBERS,
    ),
    Kind(
        type="decimal(18, 4)",
        sql="decimal(18, 4)",
        values=tuple(map(Decimal, ("0.0000", "-0.0001", "99999999999999.9999", "-7.5000", "3.1415"))),
        transforms=_NUMBERS,
    ),
    Kind(
        type="decimal(38, 10)",
        sql="decimal(38, 10)",
        values=tuple(
            map(Decimal, ("0E-10", "-0.0000000001", "1234567890123456789012345678.0123456789", "2.5000000000"))
        ),
        transforms=_NUMBERS,
    ),
    Kind(
        type="date",
        sql="date",
        values=(
            dt.date(1969, 12, 31),
            dt.date(1970, 1, 1),
            dt.date(2024, 2, 29),
            dt.date(2026, 2, 28),
            dt.date(1900, 1, 1),
        ),
        transforms=("identity", "bucket[4]", "year", "month", "day"),
    ),
    Kind(
        type="time",
        sql=None,
        values=(dt.time(0, 0), dt.time(12, 30, 1, 5), dt.time(23, 59, 59, 999_999)),
        transforms=("identity", "bucket[4]"),
    ),
    Kind(type="timestamp", sql="timestamp_ntz", values=_moments(None), transforms=_TIMES),
    Kind(type="timestamptz", sql="timestamp", values=_moments(UTC), transforms=_TIMES),
    Kind(
        type="string",
        sql="string",
        values=("", "a", "ab", "abc", "ä", "😀x", "😀y", "z" * 20, "z" * 20 + "é", "it's", "a%b_c\\d"),
        transforms=("identity", "bucket[4]", "truncate[2]"),
    ),
    Kind(type="uuid", sql="string", values=_UUIDS, transforms=("identity", "bucket[4]")),
    # Not the identity of it: Java up to 1.11 writes such partition values against Avro (apache/iceberg#17501).
    Kind(type="fixed[4]", sql="binary", values=(b"\0\0\0\0", b"\xff" * 4, b"abcd", b"abce"), transforms=("bucket[4]",)),
    Kind(
        type="binary",
        sql="binary",
        values=(b"", b"\0\xff", b"abc", b"abd", b"\xff" * 20, b"\xff\xff\x00"),
        transforms=("identity", "bucket[4]", "truncate[2]"),
    ),
    Kind(type="timestamp_ns", sql=None, values=_NS, transforms=_TIMES, since=3),
    Kind(type="timestamptz_ns", sql=None, values=_NS, transforms=_TIMES, since=3),
)
KINDS = tuple(
    kind if kind.transforms else Kind(type=kind.type, sql=kind.sql, values=kind.values, transforms=("identity",))
    for kind in KINDS
)


def kinds_of(version: int, *, for_spark: bool) -> list[Kind]:
    """Return the types that a table of a version can have."""
    return [kind for kind in KINDS if kind.since <= version and (kind.sql is not None or not for_spark)]


# -- SQL ---------------------------------------------------------------------------------------------------------------


def literal(kind: Kind, value: Any) -> str:
    """Return a value as a literal of Spark's SQL, which is ours as well."""
    if value is None:
        return f"cast(null as {kind.sql})"
    match kind.type:
        case "boolean":
            return str(value).lower()
        case "int":
            return f"{value}" if value > -(2**31) else f"cast('{value}' as int)"
        case "long":
            return f"cast('{value}' as bigint)"
        case "float" | "double":
            return _float(kind, value)
        case "date":
            return f"date '{value}'"
        case "timestamp":
            return f"timestamp_ntz '{value.isoformat(sep=' ')}'"
        case "timestamptz":
            return f"timestamp '{value.replace(tzinfo=None).isoformat(sep=' ')}'"
        case "timestamp_ns" | "timestamptz_ns":
            return f"timestamp '{nanoseconds(value)}'"
        case "time":
            return f"'{value.isoformat()}'"
        case "string" | "uuid":
            return quoted(str(value))
        case "binary" | "fixed[4]":
            return f"X'{value.hex()}'"
    if kind.type.startswith("decimal"):
        return f"cast('{value:f}' as {kind.sql})"
    if kind.type.startswith("struct"):
        a, b = value["a"], value["b"]
        text = "cast(null as string)" if b is None else quoted(b)
        return f"named_struct('a', {'cast(null as int)' if a is None else a}, 'b', {text})"
    items = ", ".join("cast(null as string)" if item is None else quoted(item) for item in value)
    return f"cast(array({items}) as array<string>)"


def _float(kind: Kind, value: float) -> str:
    if math.isnan(value) or math.isinf(value):
        name = "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        return f"cast('{name}' as {kind.sql})"
    return f"cast('{value!r}' as {kind.sql})"


def quoted(text: str) -> str:
    """Return text as a literal, with backslashes, which Spark 3.5 understands (it joins doubled quotes)."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def nanoseconds(value: int) -> str:
    """Return nanoseconds since the epoch as text."""
    seconds, rest = divmod(value, 10**9)
    moment = dt.datetime(1970, 1, 1) + dt.timedelta(seconds=seconds)  # noqa: DTZ001 - a moment without a zone
    return f"{moment.isoformat(sep=' ')}.{rest:09}"


# -- Arrow -------------------------------------------------------------------------------------------------------------

_ARROW = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "date": pa.date32(),
    "time": pa.time64("us"),
    "timestamp": pa.timestamp("us"),
    "timestamptz": pa.timestamp("us", tz="UTC"),
    "timestamp_ns": pa.timestamp("ns"),
    "timestamptz_ns": pa.timestamp("ns", tz="UTC"),
    "string": pa.string(),
    "uuid": pa.binary(16),
    "fixed[4]": pa.binary(4),
    "binary": pa.binary(),
    "list<string>": pa.list_(pa.string()),
    "struct<a: int, b: string>": pa.struct([("a", pa.int32()), ("b", pa.string())]),
}


def arrow_type(kind: Kind) -> pa.DataType:
    """Return the Arrow type of a kind."""
    if kind.type.startswith("decimal"):
        precision, scale = kind.type.removeprefix("decimal(").rstrip(")").split(", ")
        return pa.decimal128(int(precision), int(scale))
    return _ARROW[kind.type]


def arrow_rows(columns: Mapping[str, Kind], rows: Iterable[Mapping[str, Any]]) -> pa.Table:
    """Return rows as Arrow."""
    found = list(rows)
    arrays = {}
    for name, kind in columns.items():
        values = [row[name] for row in found]
        if kind.type == "uuid":
            values = [None if value is None else value.bytes for value in values]
        if kind.type.endswith("_ns"):
            arrays[name] = pa.array(values, pa.int64()).cast(arrow_type(kind))
        else:
            arrays[name] = pa.array(values, arrow_type(kind))
    return pa.table(arrays)


# -- one form for all engines ------------------------------------------------------------------------------------------


def text_of(kind: Kind, value: Any) -> Any:
    """Return a value in the form in which those of all engines are compared: text, told apart as SQL cannot."""
    if value is None:
        return None
    if kind.type == "uuid":
        return str(uuid.UUID(bytes=value)) if isinstance(value, bytes) else str(value)
    if kind.type in ("fixed[4]", "binary"):
        return bytes(value).hex()
    if kind.is_float:
        return repr(float(value))
    if isinstance(value, Decimal):
        # PySpark makes zeros of its own at the end.
        return f"{value:f}".rstrip("0").rstrip(".")
    if kind.type.endswith("_ns"):
        return nanoseconds(value)
    if isinstance(value, dt.datetime):
        moment = value.astimezone(UTC) if value.tzinfo is not None else value
        return moment.replace(tzinfo=None).isoformat(sep=" ", timespec="microseconds")
    if isinstance(value, dt.time):
        return value.isoformat(timespec="microseconds")
    if kind.type.startswith("struct"):
        return {name: value[name] for name in ("a", "b")}
    if kind.type.startswith("list"):
        return list(value)
    return str(value)


def text_of_plain(kind: Kind | None, value: Any) -> Any:
    """Return a value that Java's Spark has read (see `iceberg_java.plain`) in that form; without a kind as it is."""
    if kind is None or value is None:
        return value
    if isinstance(value, dict):
        ((tag, held),) = value.items()
        made = {
            "float": float,
            "decimal": Decimal,
            "timestamp": dt.datetime.fromisoformat,
            "date": dt.date.fromisoformat,
            "bytes": base64.b64decode,
            "struct": dict,
        }
        value = made[tag](held)
    return text_of(kind, value)


def text_of_generic(kind: Kind, value: Any) -> Any:
    """Return a value that Java's generic reader has read (see `java_cases.generic_rows`) in that form."""
    if value is None or kind.type.startswith("list"):
        return value
    if kind.type.startswith("struct"):
        return dict(zip(("a", "b"), value, strict=True))
    if kind.type.endswith("_ns"):
        if isinstance(value, int):
            # Java 1.10 gives the value of an identity partition as it is in the manifest.
            return nanoseconds(value)
        text = value.removesuffix("Z").replace("T", " ")
        text += "" if text.count(":") == 2 else ":00"
        whole, _, rest = text.partition(".")
        return f"{whole}.{rest:0<9}"
    if kind.type.startswith("timestamp"):
        return text_of(kind, dt.datetime.fromisoformat(value.removesuffix("Z")))
    if kind.type == "time":
        return text_of(kind, dt.time.fromisoformat(value))
    if kind.type.startswith("decimal"):
        return text_of(kind, Decimal(value))
    return repr(float(value)) if kind.is_float else str(value)


def texts(columns: Mapping[str, Kind], arrow: pa.Table) -> list[dict[str, Any]]:
    """Return the rows of an Arrow table in that form; columns that have no kind are as they are."""
    values: dict[str, list[Any]] = {}
    for name in arrow.column_names:
        kind, column = columns.get(name), arrow[name]
        if kind is not None and kind.type.endswith("_ns"):
            column = column.cast(pa.timestamp("ns")).cast(pa.int64())
        found = column.to_pylist()
        values[name] = found if kind is None else [text_of(kind, value) for value in found]
    return [dict(zip(values, row, strict=True)) for row in zip(*values.values(), strict=True)]
