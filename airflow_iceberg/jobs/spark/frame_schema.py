"""Columns of a table as Spark knows them: a DataFrame's schema, and rows in the Arrow types that `mapInArrow` takes.

Needs no pyspark. Not here: Spark's types as Arrow's (`jobs.spark.types`), reading (`jobs.spark.read_table`).
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from airflow_iceberg.errors import UnsupportedError
from airflow_iceberg.format import types as t
from airflow_iceberg.format.arrow.types import type_to_arrow

if TYPE_CHECKING:
    from airflow_iceberg.format.schemas.schema import Schema

_NAMES: dict[type[t.IcebergType], str] = {
    t.BooleanType: "boolean",
    t.IntegerType: "int",
    t.LongType: "bigint",
    t.FloatType: "float",
    t.DoubleType: "double",
    t.DateType: "date",
    t.TimestampType: "timestamp_ntz",
    t.TimestamptzType: "timestamp",
    t.StringType: "string",
    t.UUIDType: "string",
    t.FixedType: "binary",
    t.BinaryType: "binary",
    t.UnknownType: "void",
}
_WHY_NOT: dict[type[t.IcebergType], str] = {
    t.TimeType: "Spark has no time of day",
    t.TimestampNsType: "Spark's timestamps have microseconds",
    t.TimestamptzNsType: "Spark's timestamps have microseconds",
}
FIRST_WITH_VARIANT = 4


def spark_ddl(schema: Schema, *, spark_version: str) -> str:
    """Return the schema of a DataFrame with these columns, as DDL; every column is nullable.

    Args:
        spark_version: the version of the session, e.g. "3.5.9".
    Raises:
        UnsupportedError: a column whose type this Spark does not have.
    """
    major = int(spark_version.split(".", 1)[0])
    return ", ".join(f"{_quoted(field.name)} {_type_ddl(field.type, field.name, major)}" for field in schema.fields)


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _type_ddl(type_: t.IcebergType, where: str, major: int) -> str:
    if isinstance(type_, t.StructType):
        fields = [f"{_quoted(f.name)}: {_type_ddl(f.type, f'{where}.{f.name}', major)}" for f in type_.fields]
        return f"struct<{', '.join(fields)}>"
    if isinstance(type_, t.ListType):
        return f"array<{_type_ddl(type_.element, f'{where}.element', major)}>"
    if isinstance(type_, t.MapType):
        key = _type_ddl(type_.key, f"{where}.key", major)
        return f"map<{key}, {_type_ddl(type_.value, f'{where}.value', major)}>"
    if isinstance(type_, t.DecimalType):
        return f"decimal({type_.precision},{type_.scale})"
    if isinstance(type_, t.VariantType):
        if major < FIRST_WITH_VARIANT:
            raise _unsupported(where, type_, f"Spark {major} has no variants; use Spark 4")
        return "variant"
    name = _NAMES.get(type(type_))
    if name is None:
        raise _unsupported(where, type_, _WHY_NOT.get(type(type_), "it is not read yet"))
    return name


def _unsupported(where: str, type_: t.IcebergType, why: str) -> UnsupportedError:
    return UnsupportedError(
        f"column '{where}' is of type {type_}, which cannot be in a Spark DataFrame: {why}; select other columns"
    )


# -- rows --------------------------------------------------------------------------------------------------------------


class SparkRows:
    """Converts rows to the Arrow types that Spark expects.

    Spark compares types exactly, the nullability of nested fields included: all are nullable here, as in `spark_ddl`.
    """

    def __init__(self, schema: Schema) -> None:
        self._types = tuple(field.type for field in schema.fields)
        self.schema = pa.schema([pa.field(field.name, _arrow_type(field.type)) for field in schema.fields])

    def convert(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows of a batch that `data.read.file` yielded for the same columns."""
        if not self._types:  # rows without columns: only their number is known
            return batch
        columns = map(_converted, batch.columns, self._types, self.schema.types)
        return pa.RecordBatch.from_arrays(list(columns), schema=self.schema)


def _arrow_type(type_: t.IcebergType) -> pa.DataType:
    if isinstance(type_, t.StructType):
        return pa.struct([pa.field(field.name, _arrow_type(field.type)) for field in type_.fields])
    if isinstance(type_, t.ListType):
        return pa.list_(pa.field("element", _arrow_type(type_.element)))
    if isinstance(type_, t.MapType):
        return pa.map_(_arrow_type(type_.key), _arrow_type(type_.value))
    if isinstance(type_, t.UUIDType):
        return pa.string()
    if isinstance(type_, t.FixedType):
        return pa.binary()
    if isinstance(type_, t.VariantType):
        # By this mark Spark distinguishes a variant from a struct of two binaries.
        marked = pa.field("metadata", pa.binary(), nullable=False, metadata={b"variant": b"true"})
        return pa.struct([pa.field("value", pa.binary(), nullable=False), marked])
    return type_to_arrow(type_)


def _converted(array: pa.Array, type_: t.IcebergType, target: pa.DataType) -> pa.Array:
    if array.type.equals(target):
        return array
    mask = array.is_null() if array.null_count else None
    if isinstance(type_, t.StructType):
        kinds = [field.type for field in type_.fields]
        fields = [_converted(array.field(at), kind, target.field(at).type) for at, kind in enumerate(kinds)]
        return pa.StructArray.from_arrays(fields, fields=list(target), mask=mask) if fields else array.cast(target)
    if isinstance(type_, t.ListType):
        return _with_child(array, _converted(array.values, type_.element, target.value_type), target)
    if isinstance(type_, t.MapType):
        # `keys` and `items` are of the whole buffer, as `values` of a list is.
        pairs = [
            _converted(array.keys, type_.key, target.key_type),
            _converted(array.items, type_.value, target.item_type),
        ]
        entries = pa.StructArray.from_arrays(pairs, fields=[target.key_field, target.item_field])
        return _with_child(array, entries, target)
    if isinstance(type_, t.VariantType):
        parts = [array.field("value"), array.field("metadata")]
        return pa.StructArray.from_arrays(parts, fields=list(target), mask=mask)
    if isinstance(type_, t.UUIDType):
        texts = [None if value is None else str(uuid.UUID(bytes=value)) for value in array.to_pylist()]
        return pa.array(texts, pa.string())
    return array.cast(target)


def _with_child(array: Any, child: pa.Array, target: pa.DataType) -> pa.Array:
    buffers = array.buffers()[:2]
    return pa.Array.from_buffers(target, len(array), buffers, null_count=-1, offset=array.offset, children=[child])
