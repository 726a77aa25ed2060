"""The base of schema evolution: finding fields by name, fields that must not change, and making new fields.

Not here: the changes themselves (`evolution`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from airflow_iceberg.errors import InvalidInputError, NotFoundError
from airflow_iceberg.format import types as t
from airflow_iceberg.format.partitions.spec import PartitionSpec
from airflow_iceberg.format.schemas.evolving_fields import parse_field, with_field
from airflow_iceberg.format.schemas.schema import Schema
from airflow_iceberg.format.schemas.shorthand import unquote
from airflow_iceberg.format.values import bytes as values

DEFAULTS_VERSION = 3
MAX_FIELD_ID = 2_147_483_447
"""Higher ids are reserved. Spec: Reserved Field IDs."""


class ChangingSchema:
    """A schema between two versions of a table.

    Args:
        schema: the schema before the changes; as an attribute, the current state.
        last_column_id: highest field id that the table ever assigned.
        history: all schemas of the table, to recognize changes that were made before.
        specs: all partition specs of the table.
        format_version: version of the table; changes may raise it.
    """

    def __init__(
        self,
        schema: Schema,
        *,
        last_column_id: int,
        history: Sequence[Schema],
        specs: Sequence[PartitionSpec],
        format_version: int,
    ) -> None:
        self.schema = schema
        self.last_column_id = last_column_id
        self.format_version = format_version
        self._history = history
        self._specs = specs

    def _find(self, name: str) -> t.NestedField | None:
        for spelled in (name, unquote(name)):
            try:
                return self.schema.find_field(spelled)
            except NotFoundError:
                continue
        return None

    def _require(self, name: str) -> t.NestedField:
        found = self._find(name)
        if found is None:
            raise self.schema.no_column(name)
        return found

    def _earlier_ids(self, name: str) -> set[int]:
        """Return the ids of the columns with a name in any schema of the table."""
        return {schema.names[n] for schema in self._history for n in (name, unquote(name)) if n in schema.names}

    def _leaf(self, field_id: int) -> str | None:
        found = self.schema.fields_by_id.get(field_id)
        return None if found is None else found.name

    def _split(self, name: str) -> tuple[t.NestedField | None, str]:
        """Return the struct of a new column, None for the table, and the column's name in it."""
        if not name.strip():
            raise InvalidInputError(f"a column name must be a text that is not empty, got {name!r}")
        if unquote(name) != name.strip() or "." not in name or name in {item.name for item in self.schema.fields}:
            return None, unquote(name)
        around, _, leaf = name.rpartition(".")
        parent = self._find(around)
        if parent is None:
            raise NotFoundError(
                f"no column '{around}' to add '{leaf}' to (columns: {', '.join(self.schema.names)}); a name that has "
                f"a dot in it is written in backticks"
            )
        while isinstance(parent.type, (t.ListType, t.MapType)):
            parent = t.child_fields(parent.type)[-1]
        if not isinstance(parent.type, t.StructType):
            raise InvalidInputError(f"column '{name}' cannot be added: '{around}' is {parent.type}, not a struct")
        if self._in_map_key(parent):
            raise InvalidInputError(f"column '{name}' cannot be added: the keys of a map cannot change")
        return parent, leaf

    def _parent(self, field: t.NestedField) -> t.NestedField | None:
        parent = self.schema.parents.get(field.id)
        return None if parent is None else self.schema.fields_by_id[parent]

    def _siblings(self, parent: t.NestedField | None) -> tuple[t.NestedField, ...]:
        return self.schema.fields if parent is None else t.child_fields(parent.type)

    def _sibling(self, name: str, parent: t.NestedField | None, moved: str) -> t.NestedField:
        siblings = self._siblings(parent)
        full = self._find(name)
        for item in siblings:
            if item.name in (name, unquote(name)) or (full is not None and item.id == full.id):
                return item
        known = ", ".join(item.name for item in siblings)
        raise NotFoundError(f"no column '{name}' in the struct of '{moved}' (its columns: {known})")

    # --- fields that must not change ---

    def _in_map_key(self, field: t.NestedField) -> bool:
        path = pairwise((field, *self.schema.ancestors(field.id)))
        return any(isinstance(around.type, t.MapType) and around.type.key_id == inner.id for inner, around in path)

    def _check_evolvable(self, field: t.NestedField) -> None:
        if self._in_map_key(field):
            raise InvalidInputError(
                f"column '{self.schema.find_name(field.id)}' cannot change: the keys of a map cannot"
            )

    def _is_struct_member(self, field: t.NestedField) -> bool:
        parent = self._parent(field)
        return parent is None or isinstance(parent.type, t.StructType)

    def _check_struct_member(self, field: t.NestedField, verb: str) -> None:
        self._check_evolvable(field)
        if not self._is_struct_member(field):
            raise InvalidInputError(
                f"'{self.schema.find_name(field.id)}' cannot be {verb}: it is the {field.name} of a list or map, not a "
                f"field of a struct"
            )

    # --- making ---

    def _next_id(self) -> int:
        if self.last_column_id >= MAX_FIELD_ID:
            # Differs from Java: Java would assign the reserved ids of `_pos`, `_file` and others.
            raise InvalidInputError(
                f"no column can be added: the table has given out field ids up to {self.last_column_id}, and those "
                f"above {MAX_FIELD_ID} are reserved"
            )
        self.last_column_id += 1
        return self.last_column_id

    def _new_field(
        self, name: str, leaf: str, type_: Any, *, doc: str | None, required: bool, default: Any
    ) -> t.NestedField:
        parsed = parse_field(name, leaf, type_)
        value = self._default(name, parsed.type, default)
        return replace(
            parsed,
            doc=parsed.doc if doc is None else doc,
            required=required or parsed.required,
            initial_default=value,
            write_default=value,
        )

    def _default(self, name: str, type_: t.IcebergType, default: Any) -> Any:
        if default is None:
            return None
        if self.format_version < DEFAULTS_VERSION:
            raise InvalidInputError(
                f"the default of column '{name}' needs format version 3 (the table has {self.format_version}); "
                f"put upgrade_format_version before it"
            )
        if not isinstance(type_, t.PrimitiveType) or isinstance(type_, (t.UnknownType, *t.GEOSPATIAL)):
            hint = "; its fields can" if t.child_fields(type_) else ""
            raise InvalidInputError(f"column '{name}' is {type_} and cannot have a default{hint}")
        try:
            return values.to_json(type_, values.parse_literal(type_, default))
        except InvalidInputError as error:
            raise InvalidInputError(f"default of column '{name}': {error}") from error

    def _edit_struct(
        self, parent: t.NestedField | None, edit: Callable[[tuple[t.NestedField, ...]], tuple[t.NestedField, ...]]
    ) -> None:
        if parent is None:
            self.schema = replace(self.schema, fields=edit(self.schema.fields))
            return
        assert isinstance(parent.type, t.StructType)
        self._edit_field(parent, type=t.StructType(fields=edit(parent.type.fields)))

    def _edit_field(self, field: t.NestedField, **changes: Any) -> None:
        self.schema = replace(self.schema, fields=with_field(self.schema.fields, replace(field, **changes)))
