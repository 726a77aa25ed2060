"""A table's schema: fields by id and by full name, identifier fields, projection, fresh ids.

Not here: the types (`types`), types as users write them (`shorthand`), legal changes of a schema (`evolution`), Arrow
schemas (`arrow`).
"""

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import count
from typing import TYPE_CHECKING, Any, TypeAlias

from airflow_iceberg.errors import FormatError, InvalidInputError, NotFoundError
from airflow_iceberg.format import types as t
from airflow_iceberg.format.json_fields import MAX_INT, Fields
from airflow_iceberg.format.names import did_you_mean, fold
from airflow_iceberg.format.type_json import field_to_json, type_from_json

if TYPE_CHECKING:
    import pyarrow as pa

ALL_COLUMNS = "*"
# A field within others has their names in its own: a long name around many fields would be as many long names.
_MOST_NAMES_BYTES = 32 << 20

Columns: TypeAlias = "Mapping[str, str | Mapping[str, Any]] | Schema | pa.Schema"
"""The forms in which users give a schema."""


@dataclass(frozen=True, slots=True)
class Schema:
    """The columns of a table. Equal ids mean the same column, whatever its name.

    Attributes:
        fields: the top-level columns in order.
        schema_id: number of the schema inside its table.
        identifier_field_ids: ids of the fields that identify a row, like a primary key that is not enforced.
        fields_by_id: every field at every depth; the fields of lists and maps are ``element``, ``key`` and ``value``.
        names: full dotted name to id, like ``points.element.x``.
        parents: id of each nested field to the id of its parent.
        names_bytes: the memory of all names.
    Raises:
        InvalidInputError: a duplicate id or name, an identifier field that could be null or is a float, or names that
            are too long together.
    Spec: Schemas and Data Types; Identifier Field IDs.
    """

    fields: tuple[t.NestedField, ...] = ()
    schema_id: int = 0
    identifier_field_ids: tuple[int, ...] = ()
    fields_by_id: Mapping[int, t.NestedField] = field(init=False, repr=False, compare=False, hash=False)
    names: Mapping[str, int] = field(init=False, repr=False, compare=False, hash=False)
    parents: Mapping[int, int] = field(init=False, repr=False, compare=False, hash=False)
    _names_by_id: Mapping[int, str] = field(init=False, repr=False, compare=False, hash=False)
    _short_names: Mapping[str, int] = field(init=False, repr=False, compare=False, hash=False)
    names_bytes: int = field(init=False, repr=False, compare=False, hash=False)

    def __post_init__(self) -> None:
        index = _Index()
        index.add(self.fields, "", "", None)
        for name in ("fields_by_id", "names", "parents", "_names_by_id", "_short_names", "names_bytes"):
            object.__setattr__(self, name, getattr(index, name.lstrip("_")))
        # A set, as in Iceberg Java: a column that is named twice identifies rows no better.
        object.__setattr__(self, "identifier_field_ids", tuple(dict.fromkeys(self.identifier_field_ids)))
        for field_id in self.identifier_field_ids:
            self._check_identifier(field_id)

    @classmethod
    def from_dict(cls, value: Mapping[str, Any], *, path: str | None = None, where: str = "schema") -> "Schema":
        """Read a schema of metadata JSON, with id 0 by default (version 1); raises FormatError for an illegal one."""
        fields = Fields(value, where, path)
        struct = type_from_json({"type": "struct", **value}, path=path, where=where)
        if not isinstance(struct, t.StructType):
            fields.fail("type", f"unexpected type {struct} (expected struct)")
        identifiers = fields.int_list("identifier-field-ids") if "identifier-field-ids" in fields else ()
        try:
            return cls(struct.fields, fields.opt_int("schema-id") or 0, identifiers)
        except InvalidInputError as error:
            raise FormatError(f"{error} in '{where}'", path=path) from error

    def to_dict(self) -> dict[str, Any]:
        """Return the schema as metadata JSON has it, keys in Java's order."""
        result: dict[str, Any] = {"type": "struct", "schema-id": self.schema_id}
        if self.identifier_field_ids:
            result["identifier-field-ids"] = list(self.identifier_field_ids)
        result["fields"] = [field_to_json(child) for child in self.fields]
        return result

    def __str__(self) -> str:
        return "\n".join(("table {", *(f"  {child}" for child in self.fields), "}"))

    def as_struct(self) -> t.StructType:
        """Return the columns as one struct type."""
        return t.StructType(fields=self.fields)

    @property
    def highest_field_id(self) -> int:
        """The highest id in use, 0 without columns. A table's last-column-id may be higher: ids are never reused."""
        return max(self.fields_by_id, default=0)

    def without_write_defaults(self) -> "Schema":
        """Return the schema for writing rows of versions 1 and 2, which have no defaults.

        The metadata keeps write defaults, which Iceberg Java accepts in any version; they apply after an upgrade.

        Spec: Default values; Version 3.
        """
        return replace(self, fields=tuple(_without_write_default(item) for item in self.fields))

    def find_field(self, name_or_id: str | int, case_sensitive: bool = True) -> t.NestedField:
        """Return a field at any depth.

        Args:
            name_or_id: an id, or a full dotted name; ``points.x`` also means ``points.element.x``.
            case_sensitive: whether the case of a name matters.
        Raises:
            NotFoundError: no such field; the message lists the columns.
            InvalidInputError: without case, the name fits two columns.
        """
        if isinstance(name_or_id, int):
            found = self.fields_by_id.get(name_or_id)
            if found is None:
                raise NotFoundError(f"no column with field id {name_or_id} (columns: {self._known()})")
            return found
        return self.fields_by_id[self._find_id(name_or_id, case_sensitive)]

    def find_key(self, name: str, case_sensitive: bool = True) -> t.NestedField:
        """Return a field that can be a part of a key: a column, or a field of structs; arguments as of `find_field`.

        Raises:
            NotFoundError: no such field.
            InvalidInputError: it is inside a list or a map, where a row has several values; or its values cannot be
                compared.
        """
        found = self.find_field(name, case_sensitive)
        around = next((one for one in self.ancestors(found.id) if not isinstance(one.type, t.StructType)), None)
        if around is not None:
            kind = "list" if isinstance(around.type, t.ListType) else "map"
            raise InvalidInputError(
                f"column '{name}' cannot be a key: it is inside the {kind} '{self._names_by_id[around.id]}', which has "
                f"several values in a row; name a column, or a field of a struct"
            )
        self.check_comparable(found)
        return found

    def path(self, field_id: int) -> tuple[str, ...]:
        """Return the names of a column and of the fields within it, down to a field."""
        names = [self.fields_by_id[field_id].name, *(one.name for one in self.ancestors(field_id))]
        return tuple(reversed(names))

    def find_name(self, field_id: int) -> str | None:
        """Return the full dotted name of a field, or None for an unknown id."""
        return self._names_by_id.get(field_id)

    def same_fields(self, other: "Schema") -> bool:
        """Tell whether two schemas are equal except for their schema ids."""
        return self.fields == other.fields and set(self.identifier_field_ids) == set(other.identifier_field_ids)

    def select(self, names: Iterable[str], case_sensitive: bool = True) -> "Schema":
        """Return a schema of some columns, with their ids, in the order of this one.

        Args:
            names: full dotted names; ``a.b`` keeps only ``b`` of struct ``a``; ``*`` keeps everything.
            case_sensitive: whether the case of the names matters.
        Raises:
            NotFoundError: a name fits no column.
        """
        wanted = tuple(names)
        if ALL_COLUMNS in wanted:
            return self
        ids = frozenset(self._find_id(name, case_sensitive) for name in wanted)
        fields = _prune(self.fields, ids)
        kept = Schema(fields, self.schema_id)
        identifiers = tuple(field_id for field_id in self.identifier_field_ids if field_id in kept.fields_by_id)
        return replace(kept, identifier_field_ids=identifiers)

    def _find_id(self, name: str, case_sensitive: bool) -> int:
        found = self.names.get(name, self._short_names.get(name))
        if found is None and not case_sensitive:
            found = self._find_without_case(name)
        if found is None:
            raise self.no_column(name)
        return found

    def _find_without_case(self, name: str) -> int | None:
        folded = fold(name)
        for index in (self.names, self._short_names):
            found = {known: field_id for known, field_id in index.items() if fold(known) == folded}
            if len(found) > 1:
                raise InvalidInputError(f"column '{name}' is ambiguous without case: {', '.join(found)}")
            if found:
                return next(iter(found.values()))
        return None

    def no_column(self, name: str) -> NotFoundError:
        """Return the error about a name that no column has."""
        return NotFoundError(f"no column '{name}' (columns: {self._known()}){did_you_mean(name, self.names)}")

    def _known(self) -> str:
        return ", ".join(self.names) or "none"

    def _check_identifier(self, field_id: int) -> None:
        found = self.fields_by_id.get(field_id)
        if found is None:
            raise InvalidInputError(f"identifier field id {field_id} is not a column (columns: {self._known()})")
        name = self._names_by_id[field_id]
        if not isinstance(found.type, t.PrimitiveType):
            raise InvalidInputError(f"column '{name}' cannot identify rows: {found.type} is not a primitive type")
        if isinstance(found.type, (t.FloatType, t.DoubleType)):
            raise InvalidInputError(f"column '{name}' cannot identify rows: its type is {found.type}")
        if not found.required:
            raise InvalidInputError(f"column '{name}' cannot identify rows: it is optional")
        for parent in self.ancestors(field_id):
            if not isinstance(parent.type, t.StructType):
                raise InvalidInputError(f"column '{name}' cannot identify rows: it is inside the {parent.type}")
            if not parent.required:
                raise InvalidInputError(f"column '{name}' cannot identify rows: struct '{parent.name}' is optional")

    def check_comparable(self, key: t.NestedField) -> None:
        """Check that rows can be found by a field: values of variants and geometries are not equal by their bytes.

        Raises:
            InvalidInputError: the field is of such a type, or has one in it.
        """
        for found in t.walk_fields((key,)):
            if isinstance(found.type, (t.VariantType, *t.GEOSPATIAL)):
                raise InvalidInputError(
                    f"column '{self._names_by_id[key.id]}' cannot be a key: values of {found.type} cannot be compared; "
                    f"choose others"
                )

    def ancestors(self, field_id: int) -> Iterator[t.NestedField]:
        """Yield the fields around a nested field, innermost first; nothing for a top-level one."""
        parent = self.parents.get(field_id)
        while parent is not None:
            yield self.fields_by_id[parent]
            parent = self.parents.get(parent)


def _without_write_default(item: t.NestedField) -> t.NestedField:
    return replace(item, write_default=None, type=_type_without_write_defaults(item.type))


def _type_without_write_defaults(type_: t.IcebergType) -> t.IcebergType:
    if isinstance(type_, t.StructType):
        return t.StructType(fields=tuple(_without_write_default(item) for item in type_.fields))
    if isinstance(type_, t.ListType):
        return replace(type_, element=_type_without_write_defaults(type_.element))
    if isinstance(type_, t.MapType):
        key, value = _type_without_write_defaults(type_.key), _type_without_write_defaults(type_.value)
        return replace(type_, key=key, value=value)
    return type_


class _Index:
    """The lookups of a schema, collected in one pass."""

    def __init__(self) -> None:
        self.fields_by_id: dict[int, t.NestedField] = {}
        self.names: dict[str, int] = {}
        self.parents: dict[int, int] = {}
        self.names_by_id: dict[int, str] = {}
        self.short_names: dict[str, int] = {}
        self.names_bytes = 0

    def add(
        self, fields: tuple[t.NestedField, ...], prefix: str, short_prefix: str, parent: t.NestedField | None
    ) -> None:
        """Add fields and their nested fields.

        Args:
            prefix: full name of the parent with its dot.
            short_prefix: the same without ``element`` and ``value`` of structs in lists and maps.
            parent: the field that contains these, or None at the top.
        """
        in_struct = parent is None or isinstance(parent.type, t.StructType)
        for child in fields:
            name = prefix + child.name
            self._add_one(child, name, parent)
            short = name if short_prefix == prefix else self._counted(short_prefix + child.name)
            self.short_names.setdefault(short, child.id)
            # As in Java, `points.x` means `points.element.x`, but only if the element is a struct.
            skip = not in_struct and child.name != "key" and isinstance(child.type, t.StructType)
            below = short_prefix if skip else short + "."
            nested = t.child_fields(child.type)
            if nested:
                self.add(nested, f"{prefix}{child.name}.", below, child)

    def _counted(self, name: str) -> str:
        self.names_bytes += sys.getsizeof(name)
        if self.names_bytes > _MOST_NAMES_BYTES:
            raise InvalidInputError(
                f"the names of its columns, each with those around it, take more than {_MOST_NAMES_BYTES} bytes"
            )
        return name

    def _add_one(self, child: t.NestedField, name: str, parent: t.NestedField | None) -> None:
        if not 0 <= child.id <= MAX_INT:
            raise InvalidInputError(f"unexpected field id {child.id} (expected 0 to {MAX_INT}) of column '{name}'")
        try:
            name.encode()
        except UnicodeEncodeError as error:
            raise InvalidInputError(f"column name {name!r} is no valid Unicode: {error.reason}") from None
        if child.required and isinstance(child.type, t.UnknownType):
            raise InvalidInputError(f"column '{name}' of type unknown must be optional: all its values are null")
        if child.id in self.fields_by_id:
            raise InvalidInputError(f"field id {child.id} is used twice: '{self.names_by_id[child.id]}' and '{name}'")
        if name in self.names:
            raise InvalidInputError(f"column name '{name}' is used twice: field ids {self.names[name]} and {child.id}")
        self.fields_by_id[child.id] = child
        self.names[self._counted(name)] = child.id
        self.names_by_id[child.id] = name
        if parent is not None:
            self.parents[child.id] = parent.id


def _prune(fields: tuple[t.NestedField, ...], ids: frozenset[int]) -> tuple[t.NestedField, ...]:
    """Keep the fields with a wanted id as a whole, and of the others the wanted nested fields."""
    pruned = ((child, child.type if child.id in ids else _prune_type(child.type, ids)) for child in fields)
    return tuple(replace(child, type=type_) for child, type_ in pruned if type_ is not None)


def _prune_type(type_: t.IcebergType, ids: frozenset[int]) -> t.IcebergType | None:
    kept = _prune(t.child_fields(type_), ids)
    if not kept:
        return None
    if isinstance(type_, t.StructType):
        return t.StructType(fields=kept)
    if isinstance(type_, t.ListType):
        return replace(type_, element=kept[0].type)
    if isinstance(type_, t.MapType):
        # A map is always read with its whole key.
        value = next((child.type for child in kept if child.id == type_.value_id), type_.value)
        return replace(type_, value=value)
    return None


def assign_fresh_ids(schema: Schema, *, first_id: int = 1) -> Schema:
    """Return the schema with new field ids, in the same order as Java.

    All fields of one struct first, then the fields nested in the first of them, and so on; so the top-level columns
    have the ids 1 to n.
    """
    ids = count(first_id)
    struct = fresh_type(schema.as_struct(), lambda: next(ids))
    assert isinstance(struct, t.StructType)
    fresh = Schema(struct.fields, schema.schema_id)
    names = (schema.find_name(field_id) for field_id in schema.identifier_field_ids)
    identifiers = tuple(fresh.names[name] for name in names if name is not None)
    return replace(fresh, identifier_field_ids=identifiers)


def fresh_type(type_: t.IcebergType, next_id: Callable[[], int]) -> t.IcebergType:
    """Return a type with new ids for all its fields: those of one struct first, then the nested ones."""
    if isinstance(type_, t.StructType):
        ids = [next_id() for _ in type_.fields]
        fields = zip(ids, type_.fields, strict=True)
        return t.StructType(
            fields=tuple(replace(child, id=i, type=fresh_type(child.type, next_id)) for i, child in fields)
        )
    if isinstance(type_, t.ListType):
        return replace(type_, element_id=next_id(), element=fresh_type(type_.element, next_id))
    if isinstance(type_, t.MapType):
        key_id, value_id = next_id(), next_id()
        key, value = fresh_type(type_.key, next_id), fresh_type(type_.value, next_id)
        return t.MapType(key_id=key_id, key=key, value_id=value_id, value=value, value_required=type_.value_required)
    return type_
