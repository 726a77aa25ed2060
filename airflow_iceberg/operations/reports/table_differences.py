"""How a table differs from what was asked for: what, where, expected, found, and what to do.

Columns are known by their names: the ids of the two schemas have nothing to do with each other. What was not asked for
is not compared: a comment that was left out, a property that only the table has, a format version that was not named, a
name of a partition field that is only its default. Not here: what follows from a difference
(`operations.create_table`), the differences of two states (`operations.history.diff`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from airflow_iceberg.errors import IcebergError
from airflow_iceberg.format import types as t
from airflow_iceberg.format.metadata.table_metadata import RESERVED_PROPERTIES, TableMetadata
from airflow_iceberg.format.partitions.spec import PartitionField, default_name
from airflow_iceberg.format.properties.known import find_property
from airflow_iceberg.format.properties.table_properties import TableProperties
from airflow_iceberg.format.schemas.promotion import is_promotion
from airflow_iceberg.format.schemas.schema import Schema
from airflow_iceberg.format.sort_orders import SortField
from airflow_iceberg.format.transforms.transform import IdentityTransform, VoidTransform
from airflow_iceberg.redaction import hide, printable

_MOST_TEXT = 300
_NONE = "none"


@dataclass(frozen=True, kw_only=True, slots=True)
class TableDifference:
    """One difference.

    Attributes:
        where: what of the table differs, "column 'point.x'".
        expected, found: what was asked for, and what the table has, as people read it.
        remedy: what to do, with the change of `alter_table` where there is one.
    """

    where: str
    expected: str
    found: str
    remedy: str

    def __str__(self) -> str:
        parts = (_cut(self.where), self.expected, self.found, self.remedy)
        where, expected, found, remedy = (" ".join(printable(part).split()) for part in parts)
        return f"{where}: expected {expected}, found {found}; {remedy}"


def table_differences(
    there: TableMetadata, asked: TableMetadata, properties: Mapping[str, str]
) -> Iterator[TableDifference]:
    """Yield where an existing table is not what was asked for.

    Args:
        asked: the table that would have been created.
        properties: the properties that were asked for; the table may have others.
    """
    columns = _Columns(there.format_version)
    yield from columns.compare(asked.schema().fields, there.schema().fields, ())
    yield from _partitioning(there, asked)
    yield from _sort_order(there, asked)
    yield from _properties(there.properties, properties)
    if TableProperties.of(properties).format_version is not None:
        yield from _format_version(there.format_version, asked.format_version)


# -- columns -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Columns:
    """The comparison of columns, and of the fields below them.

    Attributes:
        format_version: that of the table, which says which types can be widened.
    """

    format_version: int

    def compare(
        self, asked: Sequence[t.NestedField], there: Sequence[t.NestedField], above: tuple[str, ...]
    ) -> Iterator[TableDifference]:
        known, wanted = {one.name: one for one in there}, {one.name for one in asked}
        for one in asked:
            path = (*above, one.name)
            yield from self._column(path, one, known[one.name]) if one.name in known else _missing(path, one)
        for one in there:
            if one.name not in wanted:
                name = _joined((*above, one.name))
                remedy = f"name it in the schema, or drop it with {_change('drop_column', name)}"
                yield TableDifference(where=f"column {name!r}", expected=_NONE, found=_described(one), remedy=remedy)
        yield from _order([one.name for one in asked], [one.name for one in there], above)

    def _column(self, path: tuple[str, ...], asked: t.NestedField, there: t.NestedField) -> Iterator[TableDifference]:
        name = _joined(path)
        is_nested = isinstance(asked.type, t.StructType | t.ListType | t.MapType)
        if is_nested and type(asked.type) is type(there.type):
            yield from self.compare(t.child_fields(asked.type), t.child_fields(there.type), path)
        elif asked.type != there.type:
            change = _change("change_type", {"name": name, "type": _type(asked.type)})
            can_be = is_promotion(there.type, asked.type, self.format_version)
            remedy = f"widen it with {change}" if can_be else "correct the schema: this type cannot become that one"
            yield TableDifference(
                where=f"the type of column {name!r}", expected=_type(asked.type), found=_type(there.type), remedy=remedy
            )
        if asked.required != there.required:
            remedy = f"alter it with {_change('make_optional', name)}"
            if asked.required:
                change = _change("make_required", {"name": name, "allow_incompatible": True})
                remedy = f"correct the schema, or alter it with {change} if no row lacks a value"
            yield TableDifference(
                where=f"column {name!r}", expected=_presence(asked), found=_presence(there), remedy=remedy
            )
        if asked.doc is not None and asked.doc != (there.doc or ""):
            yield TableDifference(
                where=f"the comment of column {name!r}",
                expected=_cut(repr(asked.doc)),
                found=_NONE if there.doc is None else _cut(repr(there.doc)),
                remedy=f"set it with {_change('set_doc', {'name': name, 'doc': asked.doc})}",
            )


def _missing(path: tuple[str, ...], asked: t.NestedField) -> Iterator[TableDifference]:
    name = _joined(path)
    # A new column with a dot in its name is in backticks, or it would be a field.
    words: dict[str, Any] = {"name": f"`{name}`" if len(path) == 1 and "." in name else name, "type": _type(asked.type)}
    if asked.doc:
        words["doc"] = asked.doc
    if asked.required:
        words |= {"required": True, "allow_incompatible": True}
    condition = " if the table has no rows, or let it be optional" if asked.required else ""
    yield TableDifference(
        where=f"column {name!r}",
        expected=_described(asked),
        found=_NONE,
        remedy=f"add it with {_change('add_column', words)}{condition}",
    )


def _order(asked: Sequence[str], there: Sequence[str], above: tuple[str, ...]) -> Iterator[TableDifference]:
    both = set(asked) & set(there)
    wanted, found = [name for name in asked if name in both], [name for name in there if name in both]
    if wanted == found:
        return
    at = next(number for number, name in enumerate(wanted) if name != found[number])
    moved: dict[str, Any] = {"name": _joined((*above, wanted[at]))}
    moved |= {"after": _joined((*above, wanted[at - 1]))} if at else {"first": True}
    yield TableDifference(
        where=f"the order of the fields of {_joined(above)!r}" if above else "the order of the columns",
        expected=_cut(", ".join(wanted)),
        found=_cut(", ".join(found)),
        remedy=f"move them, beginning with {_change('move_column', moved)}",
    )


def _presence(column: t.NestedField) -> str:
    return "required" if column.required else "optional"


def _described(column: t.NestedField) -> str:
    return f"{_type(column.type)}{' not null' if column.required else ''}"


def _type(kind: t.IcebergType) -> str:
    """Return a type as people write it, without the ids of its fields."""
    return _cut(_spelled(kind))


def _spelled(kind: t.IcebergType) -> str:
    def part(child: t.NestedField) -> str:
        return f"{_spelled(child.type)}{' not null' if child.required else ''}"

    if isinstance(kind, t.StructType):
        return f"struct<{', '.join(f'{_quoted(child.name)}: {part(child)}' for child in kind.fields)}>"
    if isinstance(kind, t.ListType):
        return f"list<{part(kind.element_field)}>"
    if isinstance(kind, t.MapType):
        return f"map<{_spelled(kind.key)}, {part(kind.value_field)}>"
    return str(kind)


# -- partitioning and order --------------------------------------------------------------------------------------------


def _partitioning(there: TableMetadata, asked: TableMetadata) -> Iterator[TableDifference]:
    wanted, found = _partitions(asked), _partitions(there)
    if there.format_version == 1:
        # Its fields keep their places for ever: those that were removed are void.
        wanted, found = (sorted(each, key=lambda one: one.content) for each in (wanted, found))
    if [one.content for one in wanted] != [one.content for one in found]:
        remedy = f"alter it with {_change('set_partitioning', [one.text for one in wanted])}"
    else:
        other = [(one, two) for one, two in zip(wanted, found, strict=True) if one.name not in (None, two.given)]
        if not other:
            return
        names = {"from": other[0][1].given, "to": other[0][0].given}
        remedy = f"rename it with {_change('rename_partition_field', names)}"
    yield TableDifference(
        where="the partitioning",
        expected=_cut(", ".join(one.text for one in wanted)) or _NONE,
        found=_cut(", ".join(one.text for one in found)) or _NONE,
        remedy=remedy,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class _Partition:
    """A partition field, whatever its ids.

    Attributes:
        content: the transform, and the names of its columns.
        given: the name of the field.
        name: the same; None if it is the default, which nobody has asked for.
        text: the field as people write it.
    """

    content: tuple[str, ...]
    given: str
    text: str
    name: str | None = None


def _partitions(metadata: TableMetadata) -> list[_Partition]:
    fields = [one for one in metadata.spec().fields if not isinstance(one.transform, VoidTransform)]
    return [_partition(one, metadata.schema()) for one in fields]


def _partition(one: PartitionField, schema: Schema) -> _Partition:
    column = schema.find_name(one.source_id)
    is_default = column is not None and one.name == default_name(one.transform, column)
    term = _term(one, schema)
    return _Partition(
        content=_content(one, schema),
        given=one.name,
        text=term if is_default else f"{term} as {_quoted(one.name)}",
        name=None if is_default else one.name,
    )


def _sort_order(there: TableMetadata, asked: TableMetadata) -> Iterator[TableDifference]:
    wanted, found = ([_sort_key(one, each.schema()) for one in each.sort_order().fields] for each in (asked, there))
    if wanted != found:
        yield TableDifference(
            where="the sort order",
            expected=_cut(", ".join(wanted)) or _NONE,
            found=_cut(", ".join(found)) or _NONE,
            remedy=f"alter it with {_change('set_sort_order', wanted)}",
        )


def _sort_key(one: SortField, schema: Schema) -> str:
    return f"{_term(one, schema)} {one.direction} {one.null_order.replace('-', ' ')}"


def _content(one: PartitionField | SortField, schema: Schema) -> tuple[str, ...]:
    return str(one.transform), *(schema.find_name(source) or "" for source in one.source_ids or (one.source_id,))


def _term(one: PartitionField | SortField, schema: Schema) -> str:
    """Return a transform and its columns as people write them: `bucket(16, id)`."""
    known = [schema.find_name(source) for source in one.source_ids or (one.source_id,)]
    names = ", ".join("a dropped column" if name is None else _column_of_term(name) for name in known)
    if isinstance(one.transform, IdentityTransform):
        return names
    with_number = re.fullmatch(r"(\w+)\[(\d+)\]", str(one.transform))
    return f"{with_number[1]}({with_number[2]}, {names})" if with_number else f"{one.transform}({names})"


def _column_of_term(name: str) -> str:
    return name if re.fullmatch(r"[\w.]+", name) else _quoted(name)


# -- properties and format version -------------------------------------------------------------------------------------


def _properties(there: Mapping[str, str], asked: Mapping[str, str]) -> Iterator[TableDifference]:
    for name, text in asked.items():
        found = there.get(name)
        if name in RESERVED_PROPERTIES or (found is not None and _is_same(name, text, found)):
            continue
        yield TableDifference(
            where=f"property {name!r}",
            expected=_value(name, text),
            found="no such property" if found is None else _value(name, found),
            remedy=f"set it with {_change('set_properties', {name: hide(name, text)})}, or leave it out",
        )


def _is_same(name: str, text: str, found: str) -> bool:
    """Whether two texts are one value of a property; those of an unknown one are the same if they are equal."""
    known = find_property(name)
    if text == found or known is None:
        return text == found
    try:
        value = known.check(name, text)
        return value is not None and bool(value == known.check(name, found))
    except IcebergError:
        return False


def _value(name: str, text: str) -> str:
    return _cut(repr(hide(name, text)))


def _format_version(there: int, asked: int) -> Iterator[TableDifference]:
    if there != asked:
        remedy = f"ask for format-version {there}, since no table becomes older"
        if asked > there:
            remedy = f"upgrade it with {_change('upgrade_format_version', asked)}"
        yield TableDifference(where="the format version", expected=str(asked), found=str(there), remedy=remedy)


# -- texts -------------------------------------------------------------------------------------------------------------


def _change(kind: str, words: Any) -> str:
    """Return a change of `alter_table`, as it is written in a DAG or a file."""
    text = json.dumps({kind: words}, ensure_ascii=False)
    return text if len(text) <= _MOST_TEXT else f"{kind} of alter_table"


def _joined(path: tuple[str, ...]) -> str:
    return ".".join(path)


def _quoted(name: str) -> str:
    return name if re.fullmatch(r"\w+", name) else "`" + name.replace("`", "``") + "`"


def _cut(text: str) -> str:
    return text if len(text) <= _MOST_TEXT else f"{text[:_MOST_TEXT]}…"
