"""Fields and types of a schema that changes: replaced, parsed, compared. Part of `evolution`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import count
from typing import Any

from airflow_iceberg.errors import AlreadyExistsError, InvalidInputError, check_text
from airflow_iceberg.format.names import fold
from airflow_iceberg.format.schemas.schema import Schema, fresh_type
from airflow_iceberg.format.schemas.shorthand import field_from_shorthand, unquote
from airflow_iceberg.format.types import IcebergType, ListType, MapType, NestedField, StructType, child_fields

LINEAGE_NAMES = ("_row_id", "_last_updated_sequence_number")
"""Columns of rows in version 3, which files store beside the columns of the table."""
# Without those of changelogs and delete files: no reader adds these to the columns of a table.
RESERVED_NAMES = frozenset((*LINEAGE_NAMES, "_file", "_pos", "_deleted", "_spec_id", "_partition"))


def check_column_name(name: str) -> None:
    """Check that a new column of a table, not one in a struct, does not have the name of a metadata column.

    Raises:
        InvalidInputError: it has; in Spark names that differ by case alone are the same.
    Spec: Reserved Field IDs.
    """
    check_text("the name of a column", name, is_name=True)
    if name.lower() in RESERVED_NAMES:
        raise InvalidInputError(
            f"column '{name}' cannot have this name: it is reserved for the metadata column {name.lower()}, which "
            f"Iceberg adds to every table; choose another name"
        )


def check_case(prefix: str, new: NestedField, siblings: Iterable[NestedField]) -> None:
    """Check that a column which is added because another schema has it is told apart from others by each engine.

    Args:
        prefix: what stands before its name in its full name.
        new: the column, whose fields are checked, too.
        siblings: the fields beside it.

    Raises:
        InvalidInputError: another name differs from it by case alone.
    """
    same = (field.name for field in siblings if fold(field.name) == fold(new.name))
    near = next((name for name in same if name != new.name), None)
    if near is not None:
        raise InvalidInputError(
            f"column '{prefix}{new.name}' is not added: the table has '{prefix}{near}', and names that differ by case "
            f"alone are one to many engines; rename it, or add it by a change of its own"
        )
    fields = child_fields(new.type)
    for field in fields:
        check_case(f"{prefix}{new.name}.", field, fields)


def check_lineage_names(schema: Schema) -> None:
    """Check that a table can have format version 3, whose files with existing rows store the row lineage as columns.

    Raises:
        InvalidInputError: a column has the name of one of these.
    """
    for field in schema.fields:
        if field.name in LINEAGE_NAMES:
            raise InvalidInputError(
                f"column '{field.name}' has a name that format version 3 reserves for the lineage of rows: files with "
                f"existing rows could not be written; rename the column first"
            )


def same_shape(one: IcebergType, other: IcebergType) -> bool:
    """Tell whether two types are equal except for their field ids."""
    return fresh_type(one, lambda: 0) == fresh_type(other, lambda: 0)


def with_field(fields: tuple[NestedField, ...], new: NestedField) -> tuple[NestedField, ...]:
    """Return fields with one field replaced, by its id, at any depth; keys of maps are never replaced."""
    return tuple(new if item.id == new.id else replace(item, type=_with_inner(item.type, new)) for item in fields)


def _with_inner(type_: IcebergType, new: NestedField) -> IcebergType:
    if isinstance(type_, StructType):
        return StructType(fields=with_field(type_.fields, new))
    if isinstance(type_, ListType):
        (element,) = with_field((type_.element_field,), new)
        return ListType(element_id=element.id, element=element.type, element_required=element.required)
    if isinstance(type_, MapType):
        (value,) = with_field((type_.value_field,), new)
        return replace(type_, value=value.type, value_required=value.required)
    return type_


def new_leaf(name: str, to: str) -> str:
    """Return the last part of a new name: `point.lat` for `point.x` is `lat`."""
    if unquote(to) != to.strip() or "." not in to:
        return unquote(to)
    around, _, leaf = to.rpartition(".")
    if around != name.rpartition(".")[0]:
        raise InvalidInputError(
            f"column '{name}' cannot be renamed to '{to}': a column cannot leave its struct; a name that has a dot "
            f"is written in backticks"
        )
    return leaf


def parse_field(name: str, leaf: str, type_: Any) -> NestedField:
    """Return the field of a type as users write it, with temporary ids."""
    if isinstance(type_, IcebergType):
        return NestedField(id=0, name=leaf, type=type_)
    ids = count(1)
    parsed = field_from_shorthand(name, type_, lambda: next(ids))
    return replace(parsed, name=leaf)


def parse_type(name: str, type_: Any) -> IcebergType:
    """Return a type that users wrote, with temporary ids."""
    return parse_field(name, name, type_).type


def check_same(name: str, there: NestedField, wanted: NestedField) -> None:
    """Raise AlreadyExistsError if an existing column differs from the one to add."""
    problem = None
    if not same_shape(there.type, wanted.type):
        problem = f"with type {there.type}, not {wanted.type}"
    elif there.required != wanted.required:
        problem = f"as {_nullability(there)}, not {_nullability(wanted)}"
    elif wanted.doc is not None and wanted.doc != there.doc:
        problem = f"with doc {there.doc!r}, not {wanted.doc!r}"
    elif wanted.initial_default is not None and wanted.initial_default != there.initial_default:
        problem = f"with default {there.initial_default!r}, not {wanted.initial_default!r}"
    if problem is not None:
        raise AlreadyExistsError(f"column '{name}' cannot be added: it already exists {problem}")


def _nullability(field: NestedField) -> str:
    return "a required column" if field.required else "an optional column"
