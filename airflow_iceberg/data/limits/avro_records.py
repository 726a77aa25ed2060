"""What the records of an Avro block become as objects of Python, before they are decoded.

A record, and an item of a list, may take one byte in a file, and two hundred as an object; a symbol of an enum is
written out for each row. So what a block may become at most follows from its schema; where that is too much, its
records are walked through one by one, and each counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from airflow_iceberg.data.limits.memory import MemoryLimit
from airflow_iceberg.errors import FormatError
from airflow_iceberg.format.avro.container import read_long

Json = Any

# Of a value: objects, and their values in Arrow; and the least bytes that a value takes in the file.
_VALUES: Mapping[str, tuple[int, int]] = {
    "null": (8, 0),
    "boolean": (16, 1),
    "int": (72, 1),
    "long": (72, 1),
    "float": (32, 4),
    "double": (32, 8),
    "string": (80, 1),
    "bytes": (120, 1),
}
_FIXED_WIDTHS = {"boolean": 1, "float": 4, "double": 8}
_RECORD_BYTES, _FIELD_BYTES, _LIST_BYTES, _ITEM_BYTES, _ENTRY_BYTES = 100, 100, 100, 16, 200
# A text of wide characters has four bytes for each in Python, and is in Arrow, too.
_TIMES_BYTES = 6
# Of the schema: its text, fastavro's and ours.
_TIMES_SCHEMA = 64


@dataclass(frozen=True, slots=True)
class _Weight:
    """What values of a type take.

    Attributes:
        own: memory of one, without the items of its lists.
        least: the fewest bytes of one in the file.
        of_items: memory for each byte of the file that is in lists.
    """

    own: int
    least: int
    of_items: float = 0


class RecordLimit:
    """The limit for the records of a file.

    Args:
        parsed: the schema of the records as fastavro has parsed it, without records in themselves.
    """

    def __init__(self, parsed: Json, limit: MemoryLimit) -> None:
        self._limit = limit
        self._weights = _Weights()
        self._schema = parsed
        self._weight = self._weights.of(parsed)

    def most_of(self, count: int, size: int) -> int:
        """Return what `count` records of `size` bytes in all may become at most."""
        return count * self._weight.own + int(size * (_TIMES_BYTES + self._weight.of_items))

    def portions(self, count: int, block: bytes) -> Iterator[tuple[int, bytes, int]]:
        """Yield the records of a block in portions that stay small: their number, bytes and memory.

        Raises:
            FormatError: a record may become more than the limit, or the block is damaged.
        """
        most = self.most_of(count, len(block))
        if most <= self._limit.batch_bytes:
            yield count, block, most
            return
        first = at = waiting = memory = 0
        walk = _Walk(self._schema, self._weights, self._limit, block)
        for _ in range(count):
            end, needed = walk.record(at)
            if waiting and memory + needed > self._limit.batch_bytes:
                yield waiting, block[first:at], memory
                first, waiting, memory = at, 0, 0
            at, waiting, memory = end, waiting + 1, memory + needed
        if at != len(block):
            raise FormatError(f"a block of {count} records has other bytes after them", path=self._limit.location)
        yield waiting, block[first:], memory


class _Weights:
    """The weights of types, and what names stand for: each name is defined before it is used."""

    def __init__(self) -> None:
        self._named: dict[str, Json] = {}
        self._known: dict[str, _Weight] = {}

    def resolved(self, schema: Json) -> Json:
        """Return the type that a name stands for."""
        if isinstance(schema, str) and schema not in _VALUES:
            return self._named[schema]
        return schema

    def of(self, schema: Json) -> _Weight:
        """Return the weight of a type."""
        if isinstance(schema, list):
            found = [self.of(each) for each in schema] or [_Weight(0, 0)]
            return _Weight(
                max(one.own for one in found), 1 + min(one.least for one in found), max(one.of_items for one in found)
            )
        if isinstance(schema, str):
            return _Weight(*_VALUES[schema]) if schema in _VALUES else self._known[schema]
        kind = schema["type"]
        if kind in ("record", "error", "enum", "fixed"):
            name = schema["name"]
            if name not in self._known:
                self._named[name] = schema
                self._known[name] = self._weigh_named(kind, schema)
            return self._known[name]
        if kind in ("array", "map"):
            item = self.of(schema["items" if kind == "array" else "values"])
            extra, least = (_ITEM_BYTES, 0) if kind == "array" else (_ENTRY_BYTES, 1)
            return _Weight(_LIST_BYTES, 1, max(item.of_items, (item.own + extra) / max(item.least + least, 1)))
        return self.of(kind)

    def _weigh_named(self, kind: str, schema: Mapping[str, Json]) -> _Weight:
        if kind == "fixed":
            return _Weight(80 + schema["size"], schema["size"])
        if kind == "enum":
            return _Weight(40 + max((len(symbol) for symbol in schema["symbols"]), default=0), 1)
        inner = [self.of(each["type"]) for each in schema["fields"]]
        return _Weight(
            _RECORD_BYTES + _FIELD_BYTES * len(inner) + sum(each.own for each in inner),
            sum(each.least for each in inner),
            max((each.of_items for each in inner), default=0),
        )


class _Walk:
    """Finds the end of each record of a block, and what it becomes."""

    def __init__(self, schema: Json, weights: _Weights, limit: MemoryLimit, block: bytes) -> None:
        self._schema, self._weights = schema, weights
        self._limit = limit
        self._block = block
        self._memory = self._start = 0
        self._fields: dict[str, list[Json]] = {}

    def record(self, at: int) -> tuple[int, int]:
        """Return where a record ends, and its memory."""
        self._start, self._memory = at, 0
        self._add(self._weights.of(self._schema).own, at)
        end = self._value(self._schema, at)
        if end > len(self._block):
            raise FormatError("damaged Avro block: a record is cut off", path=self._limit.location)
        return end, self._memory

    def _add(self, memory: int, at: int) -> None:
        self._memory += memory
        self._limit.check(self._memory, at - self._start, "a record of an Avro block")

    def _value(self, schema: Json, at: int) -> int:
        schema = self._weights.resolved(schema)
        if isinstance(schema, list):
            branch, at = self._long(at)
            if not 0 <= branch < len(schema):
                raise FormatError(f"damaged Avro block: branch {branch} of a union", path=self._limit.location)
            return self._value(schema[branch], at)
        kind = schema if isinstance(schema, str) else schema["type"]
        if kind == "null":
            return at
        if kind in _FIXED_WIDTHS:
            return at + _FIXED_WIDTHS[kind]
        if kind in ("int", "long", "enum"):
            return self._long(at)[1]
        if kind in ("string", "bytes"):
            return self._text(at)
        if kind == "fixed":
            return at + int(schema["size"])
        if kind in ("record", "error"):
            for each in self._fields_of(schema):
                at = self._value(each, at)
            return at
        if kind in ("array", "map"):
            return self._items(kind, schema["items" if kind == "array" else "values"], at)
        return self._value(kind, at)

    def _fields_of(self, schema: Mapping[str, Json]) -> list[Json]:
        """Return the types of a record's fields, without those that have no bytes."""
        name = schema["name"]
        if name not in self._fields:
            self._fields[name] = [each["type"] for each in schema["fields"] if self._weights.of(each["type"]).least]
        return self._fields[name]

    def _text(self, at: int) -> int:
        size, at = self._long(at)
        if not 0 <= size <= len(self._block) - at:
            raise FormatError("damaged Avro block: a text is cut off", path=self._limit.location)
        self._memory += _TIMES_BYTES * size
        return at + size

    def _items(self, kind: str, items: Json, at: int) -> int:
        each = self._weights.of(items).own + (_ITEM_BYTES if kind == "array" else _ENTRY_BYTES)
        while True:
            count, at = self._long(at)
            if not count:
                return at
            if count < 0:
                count = -count
                _, at = self._long(at)
            self._add(count * each, at)
            for _ in range(count):
                if at > len(self._block):
                    raise FormatError("damaged Avro block: a list is cut off", path=self._limit.location)
                if kind == "map":
                    at = self._text(at)
                at = self._value(items, at)

    def _long(self, at: int) -> tuple[int, int]:
        return read_long(self._block, at, path=self._limit.location)


def check_schema(text: bytes, limit: MemoryLimit) -> None:
    """Refuse a schema that becomes more than the limit."""
    limit.check(_TIMES_SCHEMA * len(text), 0, f"an Avro schema of {len(text)} bytes")
