"""The form that all documents of a job share: JSON with a version, a key for each field of a value.

`Document` reads and writes a value by the types of its fields, and checks everything that it reads: a user who can
write to the table's location may have changed the document.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields as fields_of
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, ClassVar, Self, get_args, get_origin, get_type_hints

from airflow_iceberg.errors import FormatError, InvalidInputError, UnsupportedError
from airflow_iceberg.expressions.json import expression_to_json
from airflow_iceberg.expressions.tree import Expression
from airflow_iceberg.format.json_fields import Fields, json_type_name

if TYPE_CHECKING:
    from airflow_iceberg.storage.base import FileIO

VERSION = 4


class Document:
    """A dataclass with a JSON form: an object with a key for each field, spelled with hyphens.

    Its numbers are counts, sizes and ids: none is negative. A field of a type with None may be missing, others not.
    """

    __slots__ = ()

    @classmethod
    def from_dict(cls, fields: Fields) -> Self:
        """Read the value from its JSON form; raises FormatError if a field is missing or of another type."""
        return cls.read(fields)

    @classmethod
    def read(cls, fields: Fields, **known: Any) -> Self:
        """Read the value from its JSON form, apart from the fields that are known."""
        read = {name: _read(kind, fields, _key(name)) for name, kind in _kinds(cls).items() if name not in known}
        return cls(**read, **known)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {_key(name): _written(getattr(self, name)) for name in _kinds(type(self))}


class StoredDocument(Document):
    """A document that is stored in a file of its own, with its version; `title` is its name in messages."""

    __slots__ = ()
    title: ClassVar[str]

    @classmethod
    def from_json(cls, data: bytes | str, *, path: str | None = None) -> Self:
        """Read the document; messages name its location `path`.

        Raises:
            FormatError: not such a document.
            UnsupportedError: a document of another version: Airflow and the cluster have different packages.
        """
        try:
            return cls.from_dict(read_fields(data, title=cls.title, version=VERSION, path=path))
        except InvalidInputError as error:
            raise FormatError(f"broken {cls.title}: {error}", path=path) from error

    def to_json(self) -> bytes:
        """Return the document: JSON, UTF-8."""
        return json.dumps({"version": VERSION, **self.to_dict()}, ensure_ascii=False, allow_nan=False).encode()


def read_bytes(io: FileIO, location: str, *, title: str, most_bytes: int) -> bytes:
    """Read a document that anybody who can write to the table's folder may have made larger.

    Raises:
        FormatError: it has more bytes.
        NotFoundError: there is none.
    """
    data = io.read(location, length=most_bytes + 1)
    if len(data) > most_bytes:
        raise FormatError(f"{title} has more than {most_bytes} bytes", path=location)
    return data


def read_object(data: bytes | str, *, title: str, path: str | None, where: str = "") -> Fields:
    """Return a JSON object; raises FormatError if it is none, also if it is nested too deeply.

    Args:
        where: its place in the document.
    """
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{title} is not JSON: {error}", path=path) from error
    if not isinstance(document, dict):
        raise FormatError(f"{title} is not a JSON object", path=path)
    return Fields(document, where, path)


def read_fields(data: bytes | str, *, title: str, version: int, path: str | None) -> Fields:
    """Return the fields of a document of a version.

    Raises:
        FormatError: no such document.
        UnsupportedError: a document of another version.
    """
    fields = read_object(data, title=title, path=path)
    found = fields.int("version")
    if found < 1:
        raise FormatError(f"{title} has version {found}, expected {version}", path=path)
    if found != version:
        raise UnsupportedError(
            f"{title} has version {found}, this airflow_iceberg reads version {version}; "
            f"use the same version of airflow_iceberg in Airflow and on the cluster"
        )
    return fields


def count(fields: Fields, key: str) -> int:
    """Return an integer; raises FormatError if it is none, or negative."""
    value = fields.int(key)
    if value < 0:
        fields.fail(key, f"unexpected number {value} (expected 0 or more)")
    return value


_KINDS: dict[type, dict[str, Any]] = {}


def _kinds(cls: type[Any]) -> dict[str, Any]:
    if cls not in _KINDS:
        hints = get_type_hints(cls)
        _KINDS[cls] = {field.name: hints[field.name] for field in fields_of(cls)}
    return _KINDS[cls]


def _key(name: str) -> str:
    return name.replace("_", "-")


def _read(kind: Any, fields: Fields, key: str) -> Any:
    if get_origin(kind) is UnionType:
        (kind,) = (one for one in get_args(kind) if one is not NoneType)
        return _read(kind, fields, key) if key in fields else None
    if kind in _READ:
        return _READ[kind](fields, key)
    if get_origin(kind) is tuple:
        item = get_args(kind)[0]
        return _strings(fields, key) if item is str else tuple(_value(item, child) for child in fields.items(key))
    return _value(kind, fields.child(key))


def _value(kind: Any, fields: Fields) -> Any:
    if get_origin(kind) is Mapping:
        return fields.data
    if issubclass(kind, Document):
        return kind.from_dict(fields)
    # A schema, a partition spec, a sort order.
    return kind.from_dict(dict(fields.data), path=fields.path)


def _strings(fields: Fields, key: str) -> tuple[str, ...]:
    for index, item in enumerate(fields.list(key)):
        if not isinstance(item, str):
            fields.fail(f"{key}[{index}]", f"unexpected type {json_type_name(item)} (expected str)")
    return tuple(fields.list(key))


def _numbers(fields: Fields, key: str) -> dict[str, float]:
    child = fields.child(key)
    for name, value in child.data.items():
        if type(value) not in (int, float):
            child.fail(name, f"unexpected type {json_type_name(value)} (expected float)")
    return dict(child.data)


_READ: dict[Any, Any] = {
    str: Fields.str,
    int: count,
    bool: Fields.bool,
    Mapping[str, str]: Fields.str_map,
    Mapping[str, float]: _numbers,
}


def _written(value: Any) -> Any:
    if isinstance(value, Expression):
        return expression_to_json(value)
    if hasattr(value, "to_dict"):
        return value.to_dict()
    if isinstance(value, tuple):
        return [_written(item) for item in value]
    return dict(value) if isinstance(value, Mapping) else value
