"""The text of JSON lines: objects in batches, with the digits of their numbers, and the text of a value in a line.

Not here: types (`sources.json.shape`), Arrow columns (`sources.json.columns`).
"""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from airflow_iceberg.errors import FormatError
from airflow_iceberg.format import types as t
from airflow_iceberg.format.json_fields import KeyTwice, unique

LONGEST_LINE_BYTES = 64 << 20
"""A line is held as a whole, and a few bytes that are compressed may become any number of them."""


class JsonNumber(str):
    """A number with a point or an exponent, or of thousands of digits, as it is written."""

    __slots__ = ()


_DECODER = json.JSONDecoder(parse_float=JsonNumber, object_pairs_hook=unique)
# Python refuses to read whole numbers of more than 4300 digits.
_DECODER_OF_LONG_NUMBERS = json.JSONDecoder(parse_float=JsonNumber, parse_int=JsonNumber, object_pairs_hook=unique)


Lines = list[tuple[int, str, dict[str, Any]]]


def read_objects(stream: pa.NativeFile, location: str, *, block_bytes: int, batch_rows: int) -> Iterator[Lines]:
    """Yield batches of (number of the line, the line, its object); blank lines are left out.

    Raises:
        FormatError: a line is not an object in UTF-8.
    """
    for first, lines in _line_batches(stream, location, block_bytes, batch_rows):
        if first == 1:
            # A mark of the byte order may begin the file.
            lines[0] = lines[0].removeprefix(codecs.BOM_UTF8)
        found = [(number, line) for number, line in enumerate(lines, start=first) if line.strip()]
        if found:
            yield [_object(line, number, location) for number, line in found]


def decode(text: str) -> Any:
    """Decode a JSON value; numbers with a point or an exponent are JsonNumbers.

    Raises:
        ValueError: it is not JSON, or too deep, or an object has a key twice.
    """
    try:
        return _DECODER.decode(text)
    except RecursionError as error:
        raise ValueError("values are nested too deeply") from error
    except (json.JSONDecodeError, KeyTwice):
        raise
    except ValueError:
        return _DECODER_OF_LONG_NUMBERS.decode(text)


def printable(text: str) -> str:
    """Return a text for messages: half of a surrogate pair, which JSON can spell, is no character of theirs."""
    return text.encode(errors="backslashreplace").decode()


def with_texts(line: str, name: str, kind: t.IcebergType) -> Any:
    """Return the value of a column in a line, with JSON text as it is written where the column has strings."""
    value, _ = _value(line, _skip(line, 0), t.StructType(fields=(t.NestedField(id=1, name=name, type=kind),)))
    return value.get(name)


def _line_batches(
    stream: pa.NativeFile, location: str, block_bytes: int, batch_rows: int
) -> Iterator[tuple[int, list[bytes]]]:
    """Yield (number of the first line, lines); a line may cross blocks, the last line may have no line break."""
    held: list[bytes] = []
    first = 1
    while block := stream.read(block_bytes):
        before, line_break, rest = block.rpartition(b"\n")
        if not line_break:
            held.append(rest)
            if sum(map(len, held)) > LONGEST_LINE_BYTES:
                raise FormatError(
                    f"line {first} has more than {LONGEST_LINE_BYTES} bytes; expected one object a line", path=location
                )
            continue
        lines = b"".join((*held, before)).split(b"\n")
        held = [rest]
        for start in range(0, len(lines), batch_rows):
            part = lines[start : start + batch_rows]
            yield first, part
            first += len(part)
    if last := b"".join(held):
        yield first, [last]


def _object(line: bytes, number: int, location: str) -> tuple[int, str, dict[str, Any]]:
    try:
        text = line.decode()
        row = decode(text)
    except KeyTwice as error:
        raise FormatError(f"line {number}: {error}; give it one value", path=location) from None
    except ValueError as error:
        message = f"line {number} is not JSON ({error}); expected one object a line"
        raise FormatError(message, path=location) from error
    if not isinstance(row, dict):
        kind = type(row).__name__
        raise FormatError(f"expected one JSON object a line, line {number} is a {kind}", path=location)
    return number, text, row


def _skip(text: str, at: int) -> int:
    while text[at] in " \t\n\r":
        at += 1
    return at


def _value(text: str, at: int, kind: t.IcebergType | None) -> tuple[Any, int]:
    """Return the value that begins at a place of valid JSON, and where it ends."""
    first = text[at]
    if first == "{" and isinstance(kind, t.StructType | t.MapType):
        return _members(text, at, kind)
    if first == "[" and isinstance(kind, t.ListType):
        return _items(text, at, kind)
    value, end = _raw_decode(text, at)
    is_text = value is None or type(value) is str
    return (text[at:end] if isinstance(kind, t.StringType) and not is_text else value), end


def _members(text: str, at: int, kind: t.StructType | t.MapType) -> tuple[dict[str, Any], int]:
    kinds = {field.name: field.type for field in kind.fields} if isinstance(kind, t.StructType) else {}
    found: dict[str, Any] = {}
    at = _skip(text, at + 1)
    while text[at] != "}":
        name, at = _raw_decode(text, at)
        at = _skip(text, _skip(text, at) + 1)
        found[name], at = _value(text, at, kind.value if isinstance(kind, t.MapType) else kinds.get(name))
        at = _next(text, at)
    return found, at + 1


def _items(text: str, at: int, kind: t.ListType) -> tuple[list[Any], int]:
    found: list[Any] = []
    at = _skip(text, at + 1)
    while text[at] != "]":
        value, at = _value(text, at, kind.element)
        found.append(value)
        at = _next(text, at)
    return found, at + 1


def _next(text: str, at: int) -> int:
    at = _skip(text, at)
    return _skip(text, at + 1) if text[at] == "," else at


def _raw_decode(text: str, at: int) -> tuple[Any, int]:
    try:
        return _DECODER.raw_decode(text, at)
    except json.JSONDecodeError:
        raise
    except ValueError:
        return _DECODER_OF_LONG_NUMBERS.raw_decode(text, at)
