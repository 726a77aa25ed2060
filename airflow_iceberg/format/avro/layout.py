"""The fields of an Avro schema's records as a flat list of steps, for the reader of columns (`columns`).

Not here: decoding the bytes of a step. The schemas have no logical types; `manifest_reading` removes them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

_MOST_FIELDS = 1000


class NotColumnar(Exception):
    """This reader cannot read these records; another one may."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """One field of a record, in the order of its bytes.

    Attributes:
        kind: "int", "boolean", "float", "double", "bytes", "string", "fixed" or "array".
        null: number of the null branch; None for a required field.
        size: bytes of a fixed.
        items: fields of an array's item, all required.
    """

    name: str
    kind: str
    null: int | None = None
    size: int = 0
    items: tuple[Step, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Layout:
    """The fields of a record before its anchor, and those from the anchor on."""

    before: tuple[Step, ...]
    after: tuple[Step, ...]


_KINDS = {"int": "int", "long": "int", **{kind: kind for kind in ("boolean", "float", "double", "bytes", "string")}}


def layout_of(schema: Any, anchor: str) -> Layout:
    """Return the layout of records.

    Args:
        schema: Avro schema without logical types.
        anchor: name of the text field by which records are found.
    Raises:
        NotColumnar: the schema has fields that this reader cannot read.
    """
    steps = tuple(_Compiler().record(schema))
    places = [i for i, step in enumerate(steps) if step.name == anchor and step.kind == "string" and step.null is None]
    if len(places) != 1:
        raise NotColumnar(f"{len(places)} fields {anchor!r}")
    return Layout(before=steps[: places[0]], after=steps[places[0] :])


class _Compiler:
    def __init__(self) -> None:
        self._named: dict[str, Any] = {}

    def record(self, schema: Any) -> list[Step]:
        steps: list[Step] = []
        for item in schema["fields"]:
            steps += self._field(item["name"], item["type"])
            if len(steps) > _MOST_FIELDS:  # names can make many of a few
                raise NotColumnar(f"more than {_MOST_FIELDS} fields")
        return steps

    def _field(self, name: str, type_: Any) -> list[Step]:
        type_ = self._resolve(type_)
        if isinstance(type_, list):
            return [self._optional(name, type_)]
        if isinstance(type_, dict) and type_.get("type") == "record":
            return self.record(type_)
        return [] if type_ == "null" else [self._value(name, type_, None)]

    def _optional(self, name: str, union: list[Any]) -> Step:
        if len(union) != 2 or union.count("null") != 1:
            raise NotColumnar(f"union in {name!r}")
        null = union.index("null")
        return self._value(name, self._resolve(union[1 - null]), null)

    def _value(self, name: str, type_: Any, null: int | None) -> Step:
        if isinstance(type_, str) and type_ in _KINDS:
            if type_ == "string" and re.fullmatch("x[0-9]+", name):
                raise NotColumnar(f"unknown text {name!r}")  # UTF-8 is checked only for columns that are read
            return Step(name=name, kind=_KINDS[type_], null=null)
        if isinstance(type_, dict) and type_["type"] == "fixed" and type_["size"] > 0:
            return Step(name=name, kind="fixed", size=type_["size"], null=null)
        if isinstance(type_, dict) and type_["type"] == "array":
            items = tuple(self._field("value", type_["items"]))
            if not items or any(step.null is not None or step.kind not in ("int", "bytes") for step in items):
                raise NotColumnar(f"items of {name!r}")
            return Step(name=name, kind="array", null=null, items=items)
        raise NotColumnar(f"type of {name!r}")

    def _resolve(self, type_: Any) -> Any:
        if isinstance(type_, str):
            return self._named.get(type_, type_)
        if isinstance(type_, dict) and "name" in type_:
            self._named[type_["name"]] = type_
        return type_
