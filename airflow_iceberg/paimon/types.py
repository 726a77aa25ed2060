"""Paimon's types: one class for all of them, read from the text of an atomic type or the object of a nested one.

Values of these types, everywhere in `paimon`: boolean bool; integers int; FLOAT, DOUBLE float; DECIMAL
decimal.Decimal with exactly the type's scale; CHAR, VARCHAR str; BINARY, VARBINARY, BLOB bytes; DATE int, days since
1970-01-01; TIME int, microseconds; TIMESTAMP int, microseconds since the epoch up to precision 6, nanoseconds from
precision 7 on; ARRAY, VECTOR and ROW tuple; MAP dict; MULTISET dict of counts; VARIANT a pair of bytes (value,
metadata).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from airflow_iceberg.errors import FormatError
from airflow_iceberg.format.json_fields import Fields, json_type_name

MAX_LENGTH = 2147483647
"""Length of STRING, which is VARCHAR of it, and of BYTES, which is VARBINARY of it."""

_ALIASES = {"INTEGER": "INT", "NUMERIC": "DECIMAL", "DEC": "DECIMAL", "REAL": "FLOAT", "DOUBLE PRECISION": "DOUBLE"}
# The parameters of a type that is written without them.
_DEFAULTS: Mapping[str, tuple[int, ...]] = {
    **{"CHAR": (1,), "VARCHAR": (1,), "BINARY": (1,), "VARBINARY": (1,)},
    **{"DECIMAL": (10, 0), "TIME": (0,), "TIMESTAMP": (6,), "TIMESTAMP_LTZ": (6,)},
}
_ATOMIC_TEXT = re.compile(r"([A-Z][A-Z0-9_]*(?: PRECISION)?)(?: ?\( ?(\d+) ?(?:, ?(\d+) ?)?\))?((?: [A-Z]+)*)")
# The parameters of these types are case-sensitive texts, in quotes or not: OGC:CRS84.
_GEO_TEXT = re.compile(r"(GEOMETRY|GEOGRAPHY)\s*(\(.*\))(\s+NOT\s+NULL|\s+NULL)?", re.IGNORECASE | re.DOTALL)
_LIMITS = {"DECIMAL": 38, "TIME": 9, "TIMESTAMP": 9, "TIMESTAMP_LTZ": 9}
_DEEPEST = 64


@dataclass(frozen=True, kw_only=True, slots=True)
class PaimonField:
    """A field of a table or of a ROW.

    Attributes:
        id: the number of the field, from 0; it is never used again.
        default: the default of written rows, as text.
    """

    id: int
    name: str
    type: PaimonType
    description: str | None = None
    default: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class PaimonType:
    """A type.

    Attributes:
        root: the name without parameters; STRING is VARCHAR, BYTES is VARBINARY, and an unknown name is kept.
        parameters: length; or precision; or precision and scale; empty if the type has none.
        element: the type of the elements of ARRAY, MULTISET and VECTOR.
        key, value: the types of the keys and values of MAP.
        fields: the fields of ROW.
    """

    root: str
    nullable: bool = True
    parameters: tuple[int, ...] = ()
    element: PaimonType | None = None
    key: PaimonType | None = None
    value: PaimonType | None = None
    fields: tuple[PaimonField, ...] = ()

    @property
    def precision(self) -> int:
        """The digits of a DECIMAL, or of the fraction of a second of TIME and TIMESTAMP; 0 for others."""
        return self.parameters[0] if self.parameters else 0

    @property
    def scale(self) -> int:
        """The digits of a DECIMAL after the point; 0 for others."""
        return self.parameters[1] if len(self.parameters) > 1 else 0

    def __str__(self) -> str:
        return self._words() if self.nullable else f"{self._words()} NOT NULL"

    def _words(self) -> str:
        if self.root == "ROW":
            return f"ROW<{', '.join(f'{field.name} {field.type}' for field in self.fields)}>"
        if self.root == "MAP":
            return f"MAP<{self.key}, {self.value}>"
        if self.root == "VECTOR":
            return f"VECTOR<{self.element}, {self.precision}>"
        if self.element is not None:
            return f"{self.root}<{self.element}>"
        if self.parameters == (MAX_LENGTH,):
            return {"VARCHAR": "STRING", "VARBINARY": "BYTES"}.get(self.root, f"{self.root}({MAX_LENGTH})")
        return f"{self.root}({', '.join(map(str, self.parameters))})" if self.parameters else self.root


def parse_type(value: Any, *, where: str = "type", path: str | None = None, depth: int = 0) -> PaimonType:
    """Return the type that a JSON value of a schema file describes.

    Args:
        value: text for an atomic type, an object for a nested one.
        where: the place of the value in its document, for the errors.

    Raises:
        FormatError: the value is no type.
    """
    if depth > _DEEPEST:
        raise FormatError(f"types are nested more than {_DEEPEST} deep in '{where}'", path=path)
    if isinstance(value, str):
        return _parse_atomic(value, where, path)
    if isinstance(value, Mapping):
        return _parse_nested(Fields(value, where, path), depth)
    raise FormatError(f"unexpected type {json_type_name(value)} (expected str or object) in '{where}'", path=path)


def parse_field(item: Fields, *, depth: int = 0) -> PaimonField:
    """Return the field that a JSON object of a schema file describes."""
    return PaimonField(
        id=item.int("id"),
        name=item.str("name"),
        type=parse_type(item.raw("type"), where=item.place("type"), path=item.path, depth=depth),
        description=item.opt_str("description"),
        default=item.opt_str("defaultValue"),
    )


def _parse_nested(item: Fields, depth: int) -> PaimonType:
    words = item.str("type").upper().split()
    root, nullable = (words[0] if words else ""), words[1:] != ["NOT", "NULL"]
    if item.data.get("nullable") is False:
        nullable = False

    def child(key: str) -> PaimonType:
        return parse_type(item.raw(key), where=item.place(key), path=item.path, depth=depth + 1)

    if root in ("ARRAY", "MULTISET"):
        return PaimonType(root=root, nullable=nullable, element=child("element"))
    if root == "VECTOR":
        return PaimonType(root=root, nullable=nullable, element=child("element"), parameters=(item.int("length"),))
    if root == "MAP":
        return PaimonType(root=root, nullable=nullable, key=child("key"), value=child("value"))
    if root == "ROW":
        fields = tuple(parse_field(field, depth=depth + 1) for field in item.items("fields"))
        return PaimonType(root=root, nullable=nullable, fields=fields)
    # An atomic type may be written as an object too.
    result = parse_type(item.str("type"), where=item.place("type"), path=item.path)
    return result if nullable else replace(result, nullable=False)


def _parse_atomic(text: str, where: str, path: str | None) -> PaimonType:
    geo = _GEO_TEXT.fullmatch(text.strip())
    if geo is not None:  # values of this type are not read: its name keeps the parameters
        return PaimonType(root=f"{geo[1].upper()}{geo[2]}", nullable="NOT" not in (geo[3] or "").upper())
    match = _ATOMIC_TEXT.fullmatch(" ".join(text.upper().split()))
    if match is None:
        raise FormatError(f"unexpected type {text!r} in '{where}'", path=path)
    name, first, second, suffix = match.groups()
    nullable = not suffix.endswith(" NOT NULL")
    suffix = suffix.removesuffix(" NOT NULL").removesuffix(" NULL").strip()
    root = _ALIASES.get(name, name)
    parameters = tuple(int(item) for item in (first, second) if item is not None) or _DEFAULTS.get(root, ())
    if suffix == "WITH LOCAL TIME ZONE" and root == "TIMESTAMP":
        root = "TIMESTAMP_LTZ"
    elif suffix not in ("", "WITHOUT TIME ZONE") or (suffix and root not in ("TIME", "TIMESTAMP")):
        raise FormatError(f"unexpected words {suffix!r} after type {text!r} in '{where}'", path=path)
    if root in ("STRING", "BYTES"):
        root, parameters = {"STRING": "VARCHAR", "BYTES": "VARBINARY"}[root], (MAX_LENGTH,)
    if root == "DECIMAL" and len(parameters) == 1:
        parameters = (*parameters, 0)
    _check_parameters(root, parameters, text, where, path)
    return PaimonType(root=root, nullable=nullable, parameters=parameters)


def _check_parameters(root: str, parameters: tuple[int, ...], text: str, where: str, path: str | None) -> None:
    limit = _LIMITS.get(root)
    if limit is None:
        return
    lowest = 1 if root == "DECIMAL" else 0
    if not lowest <= parameters[0] <= limit or (root == "DECIMAL" and parameters[1] > parameters[0]):
        raise FormatError(f"unexpected precision or scale of type {text!r} in '{where}'", path=path)
