"""The types of JSON values that a table does not know, over a whole source, as Spark's reader of JSON infers them.

A shape counts nothing and keeps no values, so that its size does not depend on the number of rows. Shapes of parts of a
source are found in any number of tasks, and merged.

| values | type |
|---|---|
| whole numbers | long; beyond its range a decimal of so many digits; beyond 38 digits string |
| numbers with a point or an exponent, also beside whole ones | double |
| true and false | boolean |
| texts | string |
| objects | struct of all keys |
| arrays | array of the type of all elements |
| nothing but nulls, objects without keys; elements of arrays without any | string |
| several of these | string, with the JSON text of what is no text |

Spark differs in three cases, where it loses what is written: it leaves out columns of objects without keys, takes an
empty text for a null, and rounds whole numbers of more than 38 digits to double.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import pyarrow as pa

from airflow_iceberg.errors import InvalidInputError
from airflow_iceberg.format import types as t
from airflow_iceberg.jobs.sources.json.text import JsonNumber, printable

# An object with more keys is a map: each key would become a field.
MOST_KEYS = 10_000
_LONGS = range(-(2**63), 2**63)
_MOST_DIGITS = 38
# Of a long, in a decimal that holds all of them.
_DIGITS_OF_LONG = 20


class Shape:
    """What was seen of the values at one place of a source.

    Attributes:
        kinds: which of boolean, long, double, string were seen.
        digits: of whole numbers beyond long, how many digits the longest has; 0 for none.
        fields: the shapes of the values of objects by key, in the order in which keys were seen; None without objects.
        element: the shape of the elements of arrays; None without arrays.
    """

    __slots__ = ("digits", "element", "fields", "kinds")

    def __init__(self) -> None:
        self.kinds: set[str] = set()
        self.digits = 0
        self.fields: dict[str, Shape] | None = None
        self.element: Shape | None = None

    def add(self, value: Any) -> None:
        """Add a value that no type of the table is for."""
        kind = type(value)
        if value is None:
            return
        if kind is str:
            self.kinds.add("string")
        elif kind is bool:
            self.kinds.add("boolean")
        elif kind is int:
            if value in _LONGS:
                self.kinds.add("long")
            else:
                self.digits = max(self.digits, len(str(abs(value))))
        elif kind is JsonNumber and value.removeprefix("-").isdigit():
            self.digits = max(self.digits, len(value.removeprefix("-")))
        elif kind is dict:
            self._object()
            for name, item in value.items():
                self.field(name).add(item)
        elif kind is list:
            element = self.elements()
            for item in value:
                element.add(item)
        else:
            self.kinds.add("double")

    def add_known(self, value: Any, type_: t.IcebergType | None) -> None:
        """Add a value for which the table has a type: of its own fields only their names count."""
        if type_ is None:
            self.add(value)
        elif isinstance(type_, t.StructType) and isinstance(value, dict):
            self._object()
            known = {field.name: field.type for field in type_.fields}
            for name, item in value.items():
                self.field(name).add_known(item, known.get(name))
        elif isinstance(type_, t.ListType) and isinstance(value, list):
            for item in value:
                self.elements().add_known(item, type_.element)
        elif isinstance(type_, t.MapType) and isinstance(value, dict):
            for item in value.values():
                self.elements().add_known(item, type_.value)

    def field(self, name: str) -> Shape:
        """Return the shape of the values of a key.

        Raises:
            InvalidInputError: there are too many keys, or the key is no name of a field.
        """
        fields = self._object()
        if name not in fields:
            if printable(name) != name:
                raise InvalidInputError(f"key '{printable(name)}' cannot be written as UTF-8; rename it")
            if len(fields) >= MOST_KEYS:
                raise InvalidInputError(
                    f"its objects have more than {MOST_KEYS} different keys, such as {name[:50]!r}, and each would be "
                    f"a field: add it to the table as a map, or leave it out"
                )
            fields[name] = Shape()
        return fields[name]

    def elements(self) -> Shape:
        """Return the shape of the elements of arrays."""
        if self.element is None:
            self.element = Shape()
        return self.element

    def merge(self, other: Shape) -> None:
        """Add what another shape has seen."""
        self.kinds |= other.kinds
        self.digits = max(self.digits, other.digits)
        if other.fields is not None:
            self._object()
            for name, shape in other.fields.items():
                self.field(name).merge(shape)
        if other.element is not None:
            self.elements().merge(other.element)

    def type(self) -> pa.DataType:
        """Return the type of all values."""
        numbers = {"long", "double"} & self.kinds or self.digits > 0
        seen = [*(self.kinds - {"long", "double"}), *(["number"] if numbers else [])]
        seen += [name for name, part in (("object", self.fields), ("array", self.element)) if part is not None]
        if len(seen) != 1:
            return pa.string()
        if seen == ["object"]:
            # No struct is without fields.
            return _struct({name: shape.type() for name, shape in (self.fields or {}).items()}) or pa.string()
        if seen == ["array"]:
            return pa.list_(self.elements().type())
        return self._number() if seen == ["number"] else pa.bool_() if seen == ["boolean"] else pa.string()

    def new_parts(self, type_: t.IcebergType | None) -> pa.DataType | None:
        """Return a type with the fields that a type of the table does not have, None for none.

        Without a type of the table, all is new.
        """
        if type_ is None:
            return self.type()
        if isinstance(type_, t.StructType):
            known = {field.name: field.type for field in type_.fields}
            return _struct({name: shape.new_parts(known.get(name)) for name, shape in (self.fields or {}).items()})
        if isinstance(type_, t.ListType) and self.element is not None:
            element = self.element.new_parts(type_.element)
            return None if element is None else pa.list_(element)
        if isinstance(type_, t.MapType) and self.element is not None:
            value = self.element.new_parts(type_.value)
            return None if value is None else pa.map_(pa.string(), value)
        return None

    def seen_parts(self, type_: t.IcebergType) -> pa.DataType:
        """Return which fields of a type of the table were seen, as a type of nulls."""
        if isinstance(type_, t.StructType) and self.fields is not None:
            known = [field for field in type_.fields if field.name in self.fields]
            return pa.struct([pa.field(one.name, self.fields[one.name].seen_parts(one.type)) for one in known])
        if isinstance(type_, t.ListType) and self.element is not None:
            return pa.list_(self.element.seen_parts(type_.element))
        if isinstance(type_, t.MapType) and self.element is not None:
            return pa.map_(pa.string(), self.element.seen_parts(type_.value))
        return pa.null()

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        found: dict[str, Any] = {}
        if self.kinds:
            found["kinds"] = sorted(self.kinds)
        if self.digits:
            found["digits"] = self.digits
        if self.fields is not None:
            found["fields"] = {name: shape.to_dict() for name, shape in self.fields.items()}
        if self.element is not None:
            found["element"] = self.element.to_dict()
        return found

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Self:
        """Read what `to_dict` has written."""
        shape = cls()
        shape.kinds = set(document.get("kinds", ()))
        shape.digits = document.get("digits", 0)
        if "fields" in document:
            shape.fields = {name: cls.from_dict(item) for name, item in document["fields"].items()}
        if "element" in document:
            shape.element = cls.from_dict(document["element"])
        return shape

    def _object(self) -> dict[str, Shape]:
        if self.fields is None:
            self.fields = {}
        return self.fields

    def _number(self) -> pa.DataType:
        if "double" in self.kinds:
            return pa.float64()
        if not self.digits:
            return pa.int64()
        if self.digits > _MOST_DIGITS:
            return pa.string()
        return pa.decimal128(max(self.digits, _DIGITS_OF_LONG) if "long" in self.kinds else self.digits, 0)


def has_struct(type_: t.IcebergType | None) -> bool:
    """Return whether values of a type can have fields that the type does not know; None is no type of the table."""
    return type_ is None or isinstance(type_, t.StructType) or any(has_struct(f.type) for f in t.child_fields(type_))


def _struct(fields: Mapping[str, pa.DataType | None]) -> pa.DataType | None:
    found = [pa.field(name, kind) for name, kind in fields.items() if kind is not None]
    return pa.struct(found) if found else None
