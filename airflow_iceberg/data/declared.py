"""The columns of a file as the file itself declares them, where Arrow's reader tells less.

Parquet marks UUIDs and variants, and has INT96, which Spark and Hive mean as instants. ORC has one type for timestamps
and for integers, and Iceberg's attributes say which is meant; without one, timestamps are microseconds, as for Iceberg
Java. The result is an Arrow schema, from which `format.schemas.arrow` makes a table's columns, whoever asks.

Spec: Appendix A, Parquet and ORC.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pyarrow as pa
import pyarrow.types as kinds

from airflow_iceberg.data.existing.parquet_types import Node, element_node, schema_nodes
from airflow_iceberg.errors import FormatError
from airflow_iceberg.format import types as t
from airflow_iceberg.format.arrow.types import EXTENSION_KEY, VARIANT, nested_fields
from airflow_iceberg.format.schemas.schema import Schema

_INSTANT = pa.timestamp("us", tz="UTC")


# --- Parquet ----------------------------------------------------------------------------------------------------------


def parquet_columns(arrow: pa.Schema, footer: bytes, location: str, *, known: Schema | None = None) -> pa.Schema:
    """Return the columns of a Parquet file.

    Args:
        arrow: the same as Arrow's reader has them.
        footer: the bytes of the file's footer.
        known: the table's columns, by name: INT96 is no instant where the table has a timestamp without zone.
    Raises:
        FormatError: the footer cannot be read.
    """
    try:
        nodes = schema_nodes(footer)
    except IndexError as error:
        raise FormatError("the footer of a Parquet file ends too early", path=location) from error
    if len(nodes) != len(arrow):
        return arrow
    struct = None if known is None else known.as_struct()
    return pa.schema(_children(list(arrow), nodes, struct), metadata=arrow.metadata)


def _children(fields: Sequence[pa.Field], nodes: Sequence[Node], struct: t.IcebergType | None) -> list[pa.Field]:
    types = {child.name: child.type for child in struct.fields} if isinstance(struct, t.StructType) else {}
    return [_of_parquet(field, node, types.get(field.name)) for field, node in zip(fields, nodes, strict=True)]


def _of_parquet(field: pa.Field, node: Node, known: t.IcebergType | None) -> pa.Field:
    kind = field.type
    if node.annotation == "VARIANT":
        stored = kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind
        return field.with_type(stored).with_metadata({**(field.metadata or {}), EXTENSION_KEY: VARIANT})
    if node.annotation == "UUID" and kinds.is_fixed_size_binary(kind):
        return field.with_type(pa.uuid())
    if node.physical == "INT96" and not isinstance(known, t.TimestampType):
        return field.with_type(_INSTANT)
    if kinds.is_struct(kind) and len(node.children) == kind.num_fields:
        return field.with_type(pa.struct(_children(list(kind), node.children, known)))
    if kinds.is_map(kind) and len(node.children) == 1 and len(node.children[0].children) == 2:
        key, value = node.children[0].children
        types = (known.key, known.value) if isinstance(known, t.MapType) else (None, None)
        inner = _of_parquet(kind.key_field, key, types[0]), _of_parquet(kind.item_field, value, types[1])
        return field.with_type(pa.map_(*inner))
    element = element_node(node)
    if element is not None:
        inner_type = known.element if isinstance(known, t.ListType) else None
        return _with_element(field, lambda item: _of_parquet(item, element, inner_type))
    return field


# --- ORC --------------------------------------------------------------------------------------------------------------

_UNIT, _LONG_TYPE, _BINARY_TYPE = b"iceberg.timestamp-unit", b"iceberg.long-type", b"iceberg.binary-type"
_LENGTH, _STRUCT_TYPE = b"iceberg.length", b"iceberg.struct-type"


def orc_columns(arrow: pa.Schema) -> pa.Schema:
    """Return the columns of an ORC file, whose attributes Arrow's reader has as metadata of the fields."""
    return pa.schema([_of_orc(field) for field in arrow])


def _of_orc(field: pa.Field) -> pa.Field:
    kind, attributes = field.type, field.metadata or {}
    if kinds.is_timestamp(kind) and attributes.get(_UNIT, b"").upper() != b"NANOS":
        return field.with_type(pa.timestamp("us", tz=kind.tz))
    if kinds.is_int64(kind) and attributes.get(_LONG_TYPE, b"").upper() == b"TIME":
        return field.with_type(pa.time64("us"))
    if kinds.is_binary(kind):
        return field.with_type(_binary_of_orc(attributes))
    if kinds.is_struct(kind) and attributes.get(_STRUCT_TYPE, b"").upper() == b"VARIANT":
        return field.with_metadata({EXTENSION_KEY: VARIANT})
    if kinds.is_struct(kind):
        return field.with_type(pa.struct([_of_orc(child) for child in kind]))
    if kinds.is_map(kind):
        return field.with_type(pa.map_(_of_orc(kind.key_field), _of_orc(kind.item_field)))
    return _with_element(field, _of_orc)


def _binary_of_orc(attributes: Mapping[bytes, bytes]) -> pa.DataType:
    name, length = attributes.get(_BINARY_TYPE, b"").upper(), attributes.get(_LENGTH, b"")
    if name == b"UUID":
        return pa.uuid()
    is_fixed = name == b"FIXED" and length.isdigit() and 0 < int(length) <= _MOST_BYTES
    return pa.binary(int(length)) if is_fixed else pa.binary()


_MOST_BYTES = (1 << 31) - 1


# --- rows -------------------------------------------------------------------------------------------------------------


def declared_rows(rows: pa.Table, declared: pa.Schema, is_chosen: Callable[[pa.DataType], bool]) -> pa.Table:
    """Return rows with the declared types that are chosen, at any depth; the others are as Arrow has read them."""
    for position, (column, field) in enumerate(zip(rows.columns, declared, strict=True)):
        wanted = _chosen(column.type, field.type, is_chosen)
        if not wanted.equals(column.type):
            rows = rows.set_column(position, rows.schema.field(position).with_type(wanted), column.cast(wanted))
    return rows


def _chosen(found: pa.DataType, declared: pa.DataType, is_chosen: Callable[[pa.DataType], bool]) -> pa.DataType:
    def changed(one: pa.Field, other: pa.Field) -> pa.Field:
        return one.with_type(_chosen(one.type, other.type, is_chosen))

    if kinds.is_struct(found) and kinds.is_struct(declared):
        return pa.struct([changed(one, other) for one, other in zip(found, declared, strict=True)])
    if kinds.is_map(found):
        return pa.map_(changed(found.key_field, declared.key_field), changed(found.item_field, declared.item_field))
    if nested_fields(found):
        field = _with_element(pa.field("", found), lambda element: changed(element, nested_fields(declared)[0]))
        return field.type
    return declared if is_chosen(declared) else found


def _with_element(field: pa.Field, change: Callable[[pa.Field], pa.Field]) -> pa.Field:
    kind = field.type
    if kinds.is_list(kind):
        return field.with_type(pa.list_(change(kind.value_field)))
    if kinds.is_large_list(kind):
        return field.with_type(pa.large_list(change(kind.value_field)))
    if kinds.is_fixed_size_list(kind):
        return field.with_type(pa.list_(change(kind.value_field), kind.list_size))
    return field
