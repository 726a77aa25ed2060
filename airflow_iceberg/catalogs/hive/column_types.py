"""Hive's words for Iceberg's types, which Glue has, too."""

from __future__ import annotations

from airflow_iceberg.format import types
from airflow_iceberg.format.types import IcebergType

_PLAIN: dict[type[IcebergType], str] = {
    types.BooleanType: "boolean",
    types.IntegerType: "int",
    types.LongType: "bigint",
    types.FloatType: "float",
    types.DoubleType: "double",
    types.DateType: "date",
    types.TimeType: "string",
    types.TimestampType: "timestamp",
    types.TimestampNsType: "timestamp",
    types.StringType: "string",
    types.UUIDType: "string",
    types.BinaryType: "binary",
    types.FixedType: "binary",
    types.GeometryType: "binary",
    types.GeographyType: "binary",
}


def column_type(type_: IcebergType, *, zoned: str, other: str) -> str:
    """Return Hive's word for a type.

    Args:
        zoned: the word for times with a zone.
        other: the word for types that Hive doesn't have (unknown, variant).
    """

    def word(inner: IcebergType) -> str:
        return column_type(inner, zoned=zoned, other=other)

    match type_:
        case types.StructType():
            return f"struct<{','.join(f'{field.name}:{word(field.type)}' for field in type_.fields)}>"
        case types.ListType():
            return f"array<{word(type_.element)}>"
        case types.MapType():
            return f"map<{word(type_.key)},{word(type_.value)}>"
        case types.DecimalType():
            return f"decimal({type_.precision},{type_.scale})"
        case types.TimestamptzType() | types.TimestamptzNsType():
            return zoned
    return _PLAIN.get(type(type_), other)
