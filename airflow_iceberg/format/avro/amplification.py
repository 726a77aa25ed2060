"""Schemas by which a few bytes become very many values: refused before a record is decoded.

The schema of a file is its writer's, and who decodes by it makes a value for each of its fields, also for those that
take no bytes (`null`, `fixed` of 0 bytes, a record of such). An array of them has any length in five bytes; a record
that has an earlier one twice, which has an earlier one twice, has billions of fields in some kilobytes; and a record
within itself overflows the stack of a decoder in C, which ends the process. No limit of bytes or records sees that.

So this counts *idle* values, for which no byte stands: those, and records themselves. It does so after fastavro has
resolved all names, since a name means what the decoder finds by it. Not here: the meaning of the fields
(`manifests.by_field_id`), the sizes of blocks (`container`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Json = Any

# A record of a manifest has some five records in it, and fields of a partition may be null: those without a source.
MOST_IDLE = 200
# Of one item of an array or a map, each of which may take one byte. Pairs of a map are one record.
MOST_IDLE_IN_ITEMS = 8
_PRIMITIVES = frozenset(("boolean", "int", "long", "float", "double", "bytes", "string"))


@dataclass(frozen=True, slots=True)
class _Weight:
    """What a value of a type is made of.

    Attributes:
        takes_bytes: whether it has at least one byte.
        idle: how many values are in it, itself included, for which no byte stands, at most.
    """

    takes_bytes: bool
    idle: int


_NOTHING = _Weight(takes_bytes=False, idle=1)
_BYTES = _Weight(takes_bytes=True, idle=0)


@dataclass(slots=True)
class _Scale:
    most: int
    most_in_items: int
    known: dict[str, _Weight | None] = field(default_factory=dict)

    def weigh(self, schema: Json) -> _Weight:
        if isinstance(schema, list):
            return self._union(schema)
        if isinstance(schema, str):
            return self._named(schema)
        if not isinstance(schema, Mapping):
            raise ValueError(f"unexpected Avro schema {type(schema).__name__}")
        kind = schema.get("type")
        match kind:
            case "record" | "error":
                return self._record(schema)
            case "array" | "map":
                self._check_items(kind, schema["items" if kind == "array" else "values"])
                return _BYTES  # the number of its items, each of which takes bytes
            case "fixed":
                return self._known(schema["name"], _BYTES if schema["size"] > 0 else _NOTHING)
            case "enum":
                return self._known(schema["name"], _BYTES)
        return self.weigh(kind)

    def _named(self, name: str) -> _Weight:
        if name == "null":
            return _NOTHING
        if name in _PRIMITIVES:
            return _BYTES
        found = self.known.get(name)
        if found is None:
            raise ValueError(f"unexpected Avro type {name[:100]!r}, which is unknown or contains itself")
        return found

    def _known(self, name: str, weight: _Weight) -> _Weight:
        self.known[name] = weight
        return weight

    def _union(self, branches: list[Json]) -> _Weight:
        # Its own byte, the number of the branch, stands for one of them.
        return _Weight(takes_bytes=True, idle=max([0, *(self.weigh(each).idle - 1 for each in branches)]))

    def _record(self, schema: Mapping[str, Json]) -> _Weight:
        self.known[schema["name"]] = None  # a name in it is not known yet
        inner = [self.weigh(each["type"]) for each in schema["fields"]]
        idle = 1 + sum(each.idle for each in inner)
        if idle > self.most:
            raise ValueError(f"unexpected Avro record of more than {self.most} values without bytes")
        return self._known(schema["name"], _Weight(any(each.takes_bytes for each in inner), idle))

    def _check_items(self, kind: str, items: Json) -> None:
        weight = self.weigh(items)
        if kind == "array" and not weight.takes_bytes:  # a few bytes could claim billions of them
            raise ValueError("unexpected Avro list of items without bytes")
        if weight.idle > self.most_in_items:
            raise ValueError(f"unexpected Avro {kind} of items with {weight.idle} values without bytes")


def refuse_amplification(parsed: Json, *, most: int = MOST_IDLE, most_in_items: int = MOST_IDLE_IN_ITEMS) -> None:
    """Refuse a schema by which a few bytes become very many values, or records within themselves.

    Args:
        parsed: a schema as fastavro has parsed it, so that each name is the one that its decoder finds.
        most: how many values of a record may take no bytes.
        most_in_items: the same, of an item of an array or a map.

    Raises:
        ValueError: it is one.
    """
    _Scale(most, most_in_items).weigh(parsed)
