"""The kinds of values of table properties: one function for each kind, which reads a text or raises.

Here: reading one value. Not here: which property is of which kind (`table_properties`, `known`), what it does (the
modules of the operations). Importing this module costs no pyarrow.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from airflow_iceberg.errors import InvalidInputError, check_no_password, true_or_false
from airflow_iceberg.format.values.digits import MAX_LONG, whole_number

_Number = TypeVar("_Number", int, float)
_MOST_SHOWN = 100
# A path from the root, or a location with a scheme; of the local file system only a path from the root is one.
_ABSOLUTE = re.compile(r"/|file:(//[^/]*)?/|(?!file:)[a-z][a-z0-9+.-]*://", re.IGNORECASE)

Kind = Callable[[str, str], object]
"""A function of (name of the property, text) that raises InvalidInputError if the text is not of the kind."""

CODECS: Mapping[str, str] = {
    "zstd": "zstd",
    "gzip": "gzip",
    "snappy": "snappy",
    "lz4": "lz4",
    "lz4_raw": "lz4",
    "brotli": "brotli",
    "uncompressed": "none",
}
"""Compression codecs of Parquet as the properties name them, and as pyarrow does."""


def anything(name: str, text: str) -> str:
    """Take any text."""
    return text


def optional_text(name: str, text: str) -> str | None:
    """Return a text, None for the empty one."""
    return text or None


def word(name: str, text: str) -> str:
    """Return any text in lower case; the caller checks it."""
    return text.strip().lower()


def location(name: str, text: str) -> str:
    """Return an absolute location without a password; the empty text is none."""
    check_no_password(text)
    if text and _ABSOLUTE.match(text) is None:
        raise InvalidInputError(
            f"property {name} is '{_shown(text)}' (expected an absolute location, such as s3://bucket/folder, "
            f"file:///folder or /folder)"
        )
    return text


def integer(name: str, text: str) -> int:
    """Return a whole number."""
    return _number(int, name, text)


def _number(kind: Callable[[str], _Number], name: str, text: str) -> _Number:
    try:
        value = kind(text.strip())
    except ValueError as error:
        raise InvalidInputError(f"property {name} is '{_shown(text)}' (expected a number)") from error
    if abs(value) > MAX_LONG:
        raise InvalidInputError(f"property {name} is '{_shown(text)}' (expected a number of 64 bits at most)")
    return value


def _shown(text: str) -> str:
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}…"


def _number_in_range(
    kind: Callable[[str], _Number], is_legal: Callable[[_Number], bool], expected: str
) -> Callable[[str, str], _Number]:
    def read(name: str, text: str) -> _Number:
        value = _number(kind, name, text)
        if not is_legal(value):
            raise InvalidInputError(f"property {name} is '{text}' (expected {expected})")
        return value

    return read


positive = _number_in_range(int, lambda value: value > 0, "a number above 0")
non_negative_int = _number_in_range(int, lambda value: value >= 0, "a number, 0 or above")


def at_least(least: int) -> Callable[[str, str], int]:
    """Return a kind of whole numbers that takes a lower one for the least, which has the effect that it has in Java."""

    def read(name: str, text: str) -> int:
        return max(least, integer(name, text))

    return read


def above_zero_or(default: int) -> Callable[[str, str], int]:
    """Return a kind of whole numbers that takes the default where there is none above 0."""

    def read(name: str, text: str) -> int:
        found = integer(name, text)
        return found if found > 0 else default

    return read


fraction = _number_in_range(float, lambda value: 0.0 < value < 1.0, "a number between 0 and 1")


def byte_count(name: str, text: str) -> int:
    """Return a number of bytes above 0, written in digits alone."""
    number = whole_number(text.strip())
    if not number:
        raise InvalidInputError(f"property {name} is '{_shown(text.strip())}' (expected a number of bytes above 0)")
    return number


def is_true(name: str, text: str) -> bool:
    """Return a truth value as Iceberg Java reads it: everything but "true" is false."""
    return text.strip().lower() == "true"


def boolean(name: str, text: str) -> bool:
    """Return a truth value."""
    return true_or_false(f"property {name}", text)


def compression_level(name: str, text: str) -> int | None:
    """Return a compression level, None for the default of the codec."""
    # Java writes the absent level as the word null.
    return None if text.strip().lower() in ("", "null") else _number(int, name, text)


def one_of(*words: str) -> Callable[[str, str], str]:
    """Return a kind whose values are some words, in upper or lower case."""

    def read(name: str, text: str) -> str:
        found = word(name, text)
        if found not in words:
            raise InvalidInputError(f"property {name} is '{text}' (expected one of {', '.join(words)})")
        return found

    return read


def codec(name: str, text: str) -> str:
    """Return a codec of Parquet as pyarrow calls it."""
    found = CODECS.get(text.strip().lower())
    if found is None:
        raise InvalidInputError(f"unknown codec '{text}' in property {name} (expected one of {', '.join(CODECS)})")
    return found


def property_text(place: str, name: str, value: Any) -> str:
    """Return the value of a property as it is stored in the table: numbers and booleans become texts.

    Raises:
        InvalidInputError: anything else; the value, which may be a secret, is not in the message.
    """
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, (str, int, float)):
        raise InvalidInputError(f"{place}: expected a text for property {name!r}, got {type(value).__name__}")
    return str(value)
