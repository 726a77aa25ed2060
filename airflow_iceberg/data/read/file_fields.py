"""The fields of a data file: their ids, positions and leaf columns, and which of them a reader needs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import pyarrow as pa
import pyarrow.types as kinds

from airflow_iceberg.errors import FormatError, UnsupportedError
from airflow_iceberg.format.arrow.types import FIELD_ID_KEY, read_field_id
from airflow_iceberg.format.properties.table_properties import TableProperties
from airflow_iceberg.format.schemas.name_mapping import MappedField, read_name_mapping
from airflow_iceberg.format.types import ListType, MapType, NestedField, StructType, UnknownType

_ORC_ID_KEY = b"iceberg.id"


@dataclass(frozen=True, kw_only=True, slots=True)
class FileField:
    """A field of a file's schema.

    Attributes:
        field_id: the id in the file or in the name mapping; None for none.
        type: the Arrow type, or the storage type of an extension type.
        position: the index among its siblings.
        leaf: the index of its first leaf column among all of the file.
        children: the fields of a struct, the element of a list, or key and value of a map.
        is_mapped: whether the id comes from the name mapping. The id is None if the partition answers for the column.
    """

    field_id: int | None
    name: str
    type: pa.DataType
    position: int
    leaf: int
    children: tuple[FileField, ...] = ()
    is_mapped: bool = False

    @property
    def leaves(self) -> range:
        """The leaf columns below the field."""
        return range(self.leaf, self.children[-1].leaves.stop if self.children else self.leaf + 1)


def file_fields(
    schema: pa.Schema, name_mapping: str | None = None, constants: Collection[int] = (), *, path: str | None = None
) -> tuple[FileField, ...]:
    """Return the columns of a file, or of a batch of some of its columns, with their field ids.

    Args:
        name_mapping: a JSON document with ids for columns without one, by name.
        constants: the ids of columns whose value is that of the file's partition, if the file has no id for them: they
            are not among the columns that are found by id.
        path: the file, for errors.
    Raises:
        UnsupportedError: the file has no ids and there is no mapping.
        FormatError: the mapping is malformed, or the id of a column is no number.
    """
    mapping = _read_mapping(name_mapping)
    try:
        fields = _children(list(schema), mapping, 0)
    except ValueError as error:
        raise FormatError(f"write the file again, with right ids or without any: {error}", path=path) from error
    if fields and not any(field.field_id is not None for field in walk(fields)):
        raise UnsupportedError(
            "a data file has no field ids, and nothing in it is named by the table's property "
            f"'{TableProperties.name_mapping}'; set that property to say which column is which"
        )
    return tuple(_without_constants(field, constants) for field in fields) if constants else fields


def _without_constants(field: FileField, constants: Collection[int]) -> FileField:
    """Return a field without the ids that come from the name mapping and stand for values of the partition.

    Spec: Column Projection: the value of an identity partition comes before the name mapping. Files of Hive may have
    the columns that their folders name, with values that nobody reads.
    """
    children = tuple(_without_constants(child, constants) for child in field.children)
    is_constant = field.is_mapped and field.field_id in constants
    return replace(field, children=children, field_id=None if is_constant else field.field_id)


def walk(fields: Iterable[FileField]) -> Iterator[FileField]:
    """Yield fields and those below them, parents first."""
    for field in fields:
        yield field
        yield from walk(field.children)


def _children(fields: Sequence[pa.Field], mapping: _Names, leaf: int) -> tuple[FileField, ...]:
    found = []
    for position, field in enumerate(fields):
        child = _file_field(field, position, mapping, leaf)
        leaf = child.leaves.stop
        found.append(child)
    return tuple(found)


def _file_field(field: pa.Field, position: int, mapping: _Names, leaf: int, *, name: str | None = None) -> FileField:
    name = field.name if name is None else name
    mapped_id, below = mapping.get(name, (None, {}))
    field_id = _own_id(field)
    kind = field.type.storage_type if hasattr(field.type, "storage_type") else field.type
    return FileField(
        field_id=mapped_id if field_id is None else field_id,
        name=name,
        type=kind,
        position=position,
        leaf=leaf,
        children=_nested(kind, below, leaf),
        is_mapped=field_id is None and mapped_id is not None,
    )


def _nested(kind: pa.DataType, mapping: _Names, leaf: int) -> tuple[FileField, ...]:
    if kinds.is_struct(kind):
        return _children(list(kind.fields), mapping, leaf)
    if kinds.is_map(kind):
        key = _file_field(kind.key_field, 0, mapping, leaf, name="key")
        return key, _file_field(kind.item_field, 1, mapping, key.leaves.stop, name="value")
    if is_list(kind):
        return (_file_field(kind.value_field, 0, mapping, leaf, name="element"),)
    return ()


def is_list(kind: pa.DataType) -> bool:
    """Return whether an Arrow type is a list."""
    return bool(kinds.is_list(kind) or kinds.is_large_list(kind) or kinds.is_fixed_size_list(kind))


def _own_id(field: pa.Field) -> int | None:
    metadata = field.metadata or {}
    text = metadata.get(FIELD_ID_KEY, metadata.get(_ORC_ID_KEY))
    if text is None:
        return None
    try:
        found = read_field_id(text)
    except ValueError as error:
        raise ValueError(f"column '{field.name}' has {error}") from error
    return found if found >= 0 else None


_Names = dict[str, tuple[int | None, "_Names"]]
"""Field id and the names below, by each name that a field had."""


@lru_cache(maxsize=8)
def _read_mapping(text: str | None) -> _Names:
    return _by_name(read_name_mapping(TableProperties.name_mapping.name, text)) if text else {}


def _by_name(fields: Iterable[MappedField]) -> _Names:
    return {name: (field.field_id, _by_name(field.fields)) for field in fields for name in field.names}


def fields_by_id(fields: Iterable[FileField]) -> Mapping[int, FileField]:
    """Return the fields with an id, by their id; raises FormatError if two fields have the same."""
    found: dict[int, FileField] = {}
    for field in fields:
        if field.field_id is None:
            continue
        if field.field_id in found:
            names = f"'{found[field.field_id].name}' and '{field.name}'"
            raise FormatError(f"columns {names} have the same field id {field.field_id}")
        found[field.field_id] = field
    return found


def find_leaves(wanted: Iterable[NestedField], fields: Sequence[FileField]) -> Iterator[int]:
    """Yield the leaf columns of a file that fields need; UnsupportedError for a struct whose fields have no ids."""
    by_id = fields_by_id(fields)
    for target in wanted:
        source = by_id.get(target.id)
        if source is not None and not isinstance(target.type, UnknownType):
            yield from _needed_leaves(target, source)


def _needed_leaves(target: NestedField, source: FileField) -> Iterable[int]:
    if isinstance(target.type, StructType) and source.children:
        if not any(child.field_id is not None or child.is_mapped for child in source.children):
            # Some writers assign ids to top-level columns only. By name, another column's values might be returned.
            raise UnsupportedError(
                f"the fields of struct '{target.name}' have no field ids in a data file that has ids elsewhere"
            )
        # Without any field in common, some leaf is still needed to know where the struct is null.
        return tuple(find_leaves(target.type.fields, source.children)) or source.leaves[:1]
    if isinstance(target.type, ListType) and len(source.children) == 1:
        return _needed_leaves(target.type.element_field, source.children[0])
    if isinstance(target.type, MapType) and len(source.children) == 2:
        # Maps are read whole; their fields are checked here.
        for field, child in zip((target.type.key_field, target.type.value_field), source.children, strict=True):
            _needed_leaves(field, child)
    return source.leaves
