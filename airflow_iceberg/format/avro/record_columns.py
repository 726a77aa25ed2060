"""Records of an Avro block as columns, without a dictionary for each record.

Here: a reader for the schema of a file and the requested columns. Not here: containers and their blocks (`container`),
small files, which fastavro reads.

A manifest entry has some fifty numbers; dictionaries of them, and columns of the dictionaries, take three times as long
and a multiple of the memory. A record is the concatenation of its fields, so nested records become one list of steps:
each reads a value and returns where the next one starts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

Read = Callable[[bytes, int], tuple[Any, int]]
Path = tuple[str, ...]

_FIXED_SIZES = {"null": 0, "boolean": 1, "float": 4, "double": 8}
_MOST_KNOWN = 4096


class ColumnReader:
    """Reads blocks of records with one schema.

    Args:
        schema: a record, or a union of null and a record.
        wanted: paths of the fields to return; all others are skipped.
    Raises:
        ValueError: not a schema of records, or one with types that no manifest has.
    """

    def __init__(self, schema: Any, wanted: Sequence[Path]) -> None:
        self._wanted = set(wanted)
        self.found: set[Path] = set()
        self.columns: dict[Path, list[Any]] = {}
        self._steps = self._record(_record_of(schema), ())
        # Of a union around the records: the branch that each record must have.
        self._branch = None if isinstance(schema, Mapping) else 2 * _record_branch(schema)

    def take(self) -> dict[Path, list[Any]]:
        """Return the values read since the last call by path, without paths that the schema does not have."""
        result = {path: list(values) for path, values in self.columns.items()}
        for values in self.columns.values():
            values.clear()
        return result

    def read(self, count: int, block: bytes) -> None:
        """Add the records of a block to the columns.

        Raises:
            ValueError, IndexError: the block does not contain so many records of this schema.
        """
        if count > len(block):
            raise ValueError(f"{count} records in {len(block)} bytes")
        steps, branch, position = self._steps, self._branch, 0
        for _ in range(count):
            if branch is not None:
                if block[position] != branch:
                    raise ValueError("null instead of a record")
                position += 1
            for read, append in steps:
                value, position = read(block, position)
                if append is not None:
                    append(value)
        # A truncated value moves the position past the end, so this check is enough.
        if position != len(block):
            raise ValueError(f"records end at byte {position} of {len(block)}")

    def _record(self, schema: Mapping[str, Any], path: Path) -> list[tuple[Read, Callable[[Any], None] | None]]:
        steps: list[tuple[Read, Callable[[Any], None] | None]] = []
        for field in schema["fields"]:
            place, type_ = (*path, field["name"]), field["type"]
            if isinstance(type_, Mapping) and type_.get("type") == "record":
                steps += self._record(type_, place)
            elif isinstance(type_, list) and any(place == item[: len(place)] != item for item in self._wanted):
                steps.append((self._optional_record(type_, place), None))
            else:
                steps.append((_reader(type_), self._keep(place)))
        return steps

    def _keep(self, path: Path) -> Callable[[Any], None] | None:
        if path not in self._wanted:
            return None
        self.found.add(path)
        return self.columns.setdefault(path, []).append

    def _optional_record(self, union: Sequence[Any], path: Path) -> Read:
        """Return the reader of a record that may be null, which is read as null in all its fields."""
        steps = self._record(_record_of(union), path)
        branch = 2 * _record_branch(union)
        appends = [append for _, append in steps if append is not None]

        def read(data: bytes, position: int) -> tuple[Any, int]:
            if data[position] != branch:
                if data[position] != 2 - branch:
                    raise ValueError(f"branch {data[position]} of a union")
                for append in appends:
                    append(None)
                return None, position + 1
            position += 1
            for inner, append_value in steps:
                value, position = inner(data, position)
                if append_value is not None:
                    append_value(value)
            return None, position

        return read


def _record_of(schema: Any) -> Mapping[str, Any]:
    found = schema[_record_branch(schema)] if isinstance(schema, list) else schema
    if not isinstance(found, Mapping) or found.get("type") != "record":
        raise ValueError("expected a schema of records")
    return found


def _record_branch(union: Sequence[Any]) -> int:
    """Return the number of the branch that is the record, in a union of null and a record."""
    if len(union) != 2 or "null" not in union:
        raise ValueError("expected a union of null and a record")
    return 1 - list(union).index("null")


def _reader(schema: Any) -> Read:
    """Return a function that returns a value and the position after it."""
    if isinstance(schema, list):
        return _union(schema)
    name = schema if isinstance(schema, str) else schema["type"]
    if name in ("int", "long", "enum"):
        return read_long
    if name in ("bytes", "string"):
        return read_bytes
    if name in _FIXED_SIZES or name == "fixed":
        size = schema["size"] if name == "fixed" else _FIXED_SIZES[name]
        return lambda data, position: (data[position : position + size], position + size)
    if name == "array":
        return _array(schema["items"])
    if name == "map":
        return _array({"type": "record", "fields": [{"type": "string"}, {"type": schema["values"]}]})
    if name == "record":
        return _tuple([_reader(field["type"]) for field in schema["fields"]])
    if isinstance(name, (dict, list)):
        return _reader(name)
    raise ValueError(f"unexpected type {name!r}")


def read_long(data: bytes, position: int) -> tuple[int, int]:
    """Return a zig-zag number of variable length."""
    byte = data[position]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), position + 1
    result, shift = byte & 0x7F, 7
    while True:
        position += 1
        byte = data[position]
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (result >> 1) ^ -(result & 1), position + 1
        shift += 7
        if shift > 63:
            raise ValueError("a number of more than 64 bits")


def read_bytes(data: bytes, position: int) -> tuple[bytes, int]:
    """Return bytes after their length, also of a text, whose UTF-8 Arrow checks later."""
    size, start = read_long(data, position)
    if size < 0:
        raise ValueError(f"a length of {size}")
    end = start + size
    return data[start:end], end


def _union(branches: Sequence[Any]) -> Read:
    if len(branches) == 2 and "null" in branches:
        null = branches.index("null")
        none, some, read = 2 * null, 2 - 2 * null, _reader(branches[1 - null])

        def optional(data: bytes, position: int) -> tuple[Any, int]:
            branch = data[position]
            if branch == some:
                return read(data, position + 1)
            if branch == none:
                return None, position + 1
            raise ValueError(f"branch {branch} of a union")

        return optional
    readers = [_reader(branch) for branch in branches]

    def any_of(data: bytes, position: int) -> tuple[Any, int]:
        branch, position = read_long(data, position)
        if branch < 0:
            raise ValueError(f"branch {branch} of a union")
        return readers[branch](data, position)

    return any_of


def _array(items: Any) -> Read:
    read = _reader(items)
    is_empty = items == "null" or (isinstance(items, Mapping) and not items.get("fields", True))
    if is_empty:
        raise ValueError("an array of nothing")  # a few bytes could stand for any number of items

    def read_array(data: bytes, position: int) -> tuple[list[Any], int]:
        result: list[Any] = []
        while True:
            count, position = read_long(data, position)
            if not count:
                return result, position
            if count < 0:  # the size of the block follows
                count = -count
                _, position = read_long(data, position)
            if count > len(data):
                raise ValueError(f"{count} items in {len(data)} bytes")
            for _ in range(count):
                value, position = read(data, position)
                result.append(value)

    return _remembering(read_array) if items in (["null", "long"], ["long", "null"]) else read_array


def _remembering(read: Read) -> Read:
    """Return a caching reader of arrays of small numbers that repeat in many files: null counts, most of them 0."""
    known: dict[bytes, list[Any]] = {}

    def read_known(data: bytes, position: int) -> tuple[list[Any], int]:
        # A count, a branch and a number for each item, and a zero: mostly one byte for each of them.
        end = position + data[position] + 2
        segment = data[position:end]
        found = known.get(segment)
        if found is not None:
            return found, end
        result, after = read(data, position)
        if after == end and len(known) < _MOST_KNOWN:
            known[segment] = result
        return result, after

    return read_known


def _tuple(readers: Sequence[Read]) -> Read:
    def read_tuple(data: bytes, position: int) -> tuple[tuple[Any, ...], int]:
        values = []
        for read in readers:
            value, position = read(data, position)
            values.append(value)
        return tuple(values), position

    return read_tuple
