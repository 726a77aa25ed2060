"""The value of a field that rows do not have: its default, or null.

One rule for rows that are read (`initial-default`) and for rows that are written (`write-default`). Not here: the value
of an identity partition, which comes before a default when a file is read (`data.read.columns`).

Spec: Default values. The default of a struct is an empty one, in which the defaults of its fields apply.
"""

from airflow_iceberg.format import types as t
from airflow_iceberg.format.values.json import from_json


def initial_default(field: t.NestedField) -> t.Value:
    """Return the value of a field in rows that were written before it was added; None for null.

    Raises:
        FormatError: the default is no value of the field's type.
    """
    return _default(field, "initial-default")


def write_default(field: t.NestedField) -> t.Value:
    """Return the value of a field in new rows that do not have it, None for null; errors as `initial_default`."""
    return _default(field, "write-default")


def without_value(field: t.NestedField, value: t.Value, prefix: str = "") -> str | None:
    """Return the full name of a required field that is null in a value of `field`, itself or below; None for none."""
    name = f"{prefix}{field.name}"
    if value is None:
        return name if field.required else None
    if isinstance(field.type, t.StructType):
        parts = zip(field.type.fields, value, strict=True)
        return next(filter(None, (without_value(child, part, f"{name}.") for child, part in parts)), None)
    return None


def _default(field: t.NestedField, which: str) -> t.Value:
    json = field.initial_default if which == "initial-default" else field.write_default
    if json is not None and isinstance(field.type, t.StructType):
        return tuple(_default(child, which) for child in field.type.fields)
    return from_json(field.type, json, where=f"{which} of column '{field.name}'")
