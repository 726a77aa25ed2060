"""The type promotions of columns, and their effect on defaults and partitions.

Not here: reading old files in the new type (`data`), and the change of the schema (`evolution`).
"""

from collections.abc import Iterable
from typing import Any

from airflow_iceberg.errors import InvalidInputError
from airflow_iceberg.format import types as t
from airflow_iceberg.format.partitions.spec import PartitionField
from airflow_iceberg.format.transforms.transform import DayTransform, MonthTransform, VoidTransform, YearTransform
from airflow_iceberg.format.values import bytes as values
from airflow_iceberg.format.values.calendar import MICROS_PER_SECOND, SECONDS_PER_DAY

_NANOS_PER_MICRO = 1000


def is_promotion(old: t.IcebergType, new: t.IcebergType, format_version: int) -> bool:
    """Tell whether a type can be promoted to another one; nested and equal types cannot. Spec: Schema Evolution."""
    match old, new:
        case (t.IntegerType(), t.LongType()) | (t.FloatType(), t.DoubleType()):
            return True
        case t.DecimalType(), t.DecimalType():
            return new.precision > old.precision and new.scale == old.scale
        case (t.DateType(), t.TimestampType()) | (t.DateType(), t.TimestampNsType()):
            return format_version >= 3
        case t.UnknownType(), _:
            return format_version >= 3 and not isinstance(new, t.UnknownType)
    return False


def what_may_become(old: t.IcebergType, format_version: int) -> str:
    """Return the types that a column can be promoted to, as text for an error."""
    match old:
        case t.IntegerType():
            return "it may become long"
        case t.FloatType():
            return "it may become double"
        case t.DecimalType():
            return f"it may become a decimal of more digits and the same scale, {old.scale}"
        case t.DateType():
            promised = "timestamp or timestamp_ns"
            return f"it may become {promised}" + ("" if format_version >= 3 else " from format version 3 on")
    return "a column of this type keeps it; add a new column instead"


def promote_default(old: t.IcebergType, new: t.IcebergType, default: Any) -> Any:
    """Return the JSON form of a default after the promotion of its column; None stays None.

    It stands for the value that rows with the default already have: the default 0.1 of a float is the float nearest to
    it, which is another double than 0.1.
    """
    if default is None or not isinstance(old, t.DateType | t.FloatType):
        return default
    value = values.from_json(old, default)
    if isinstance(old, t.FloatType):
        return values.to_json(new, value)
    micros = value * SECONDS_PER_DAY * MICROS_PER_SECOND
    return values.to_json(new, micros * _NANOS_PER_MICRO if isinstance(new, t.TimestampNsType) else micros)


def check_partitions(name: str, old: t.IcebergType, new: t.IcebergType, fields: Iterable[PartitionField]) -> None:
    """Reject a promotion that would change the partition values of existing files.

    Args:
        name: name of the column.
        fields: partition fields with this source, of all specs of the table.
    Raises:
        InvalidInputError: naming the partition field.
    Spec: Schema Evolution: "Type promotion is not allowed for a field that is referenced by source-id or source-ids of
        a partition field if the partition transform would produce a different value after promoting the type".
    """
    if not isinstance(old, t.DateType):
        # Integers, decimals and floats have equal values and hashes in both types; values of unknown are null.
        return
    unchanged = (YearTransform, MonthTransform, DayTransform, VoidTransform)
    for field in fields:
        if field.source_ids or not isinstance(field.transform, unchanged):
            raise InvalidInputError(
                f"column '{name}' cannot become {new}: partition field '{field.name}' ({field.transform}) would get "
                f"other values for files that the table has"
            )
