"""Columns of a table as Spark knows them: a DataFrame's schema, and rows in the Arrow types that `mapInArrow` takes.

Here: Iceberg's types to Spark's, by name; pyspark is not needed for that. Not here: the way from Spark's types to
Arrow's (`jobs.spark.types`), reading (`jobs.spark.read_table`).
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from airflow_iceberg.errors import UnsupportedError
from airflow_iceberg.format.arrow.types import type_to_arrow
from airflow_iceberg.format.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    StringType,
    StructType,
    TimestampNsType,
    TimestampType,
    TimestamptzNsType,
    TimestamptzType,
    TimeType,
    UnknownType,
    UUIDType,
    VariantType,
)

if TYPE_CHECKING:
    from airflow_iceberg.format.schemas.schema import Schema

_NAMES: dict[type[IcebergType], str] = {
    BooleanType: "boolean",
    IntegerType: "int",
    LongType: "bigint",
    FloatType: "float",
    DoubleType: "double",
    DateType: "date",
    TimestampType: "timestamp_ntz",
    TimestamptzType: "timestamp",
    StringType: "string",
    UUIDType: "string",
    FixedType: "binary",
    BinaryType: "binary",
    UnknownType: "void",
}
_WHY_NOT: dict[type[IcebergType], str] = {
    TimeType: "Spark has no time of day",
    TimestampNsType: "Spark's timestamps have microseconds",
    TimestamptzNsType: "Spark's timestamps have microseconds",
}
FIRST_WITH_VARIANT = 4


def spark_ddl(schema: Schema, *, spark_version: str) -> str:
    """Return the schema of a DataFrame with these columns, as DDL; every column may be null.

    Args:
        spark_version: of the session, "3.5.9".
    Raises:
        UnsupportedError: a column whose type this Spark does not have.
    """
    major = int(spark_version.split(".", 1)[0])
    return ", ".join(f"{_quoted(field.name)} {_type_ddl(field.type, field.name, major)}" for field in schema.fields)


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _type_ddl(type_: IcebergType, where: str, major: int) -> str:
    if isinstance(type_, StructType):
        fields = [f"{_quoted(f.name)}: {_type_ddl(f.type, f'{where}.{f.name}', major)}" for f in type_.fields]
        return f"struct<{', '.join(fields)}>"
    if isinstance(type_, ListType):
        return f"array<{_type_ddl(type_.element, f'{where}.element', major)}>"
    if isinstance(type_, MapType):
        key = _type_ddl(type_.key, f"{where}.key", major)
        return f"map<{key}, {_type_ddl(type_.value, f'{where}.value', major)}>"
    if isinstance(type_, DecimalType):
        return f"decimal({type_.precision},{type_.scale})"
    if isinstance(type_, VariantType):
        if major < FIRST_WITH_VARIANT:
            raise _unsupported(where, type_, f"Spark {major} has no variants; use Spark 4")
        return "variant"
    name = _NAMES.get(type(type_))
    if name is None:
        raise _unsupported(where, type_, _WHY_NOT.get(type(type_), "it is not read yet"))
    return name


def _unsupported(where: str, type_: IcebergType, why: str) -> UnsupportedError:
    return UnsupportedError(
        f"column '{where}' is of type {type_}, which cannot be in a Spark DataFrame: {why}; select other columns"
    )


# -- rows --------------------------------------------------------------------------------------------------------------


class SparkRows:
    """Brings rows of some columns into the Arrow types that Spark expects of them.

    Spark compares types exactly, the nullability of nested fields included: all are nullable here, as in `spark_ddl`.
    """

    def __init__(self, schema: Schema) -> None:
        self._types = tuple(field.type for field in schema.fields)
        self.schema = pa.schema([pa.field(field.name, _arrow_type(field.type)) for field in schema.fields])

    def convert(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows of a batch that `data.read.file` gave for the same columns."""
        columns = [
            _converted(column, type_, item.type)
            for column, type_, item in zip(batch.columns, self._types, self.schema, strict=True)
        ]
        if not columns:  # rows without columns have a number only
            return batch
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)


def _arrow_type(type_: IcebergType) -> pa.DataType:
    if isinstance(type_, StructType):
        return pa.struct([pa.field(field.name, _arrow_type(field.type)) for field in type_.fields])
    if isinstance(type_, ListType):
        return pa.list_(pa.field("element", _arrow_type(type_.element)))
    if isinstance(type_, MapType):
        return pa.map_(_arrow_type(type_.key), _arrow_type(type_.value))
    if isinstance(type_, UUIDType):
        return pa.string()
    if isinstance(type_, FixedType):
        return pa.binary()
    if isinstance(type_, VariantType):
        # So Spark knows a variant from a struct of two binaries.
        marked = pa.field("metadata", pa.binary(), nullable=False, metadata={b"variant": b"true"})
        return pa.struct([pa.field("value", pa.binary(), nullable=False), marked])
    return type_to_arrow(type_)


def _converted(array: pa.Array, type_: IcebergType, target: pa.DataType) -> pa.Array:
    if array.type.equals(target):
        return array
    mask = array.is_null() if array.null_count else None
    if isinstance(type_, StructType):
        fields = [
            _converted(array.field(number), field.type, target.field(number).type)
            for number, field in enumerate(type_.fields)
        ]
        return pa.StructArray.from_arrays(fields, fields=list(target), mask=mask) if fields else array.cast(target)
    if isinstance(type_, ListType):
        return _list(array, _converted(array.values, type_.element, target.value_type), target)
    if isinstance(type_, MapType):
        return _map(array, type_, target)
    if isinstance(type_, VariantType):
        return pa.StructArray.from_arrays(
            [array.field("value"), array.field("metadata")], fields=list(target), mask=mask
        )
    if isinstance(type_, UUIDType):
        texts = [None if value is None else str(uuid.UUID(bytes=value)) for value in array.to_pylist()]
        return pa.array(texts, pa.string())
    return array.cast(target)


def _list(array: Any, values: pa.Array, target: pa.DataType) -> pa.Array:
    return pa.Array.from_buffers(
        target, len(array), array.buffers()[:2], null_count=-1, offset=array.offset, children=[values]
    )


def _map(array: Any, type_: MapType, target: pa.DataType) -> pa.Array:
    # `keys` and `items` are those of the whole buffer, as `values` of a list is.
    keys = _converted(array.keys, type_.key, target.key_type)
    items = _converted(array.items, type_.value, target.item_type)
    entries = pa.StructArray.from_arrays([keys, items], fields=[target.key_field, target.item_field])
    return pa.Array.from_buffers(
        target, len(array), array.buffers()[:2], null_count=-1, offset=array.offset, children=[entries]
    )
