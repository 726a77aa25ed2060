"""The names of partition and bucket directories, relative to the table, as Java and as Python write them.

A directory of a partition is `<key>=<value>`. With `partition.legacy-name`, on by default, the value is Java's
`toString` of Paimon's internal value (the days of a DATE), otherwise it is cast to text. pypaimon wrote Python's `str`
of the value, in old versions without escaping, and still does so for bytes.
"""

from __future__ import annotations

import datetime as dt
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from airflow_iceberg.paimon.schema import DEFAULT_PARTITION_NAME, PaimonSchema
from airflow_iceberg.paimon.types import PaimonType

POSTPONE_BUCKET = -2

_ESCAPED = frozenset("\"#%'*/:=?\\{}[]^\x7f") | frozenset(map(chr, range(32)))
_EPOCH = dt.date(1970, 1, 1).toordinal()
_DAY = 86_400
_JAVA_SPACE = frozenset("\t\n\x0b\x0c\r\x1c\x1d\x1e\x1f")
_NO_BREAK = frozenset("\u00a0\u2007\u202f")


@dataclass(frozen=True, kw_only=True, slots=True)
class PathRules:
    """The table's options for its directories.

    Attributes:
        directory: the directory of the data files below the table, or empty.
        default_name: the name of null and of blank text, which therefore share a directory.
        legacy_names: whether values are written by Java's `toString`, not cast to text.
        index_in_data: whether index files are stored in the directory of their bucket.
    """

    directory: str = ""
    default_name: str = DEFAULT_PARTITION_NAME
    legacy_names: bool = True
    index_in_data: bool = False

    @classmethod
    def of(cls, schema: PaimonSchema) -> PathRules:
        """Return the rules of a table by its newest schema."""
        return cls(
            directory=schema.option("data-file.path-directory").strip("/"),
            default_name=schema.option("partition.default-name", DEFAULT_PARTITION_NAME),
            legacy_names=schema.flag("partition.legacy-name", True),
            index_in_data=schema.flag("index-file-in-data-file-dir"),
        )

    def bucket_directory(self, schema: PaimonSchema, partition: Sequence[Any], bucket: int) -> str:
        """Return the directory of a bucket, relative to the table, as Java writes it."""
        return self._join(self.partition_names(schema, partition), bucket)

    def python_bucket_directories(self, schema: PaimonSchema, partition: Sequence[Any], bucket: int) -> tuple[str, ...]:
        """Return the directories of a bucket in the versions of pypaimon."""
        pairs = [
            (field.name, self.default_name if _is_blank(value) else python_text(value, field.type))
            for field, value in zip(schema.partition_fields, partition, strict=True)
        ]
        plain = [f"{name}={text}" for name, text in pairs]
        escaped = [f"{escape(name)}={escape(text)}" for name, text in pairs]
        found = dict.fromkeys(self._join(names, bucket) for names in (plain, escaped))
        return tuple(directory for directory in found if "\0" not in directory)  # no store has such names

    def partition_names(self, schema: PaimonSchema, partition: Sequence[Any]) -> list[str]:
        """Return the names of the directories of a partition, outermost first."""
        write = legacy_text if self.legacy_names else cast_text
        return [
            f"{escape(field.name)}={escape(self.default_name if _is_blank(value) else write(value, field.type))}"
            for field, value in zip(schema.partition_fields, partition, strict=True)
        ]

    def _join(self, names: Sequence[str], bucket: int) -> str:
        name = "postpone" if bucket == POSTPONE_BUCKET else str(bucket)
        return "/".join(part for part in (self.directory, *names, f"bucket-{name}") if part)


def escape(text: str) -> str:
    """Return text with `%XX` for the characters that Hive does not allow in directories."""
    return "".join(f"%{ord(char):02X}" if char in _ESCAPED else char for char in text)


def _is_blank(value: Any) -> bool:
    """Return whether a value is null or only of characters that are whitespace to Java."""
    if isinstance(value, str):
        return all(_is_java_space(char) for char in value)
    return value is None


def _is_java_space(char: str) -> bool:
    return char in _JAVA_SPACE or (unicodedata.category(char) in ("Zs", "Zl", "Zp") and char not in _NO_BREAK)


# --- one value as text ------------------------------------------------------------------------------------------------


def legacy_text(value: Any, type_: PaimonType) -> str:
    """Return Java's `toString` of the internal value."""
    if type_.root == "TIME":
        return str(value // 1000)
    if type_.root in ("TIMESTAMP", "TIMESTAMP_LTZ"):
        return _local_date_time(value, type_.precision)
    return _text(value, type_)


def cast_text(value: Any, type_: PaimonType) -> str:
    """Return the value cast to text, a TIMESTAMP_LTZ in UTC."""
    if type_.root == "DATE":
        return _date(value)
    if type_.root == "TIME":
        return _clock(value // 1_000_000) + _fraction(value % 1_000_000 * 1000, type_.precision)
    if type_.root in ("TIMESTAMP", "TIMESTAMP_LTZ"):
        # Differs from Java: it writes a TIMESTAMP_LTZ in the zone of its process, which is not known here.
        seconds, nanos = _instant(value, type_.precision)
        return f"{_date(seconds // _DAY)} {_clock(seconds % _DAY)}{_fraction(nanos, type_.precision)}"
    return _text(value, type_)


def python_text(value: Any, type_: PaimonType) -> str:
    """Return Python's `str` of the value as a Python object."""
    if type_.root == "DATE":
        return _date(value)
    if type_.root == "BOOLEAN":
        return str(value)
    if type_.root == "TIME":
        return _clock(value // 1_000_000) + (f".{value % 1_000_000:06}" if value % 1_000_000 else "")
    if type_.root in ("TIMESTAMP", "TIMESTAMP_LTZ"):
        seconds, nanos = _instant(value, type_.precision)
        zone = "+00:00" if type_.root == "TIMESTAMP_LTZ" else ""
        micros = f".{nanos // 1000:06}" if nanos // 1000 else ""
        return f"{_date(seconds // _DAY)} {_clock(seconds % _DAY)}{micros}{zone}"
    return str(value)


def _text(value: Any, type_: PaimonType) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, float):
        return java_float(value, type_.root)
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def java_float(value: float, root: str) -> str:
    """Return Java's `Float.toString` or `Double.toString`, in the shortest form, as JDK 19 and later do."""
    if value != value or value in (float("inf"), float("-inf")):
        return "NaN" if value != value else ("Infinity" if value > 0 else "-Infinity")
    if value == 0:
        return "-0.0" if str(value).startswith("-") else "0.0"
    import numpy as np

    number = np.float32(value) if root == "FLOAT" else np.float64(value)
    if 1e-3 <= abs(value) < 1e7:
        return str(np.format_float_positional(number, unique=True, trim="0"))
    text = np.format_float_scientific(number, unique=True, trim="0", exp_digits=1)
    return str(text).replace("e+", "E").replace("e", "E")


def _instant(value: int, precision: int) -> tuple[int, int]:
    """Return a timestamp as seconds since the epoch and nanoseconds."""
    nanos = value if precision > 6 else value * 1000
    return nanos // 1_000_000_000, nanos % 1_000_000_000


def _local_date_time(value: int, precision: int) -> str:
    """Return `LocalDateTime.toString`: no seconds when there are none, the fraction in 3, 6 or 9 digits."""
    seconds, nanos = _instant(value, precision)
    clock = _clock(seconds % _DAY)
    if not nanos:
        return f"{_date(seconds // _DAY)}T{clock[:5] if clock.endswith(':00') else clock}"
    digits = f"{nanos:09}"
    while digits.endswith("000"):
        digits = digits[:-3]
    return f"{_date(seconds // _DAY)}T{clock}.{digits}"


def _fraction(nanos: int, precision: int) -> str:
    """Return the fraction of a second with at least the digits of the type, as Java's cast does."""
    digits = f"{nanos:09}"
    digits = digits[:precision] + digits[precision:].rstrip("0")
    return f".{digits}" if digits else ""


def _clock(seconds: int) -> str:
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"


def _date(days: int) -> str:
    """Return a date as Java writes it, also outside of the years of Python's dates."""
    # 400 years of the Gregorian calendar have 146,097 days: move the day into the years of Python's dates.
    cycles, rest = divmod(days + _EPOCH - 1, 146_097)
    date = dt.date.fromordinal(rest + 1)
    year = date.year + 400 * cycles
    if 0 <= year <= 9999:
        return f"{year:04}-{date.month:02}-{date.day:02}"
    return f"{year:+05}-{date.month:02}-{date.day:02}"
