"""The types of generated cases: their values, with the odd ones among them, as Python, SQL and Arrow have them."""

import base64
import datetime as dt
import math
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa

from airflow_iceberg.format.schemas.arrow import schema_to_arrow
from airflow_iceberg.format.schemas.shorthand import schema_from_shorthand

UTC = dt.UTC


@dataclass(frozen=True)
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
    transforms: tuple[str, ...] = ("identity",)
    since: int = 1

    def __str__(self) -> str:
        return self.type

    @property
    def is_float(self) -> bool:
        return self.type in ("float", "double")


def _moments(zone: dt.tzinfo | None) -> tuple[dt.datetime, ...]:
    texts = ("1969-12-31 23:59:59.999999", "1970-01-01", "2026-02-28 13:05:01.000001", "2026-02-28 14:00")
    return tuple(dt.datetime.fromisoformat(text).replace(tzinfo=zone) for text in (*texts, "1901-05-06 07:08:09"))


def _decimals(precision: int, scale: int, texts: str) -> Kind:
    name = f"decimal({precision}, {scale})"
    return Kind(name, name, tuple(map(Decimal, texts.split())), _NUMBERS)


_TIMES = ("identity", "bucket[4]", "year", "month", "day", "hour")
_NUMBERS = ("identity", "bucket[4]", "truncate[10]")
_FLOATS = (math.nan, -0.0, 0.0, 1.5, -2.25, math.inf, -math.inf)
_DAYS = ("1969-12-31", "1970-01-01", "2024-02-29", "2026-02-28", "1900-01-01")
_NS = (-1, 0, 1_772_284_001_000_000_001, 1_772_284_001_000_000_002, 1_900_000_000_999_999_999)
_STRINGS = ("", "a", "ab", "abc", "ä", "😀x", "😀y", "z" * 20, "z" * 20 + "é", "it's", "a%b_c\\d")
_BYTES = (b"", b"\0\xff", b"abc", b"abd", b"\xff" * 20, b"\xff\xff\x00")
_UUIDS = (0, 2**127 - 1, 2**127 + 1, 0xF79C3E09677C4BBDA4793F349CB785E7)

KINDS = (
    Kind("boolean", "boolean", (True, False)),
    Kind("int", "int", (-11, -1, 0, 3, 10, 2**31 - 1, -(2**31)), _NUMBERS),
    Kind("long", "bigint", (-11, -1, 0, 3, 10, 2**63 - 1, -(2**63)), _NUMBERS),
    Kind("float", "float", _FLOATS),
    Kind("double", "double", (*_FLOATS, 1e300)),
    _decimals(9, 2, "0.00 -0.01 9999999.99 -12.34 12.34 5.50"),
    _decimals(18, 4, "0.0000 -0.0001 99999999999999.9999 -7.5000 3.1415"),
    _decimals(38, 10, "0E-10 -0.0000000001 1234567890123456789012345678.0123456789 2.5000000000"),
    Kind("date", "date", tuple(map(dt.date.fromisoformat, _DAYS)), _TIMES[:-1]),
    Kind("time", None, (dt.time(0, 0), dt.time(12, 30, 1, 5), dt.time(23, 59, 59, 999_999)), _TIMES[:2]),
    Kind("timestamp", "timestamp_ntz", _moments(None), _TIMES),
    Kind("timestamptz", "timestamp", _moments(UTC), _TIMES),
    Kind("string", "string", _STRINGS, ("identity", "bucket[4]", "truncate[2]")),
    Kind("uuid", "string", tuple(uuid.UUID(int=number) for number in _UUIDS), ("identity", "bucket[4]")),
    # Not the identity of it: Java up to 1.11 writes such partition values against Avro (apache/iceberg#17501).
    Kind("fixed[4]", "binary", (b"\0\0\0\0", b"\xff" * 4, b"abcd", b"abce"), ("bucket[4]",)),
    Kind("binary", "binary", _BYTES, ("identity", "bucket[4]", "truncate[2]")),
    Kind("timestamp_ns", None, _NS, _TIMES, since=3),
    Kind("timestamptz_ns", None, _NS, _TIMES, since=3),
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
    names = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
    return f"cast('{names.get(repr(value), repr(value))}' as {kind.sql})"


def quoted(text: str) -> str:
    """Return text as a literal, with backslashes, which Spark 3.5 understands (it joins doubled quotes)."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def nanoseconds(value: int) -> str:
    seconds, rest = divmod(value, 10**9)
    moment = dt.datetime(1970, 1, 1) + dt.timedelta(seconds=seconds)  # noqa: DTZ001 - a moment without a zone
    return f"{moment.isoformat(sep=' ')}.{rest:09}"


# -- Arrow -------------------------------------------------------------------------------------------------------------


def arrow_type(kind: Kind) -> pa.DataType:
    return schema_to_arrow(schema_from_shorthand({"x": kind.type}), with_field_ids=False).field("x").type


def arrow_rows(columns: Mapping[str, Kind], rows: Iterable[Mapping[str, Any]]) -> pa.Table:
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
