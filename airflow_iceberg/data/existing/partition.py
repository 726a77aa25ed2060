"""The partition values of an existing file: from the folders `name=value` that it lies in, or from its statistics.

A value of a folder is taken for identity fields only: what a transform makes of a column is written into paths for
people. The statistics prove a value where the least and the greatest value of the file have the same one, and there is
no null beside them. NaN is counted by no footer, so nothing is proved of float and double.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NoReturn

from airflow_iceberg.data.existing.target import ColumnRange, ExistingFile, Target
from airflow_iceberg.errors import InvalidInputError
from airflow_iceberg.format import types as t
from airflow_iceberg.format.names import spelled
from airflow_iceberg.format.partitions.spec import PartitionField, PartitionSpec
from airflow_iceberg.format.schemas.schema import Schema
from airflow_iceberg.format.transforms.transform import BucketTransform, IdentityTransform, VoidTransform
from airflow_iceberg.format.values.bytes import parse_literal

HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"


def folder_values(file: ExistingFile, spec: PartitionSpec, schema: Schema) -> dict[int, t.Value]:
    """Return the values that a file's folders tell, by the id of the source column; null for Hive's name of it.

    Raises:
        InvalidInputError: a value is not one of the column's type, or null for a required column; a folder that may be
            that of two columns.
    """
    found = {}
    used: dict[str, str] = {}
    names = {field.source_id: (field.name, schema.find_name(field.source_id) or field.name) for field in spec.fields}
    for field in spec.fields:
        if isinstance(field.transform, IdentityTransform):
            others = {name for number, both in names.items() if number != field.source_id for name in both}
            folder = _folder(file, names[field.source_id], others)
            if folder is None:
                continue
            other = used.setdefault(folder, field.name)
            if other != field.name:
                raise InvalidInputError(
                    f"cannot add {file.location}: folder '{folder}={file.folders[folder]}' may be column '{other}' or "
                    f"'{field.name}', which differ by case alone; nothing was committed"
                )
            found[field.source_id] = parse_folder(file.folders[folder], field, schema, file.location)
    return found


def parse_folder(text: str, field: PartitionField, schema: Schema, location: str) -> t.Value:
    """Return the value of a folder's text; see `folder_values`."""
    source = schema.fields_by_id[field.source_id]
    if text == HIVE_NULL:
        if source.required:
            raise InvalidInputError(
                f"cannot add {location}: folder '{field.name}={text}' stands for null, and column '{source.name}' is "
                f"required in the table; nothing was committed"
            )
        return None
    try:
        return parse_literal(source.type, text)
    except InvalidInputError as error:
        raise InvalidInputError(
            f"cannot add {location}: folder '{field.name}={text}' is not a value of column '{source.name}' "
            f"({source.type}): {error}; nothing was committed"
        ) from error


def _folder(file: ExistingFile, names: Sequence[str], others: Collection[str]) -> str | None:
    """Return the name of the folder of a partition field; Hive writes names in lower case.

    Args:
        names: its name and that of its column; `others` are those of other fields, whose folders are theirs.
    """
    free = [folder for folder in file.folders if folder not in others]
    for name in names:
        folder = spelled(name, free, where=f"the folders of {file.location}")
        if folder is not None:
            return folder
    return None


def partition_of(
    file: ExistingFile, target: Target, folders: Mapping[int, t.Value], ranges: Mapping[int, ColumnRange] | None
) -> tuple[t.Value, ...]:
    """Return the partition values of a file in the order of the spec's fields.

    Args:
        folders: the result of `folder_values`.
        ranges: what the footer tells of the columns that the file has, by id; None for a format without statistics.

    Raises:
        InvalidInputError: a value is not known; names the file, the column, and its least and greatest values.
    """
    return tuple(_value(file, field, target, folders, ranges) for field in target.spec.fields)


def _value(
    file: ExistingFile,
    field: PartitionField,
    target: Target,
    folders: Mapping[int, t.Value],
    ranges: Mapping[int, ColumnRange] | None,
) -> t.Value:
    known = None if ranges is None else ranges.get(field.source_id)
    if isinstance(field.transform, VoidTransform):
        return None
    if field.source_id in folders and isinstance(field.transform, IdentityTransform):
        value = folders[field.source_id]
        if known is not None:
            _check_same(file, field, target, value, known)
        return value
    if known is None:
        name = target.schema.find_name(field.source_id)
        why = (
            f"no folder of the file is named '{field.name}=…', and the file does not have column '{name}'"
            if ranges is not None
            else f"no folder of the file is named '{field.name}=…', and its format has no statistics of column '{name}'"
        )
        _refuse(file, field, why)
    return _proved(file, field, target, known)


def _proved(file: ExistingFile, field: PartitionField, target: Target, known: ColumnRange) -> t.Value:
    """Return the partition value that all rows have, by the statistics."""
    kind, name = target.schema.fields_by_id[field.source_id].type, target.schema.find_name(field.source_id)
    if known.nulls == known.values:
        return None
    if known.nulls is None:
        _refuse(file, field, f"its footer does not tell how many values of column '{name}' are null")
    if known.nulls:
        _refuse(file, field, f"column '{name}' has {known.nulls} nulls beside {known.values - known.nulls} values")
    if known.lower is None or known.upper is None:
        _refuse(file, field, f"its footer has no least and greatest value of column '{name}'")
    if isinstance(kind, t.FloatType | t.DoubleType):
        _refuse(file, field, f"column '{name}' is {kind}, of which a footer does not count NaN")
    low, high = field.transform.apply(known.lower, kind), field.transform.apply(known.upper, kind)
    is_ordered = not isinstance(field.transform, BucketTransform)
    if low != high or not (is_ordered or known.lower == known.upper):
        human = [field.transform.to_human_string(value, kind) for value in (low, high)]
        _refuse(
            file,
            field,
            f"column '{name}' has values from {_shown(known.lower, kind)} to {_shown(known.upper, kind)}, which are in "
            f"more than one partition ({human[0]} and {human[1]})",
        )
    return low


def _check_same(file: ExistingFile, field: PartitionField, target: Target, value: t.Value, known: ColumnRange) -> None:
    """Refuse a column in the file that differs from the folder: some readers would take its values."""
    kind = target.schema.fields_by_id[field.source_id].type
    if known.values == known.nulls and value is None:
        return
    is_same = value is not None and known.lower == value == known.upper and known.nulls == 0
    if not is_same:
        _refuse(
            file,
            field,
            f"its folder says {_shown(value, kind)}, and the file itself has column "
            f"'{target.schema.find_name(field.source_id)}' with values from {_shown(known.lower, kind)} to "
            f"{_shown(known.upper, kind)}",
        )


def _shown(value: t.Value, kind: t.IcebergType) -> str:
    return "null" if value is None else IdentityTransform().to_human_string(value, kind)


def _refuse(file: ExistingFile, field: PartitionField, why: str) -> NoReturn:
    raise InvalidInputError(
        f"cannot add {file.location}: its value of partition field '{field.name}' ({field.transform}) is not known: "
        f"{why}; nothing was committed"
    )
