"""Columns as users write them: ``long not null``, ``list<string>``, ``struct<x: double, y: double not null>``."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from itertools import count
from typing import Any, NoReturn

from airflow_iceberg.errors import InvalidInputError
from airflow_iceberg.format import types as t
from airflow_iceberg.format.schemas.schema import Columns, Schema, assign_fresh_ids

_OBJECT_KEYS = ("type", "required", "doc")


def field_from_shorthand(name: str, spelled: Any, next_id: Callable[[], int]) -> t.NestedField:
    """Return the field of a column.

    Args:
        spelled: a type text or an object with ``type``.
        next_id: source of temporary ids for the field and its nested fields.
    Raises:
        InvalidInputError: malformed, or an unknown type; the message names the column and the allowed types.
    """
    if not name:
        raise InvalidInputError(f"a column name must be a text that is not empty, got {name!r}")
    if isinstance(spelled, str):
        return _TypeText(name, spelled, next_id).whole_field()
    if not isinstance(spelled, Mapping) or not isinstance(spelled.get("type"), str):
        raise InvalidInputError(
            f"column '{name}': expected a type like 'long not null' or an object with 'type', got "
            f"{type(spelled).__name__} (allowed types: {_allowed()})"
        )
    unknown = sorted(set(spelled) - set(_OBJECT_KEYS))
    if unknown:
        allowed = ", ".join(_OBJECT_KEYS)
        raise InvalidInputError(f"column '{name}': unknown key {', '.join(map(repr, unknown))} (allowed: {allowed})")
    found = _TypeText(name, spelled["type"], next_id).whole_field()
    return replace(found, required=bool(spelled.get("required", found.required)), doc=spelled.get("doc", found.doc))


_ALIASES: Mapping[str, str] = {
    "bool": "boolean",
    "integer": "int",
    "int32": "int",
    "bigint": "long",
    "int64": "long",
    "real": "float",
    "float32": "float",
    "float64": "double",
    "double precision": "double",
    "varchar": "string",
    "str": "string",
    "text": "string",
    "bytes": "binary",
    "varbinary": "binary",
    "timestamp with time zone": "timestamptz",
    "timestamp without time zone": "timestamp",
    "timestamp_ltz": "timestamptz",
    "timestamp_ntz": "timestamp",
}
_PARAMETRIC_ALIASES = (
    (re.compile(r"(?:decimal|numeric|dec)\s*\(\s*(\d+)\s*\)", re.IGNORECASE), r"decimal(\1, 0)"),
    (re.compile(r"(?:numeric|dec)\s*(\(.*\))", re.IGNORECASE), r"decimal\1"),
    (re.compile(r"(?:varchar|char)\s*\(\s*\d+\s*\)", re.IGNORECASE), "string"),
    (re.compile(r"(?:fixed|binary)\s*\(\s*(\d+)\s*\)", re.IGNORECASE), r"fixed[\1]"),
)
# At what a CRS ends for Iceberg Java; tables of others with such a type are read.
_NOT_IN_CRS: Mapping[type[t.IcebergType], str] = {t.GeometryType: ")", t.GeographyType: ","}
# Words after a type, which describe the field. From the first space alone: a type may come from a metastore, and from
# each of a million spaces they would be looked for in all that follow.
_NOT_NULL = re.compile(r"(?<!\s)\s+(not\s+null|required)\s*$", re.IGNORECASE)
_NULLABLE = re.compile(r"(?<!\s)\s+(null|optional)\s*$", re.IGNORECASE)
_COMMENT = re.compile(r"(?<!\s)\s+comment\s+'((?:[^']|'')*)'\s*$", re.IGNORECASE)
_NESTED = re.compile(r"(struct|list|array|map)\s*<(.*)>", re.IGNORECASE | re.DOTALL)
_MEMBER = re.compile(r"\s*(`(?:[^`]|``)+`|[^\s:`]+)\s*(?::\s*|\s+)(\S.*)", re.DOTALL)


def _allowed() -> str:
    return ", ".join((*t.NAMED_TYPES, *t.PARAMETRIC_FORMS, "struct<…>", "list<…>", "map<…, …>"))


@dataclass(frozen=True, slots=True)
class _TypeText:
    """A type as users write it, like ``list<string not null> not null comment 'words'``.

    Attributes:
        column: full name of the column, for errors.
        next_id: source of temporary ids.
    """

    column: str
    text: str
    next_id: Callable[[], int]

    def whole_field(self, name: str | None = None) -> t.NestedField:
        text, doc = self.text, None
        comment = _COMMENT.search(text)
        if comment:
            text, doc = text[: comment.start()], comment[1].replace("''", "'")
        bare = _NOT_NULL.sub("", text)
        required = bare != text
        bare = _NULLABLE.sub("", bare) if not required else bare
        own_id = self.next_id()
        return t.NestedField(
            id=own_id, name=name or self.column, type=self._type(bare.strip()), required=required, doc=doc
        )

    def _type(self, text: str) -> t.IcebergType:
        nested = _NESTED.fullmatch(text)
        if not nested:
            return self._leaf(text)
        kind, parts = nested[1].lower(), self._split(nested[2])
        if kind == "struct":
            return t.StructType(fields=tuple(self._member(part) for part in parts))
        if kind == "map":
            if len(parts) != 2:
                self._fail(f"a map has a key and a value type, got '{text}'")
            key, value = self._inner("key", parts[0]), self._inner("value", parts[1])
            return t.MapType(
                key_id=key.id, key=key.type, value_id=value.id, value=value.type, value_required=value.required
            )
        if len(parts) != 1:
            self._fail(f"a list has one element type, got '{text}'")
        element = self._inner("element", parts[0])
        return t.ListType(element_id=element.id, element=element.type, element_required=element.required)

    def _inner(self, name: str, text: str) -> t.NestedField:
        return _TypeText(f"{self.column}.{name}", text, self.next_id).whole_field(name)

    def _member(self, text: str) -> t.NestedField:
        found = _MEMBER.fullmatch(text.strip())
        if not found:
            self._fail(f"a struct has members like 'x: double', got '{text.strip()}'")
        name = found[1][1:-1].replace("``", "`") if found[1].startswith("`") else found[1]
        return self._inner(name, found[2])

    def _leaf(self, text: str) -> t.LeafType:
        spelled = " ".join(text.lower().split())
        if spelled in ("decimal", "numeric", "dec"):
            # Differs from Spark, where it is one of 10 digits, none of them after the point: hardly ever what is meant.
            self._fail(
                f"{spelled} needs its number of digits, and how many of them are after the point: decimal(9, 2), or "
                f"decimal(10, 0) for none"
            )
        name = _ALIASES.get(spelled, text)
        for pattern, form in _PARAMETRIC_ALIASES:
            if pattern.fullmatch(name):
                name = pattern.sub(form, name)
        try:
            found = t.parse_leaf(name)
        except InvalidInputError as error:
            raise InvalidInputError(f"column '{self.column}': {error}") from error
        if found is None:
            near = get_close_matches(spelled, (*t.NAMED_TYPES, *_ALIASES, "decimal"), n=1, cutoff=0.75)
            meant = f"; did you mean {near[0]}?" if near else ""
            self._fail(f"unknown type '{text}' (allowed: {_allowed()}, and SQL's names such as varchar(20)){meant}")
        mark = _NOT_IN_CRS.get(type(found), "")
        if isinstance(found, t.GEOSPATIAL) and mark in (found.crs or ""):
            self._fail(
                f"Iceberg Java cannot load a table with {found}: its CRS must have no '{mark}', spell it otherwise"
            )
        return found

    def _split(self, text: str) -> list[str]:
        """Split at the commas outside brackets and quotes."""
        parts, depth, start, quote = [], 0, 0, ""
        for index, char in enumerate(text):
            if quote:
                quote = "" if char == quote else quote
            elif char in "'`":
                quote = char
            elif char in "<([":
                depth += 1
            elif char in ">)]":
                depth -= 1
            elif char == "," and depth == 0:
                parts.append(text[start:index])
                start = index + 1
        parts.append(text[start:])
        return [] if len(parts) == 1 and not parts[0].strip() else parts

    def _fail(self, problem: str) -> NoReturn:
        raise InvalidInputError(f"column '{self.column}': {problem}")


def schema_from_shorthand(columns: Columns, *, schema_id: int = 0) -> Schema:
    """Return a schema of columns as users write them, with fresh ids from 1.

    Args:
        columns: name to type, like ``{"id": "long not null", "tags": "list<string>", "p": "struct<x: double>"}``; a
            type may also be an object ``{"type": "long", "required": True, "doc": "…"}``. A Schema or an Arrow schema
            only gets fresh ids.
        schema_id: number of the new schema.
    Raises:
        InvalidInputError: an unknown or malformed type; the message names the column and the allowed types.
    """
    if isinstance(columns, Schema):
        return replace(assign_fresh_ids(columns), schema_id=schema_id)
    if not isinstance(columns, Mapping):
        if not hasattr(columns, "pandas_metadata"):  # what an Arrow schema has, without importing Arrow to ask
            raise InvalidInputError(
                f"expected columns as names and types, like {{'id': 'long not null'}}, a Schema or an Arrow schema, "
                f"got {type(columns).__name__}"
            )
        from airflow_iceberg.format.schemas.arrow import schema_from_arrow

        return replace(assign_fresh_ids(schema_from_arrow(columns)), schema_id=schema_id)
    ids = count(1)
    fields = tuple(field_from_shorthand(name, spelled, lambda: next(ids)) for name, spelled in columns.items())
    return assign_fresh_ids(Schema(fields, schema_id))


_QUOTED = re.compile(r"(?:`((?:[^`]|``)+)`|\"([^\"]+)\")")


def unquote(name: str) -> str:
    """Return a column name without blanks around it and without its quotes: `name` or "name"."""
    name = name.strip()
    quoted = _QUOTED.fullmatch(name)
    return (quoted[1] or quoted[2]).replace("``", "`") if quoted else name
