"""Hive's words for Iceberg's types, which Glue has too.

Not here: the columns of a table (`hive.tables`, `glue.tables`).
"""

from __future__ import annotations

from airflow_iceberg.format.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    GeographyType,
    GeometryType,
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
    UUIDType,
)

_PLAIN: dict[type[IcebergType], str] = {
    BooleanType: "boolean",
    IntegerType: "int",
    LongType: "bigint",
    FloatType: "float",
    DoubleType: "double",
    DateType: "date",
    TimeType: "string",
    TimestampType: "timestamp",
    TimestampNsType: "timestamp",
    StringType: "string",
    UUIDType: "string",
    BinaryType: "binary",
    FixedType: "binary",
    GeometryType: "binary",
    GeographyType: "binary",
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
        case StructType():
            return f"struct<{','.join(f'{field.name}:{word(field.type)}' for field in type_.fields)}>"
        case ListType():
            return f"array<{word(type_.element)}>"
        case MapType():
            return f"map<{word(type_.key)},{word(type_.value)}>"
        case DecimalType():
            return f"decimal({type_.precision},{type_.scale})"
        case TimestamptzType() | TimestamptzNsType():
            return zoned
    return _PLAIN.get(type(type_), other)
