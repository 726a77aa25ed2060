"""Schema evolution: columns added, dropped, renamed, moved, promoted.

Here: one method for each change, without effect if the change was made already. Not here: the words of changes
(`plan.alter_table`), the promotions (`promotion`), partition specs (`partitions.evolution`).

Ids are never reused: a column that is dropped and added again is another column, without the old values.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from airflow_iceberg.errors import AlreadyExistsError, InvalidInputError, NotFoundError
from airflow_iceberg.format import types as t
from airflow_iceberg.format.schemas.changing_schema import ChangingSchema
from airflow_iceberg.format.schemas.evolving_fields import (
    check_case,
    check_column_name,
    check_same,
    new_leaf,
    parse_type,
    same_shape,
)
from airflow_iceberg.format.schemas.promotion import check_partitions, is_promotion, promote_default, what_may_become
from airflow_iceberg.format.schemas.schema import Schema, fresh_type


@dataclass(frozen=True, kw_only=True, slots=True)
class Position:
    """The new position of a column: first, or before or after another column of the same struct."""

    where: Literal["first", "before", "after"]
    other: str = ""


class SchemaEvolution(ChangingSchema):
    """The changes of a schema: one method each."""

    def add_column(
        self,
        name: str,
        type_: str | Mapping[str, Any] | t.IcebergType,
        *,
        doc: str | None = None,
        required: bool = False,
        default: Any = None,
        position: Position | None = None,
        allow_incompatible: bool = False,
    ) -> None:
        """Add a column, or a field of a struct (`point.z`), also of structs in a list.

        A column that exists with the same type and nullability is kept.

        Args:
            default: value of the column in existing rows, and in new rows without a value; v3.
            allow_incompatible: whether the column may be required although existing rows have no value.
        Raises:
            AlreadyExistsError: another column has the name.
            InvalidInputError: a required column without a default, a default before v3, an unknown type, a name of a
                metadata column.
            NotFoundError: no such struct, or the position names an unknown column.
        """
        parent, leaf = self._split(name)
        new = self._new_field(name, leaf, type_, doc=doc, required=required, default=default)
        there = next((item for item in self._siblings(parent) if item.name == leaf), None)
        if there is not None:
            check_same(name, there, new)
            return
        if new.required and new.initial_default is None and not allow_incompatible:
            raise InvalidInputError(
                f"column '{name}' cannot be required: existing rows have no value for it; make it optional, or "
                f"give it a default (format version 3)"
            )
        if parent is None:
            check_column_name(leaf)
        field_id = self._next_id()
        new = replace(new, id=field_id, type=fresh_type(new.type, self._next_id))
        self._edit_struct(parent, lambda fields: (*fields, new))
        if position is not None:
            self.move(name, position)

    def drop_column(self, name: str) -> None:
        """Drop a column, unless it was dropped before.

        Raises:
            NotFoundError: the column never existed, or has another name now.
            InvalidInputError: it identifies rows, is the last one, or is the element of a list or a part of a map.
        """
        found = self._find(name)
        if found is None:
            self._check_was_dropped(name)
            return
        self._check_struct_member(found, "dropped")
        below = {item.id for item in t.walk_fields((found,))}
        for field_id in self.schema.identifier_field_ids:
            if field_id in below:
                raise InvalidInputError(
                    f"column '{name}' cannot be dropped: '{self.schema.find_name(field_id)}' identifies rows; change "
                    f"the identifier fields first"
                )
        parent = self._parent(found)
        if len(self._siblings(parent)) == 1:
            around = "the table" if parent is None else f"struct '{self.schema.find_name(parent.id)}'"
            raise InvalidInputError(f"column '{name}' cannot be dropped: it is the last one of {around}")
        self._edit_struct(parent, lambda fields: tuple(item for item in fields if item.id != found.id))

    def _check_was_dropped(self, name: str) -> None:
        earlier = self._earlier_ids(name)
        for field_id in earlier:
            now = self.schema.find_name(field_id)
            if now is not None:
                raise NotFoundError(f"no column '{name}': it is called '{now}' now")
        if not earlier:
            raise self.schema.no_column(name)

    # --- columns that change ---

    def rename_column(self, name: str, to: str) -> None:
        """Rename a column, or a field of a struct, unless it has this name already.

        Args:
            to: the new name of the field, with or without the name of its struct.
        Raises:
            NotFoundError: no such column.
            AlreadyExistsError: another column has the new name.
        """
        leaf = new_leaf(name, to)
        found = self._find(name)
        if found is None:
            if any(self._leaf(field_id) == leaf for field_id in self._earlier_ids(name)):
                return
            raise self.schema.no_column(name)
        if found.name == leaf:
            return
        self._check_struct_member(found, "renamed")
        if any(item.name == leaf for item in self._siblings(self._parent(found))):
            raise AlreadyExistsError(f"column '{name}' cannot be renamed to '{leaf}': there is a column of this name")
        if self._parent(found) is None:
            check_column_name(leaf)
        self._edit_field(found, name=leaf)

    def move(self, name: str, position: Position) -> None:
        """Move a column within its struct; raises NotFoundError if the column or the other one does not exist."""
        found = self._require(name)
        self._check_struct_member(found, "moved")
        parent = self._parent(found)
        others = [item for item in self._siblings(parent) if item.id != found.id]
        index = 0
        if position.where != "first":
            sibling = self._sibling(position.other, parent, name)
            if sibling.id == found.id:
                raise InvalidInputError(f"column '{name}' cannot be moved {position.where} itself")
            index = [item.id for item in others].index(sibling.id) + (position.where == "after")
        self._edit_struct(parent, lambda _: (*others[:index], found, *others[index:]))

    def change_type(self, name: str, type_: str | t.IcebergType) -> None:
        """Promote a column to a wider type.

        Raises:
            NotFoundError: no such column.
            InvalidInputError: the format version does not allow the promotion, or it would change partition values.
        """
        found = self._require(name)
        new = parse_type(name, type_)
        if same_shape(found.type, new):
            return
        if not is_promotion(found.type, new, self.format_version):
            hint = what_may_become(found.type, self.format_version)
            if t.child_fields(found.type):
                hint = "fields of nested types are changed one by one"
            raise InvalidInputError(f"column '{name}' cannot change from {found.type} to {new}: {hint}")
        self._promote(found, fresh_type(new, self._next_id))

    def _promote(self, found: t.NestedField, new: t.IcebergType) -> None:
        name = self.schema.find_name(found.id) or found.name
        self._check_evolvable(found)
        sources = (
            field
            for spec in self._specs
            for field in spec.fields
            if found.id in (field.source_ids or (field.source_id,))
        )
        check_partitions(name, found.type, new, sources)
        self._edit_field(
            found,
            type=new,
            initial_default=promote_default(found.type, new, found.initial_default),
            write_default=promote_default(found.type, new, found.write_default),
        )

    def make_optional(self, name: str) -> None:
        """Allow nulls in a column."""
        found = self._require(name)
        if found.required:
            self._check_evolvable(found)
            self._edit_field(found, required=False)

    def make_required(self, name: str, *, allow_incompatible: bool = False) -> None:
        """Forbid nulls in a column; raises InvalidInputError without `allow_incompatible`: rows may have nulls."""
        found = self._require(name)
        if found.required:
            return
        self._check_evolvable(found)
        if not allow_incompatible:
            raise InvalidInputError(
                f"column '{name}' cannot become required: existing rows may have nulls; if you know that they "
                f"have none, set 'allow_incompatible: true'"
            )
        self._edit_field(found, required=True)

    def set_doc(self, name: str, doc: str | None) -> None:
        """Set the comment of a column; None removes it."""
        found = self._require(name)
        self._check_struct_member(found, "described")
        self._edit_field(found, doc=doc)

    def set_default(self, name: str, default: Any) -> None:
        """Set the value of new rows without a value; existing rows keep theirs. None removes the default.

        Raises:
            InvalidInputError: not a value of the column's type, or before v3.
        """
        found = self._require(name)
        self._check_struct_member(found, "given a default")
        self._edit_field(found, write_default=self._default(name, found.type, default))

    def set_identifier_fields(self, names: Iterable[str]) -> None:
        """Set the columns that identify a row.

        Raises:
            NotFoundError: no such column.
            InvalidInputError: a column may be null, is a float, or is inside a list or map.
        """
        ids = tuple(self._require(name).id for name in names)
        self.schema = replace(self.schema, identifier_field_ids=ids)

    def union_by_name(self, other: Schema) -> None:
        """Add the new columns of another schema, and promote columns to its wider types; nothing is dropped.

        New columns are optional, and columns that are optional in the other schema become optional.

        Raises:
            InvalidInputError: a column has two types, of which neither can be promoted to the other; a new one whose
                name differs by case alone from another one of its struct.
        """
        self._union(None, other.fields, "")

    def _union(self, parent: t.NestedField | None, wanted: Sequence[t.NestedField], prefix: str) -> None:
        for item in wanted:
            name = f"{prefix}{item.name}"
            known = {sibling.name: sibling for sibling in self._siblings(parent)}
            if item.name in known:
                self._union_field(known[item.name].id, item, name)
            else:
                if parent is None:
                    check_column_name(item.name)
                # Differs from Java: it adds one beside the other, which Spark, Hive and DuckDB take for one.
                check_case(prefix, item, self._siblings(parent))
                own_id, type_ = self._next_id(), fresh_type(item.type, self._next_id)
                new = t.NestedField(id=own_id, name=item.name, type=type_, doc=item.doc)
                self._edit_struct(parent, lambda fields, new=new: (*fields, new))  # type: ignore[misc]
            if parent is not None:
                parent = self.schema.fields_by_id[parent.id]

    def _union_field(self, field_id: int, wanted: t.NestedField, name: str) -> None:
        found = self.schema.fields_by_id[field_id]
        if found.required and not wanted.required and not self._in_map_key(found):
            self._edit_field(found, required=False)
        if wanted.doc is not None and wanted.doc != found.doc and self._is_struct_member(found):
            self._edit_field(self.schema.fields_by_id[field_id], doc=wanted.doc)
        found = self.schema.fields_by_id[field_id]
        match found.type, wanted.type:
            case t.StructType(), t.StructType():
                self._union(found, wanted.type.fields, f"{name}.")
            case (t.ListType(), t.ListType()) | (t.MapType(), t.MapType()):
                for mine, theirs in zip(t.child_fields(found.type), t.child_fields(wanted.type), strict=True):
                    self._union_field(mine.id, theirs, f"{name}.{mine.name}")
            case old, new if is_promotion(old, new, self.format_version):
                self._promote(found, fresh_type(new, self._next_id))
            case old, new if not (same_shape(old, new) or is_promotion(new, old, max(3, self.format_version))):
                raise InvalidInputError(f"column '{name}' is {old} and cannot be united with {new}")
