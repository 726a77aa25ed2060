"""Whether the columns of an existing file are those of the table: types, ids and names.

Legal are equal types and the promotions of the specification, which every reader of Iceberg knows; and of a Parquet
file only the forms in which the specification stores them (`parquet_types`). Columns that the table does not have are
ignored, as by Iceberg Java; a column that may be one of the table's under another name, or by another id, is an error,
since it would be read as null.

Spec: Column Projection, Schema Evolution, Name Mapping Serialization.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import NoReturn

import pyarrow as pa
import pyarrow.types as kinds

from airflow_iceberg.data.existing.parquet_types import Node, below, fits, forms_of, problem_of_group
from airflow_iceberg.data.existing.target import Target, UnfitFileError
from airflow_iceberg.data.read.columns import is_geo, may_become
from airflow_iceberg.data.read.file_fields import FileField, fields_by_id, find_leaves, is_list, walk
from airflow_iceberg.data.variant_shredding import check_variant_columns
from airflow_iceberg.errors import FormatError, InvalidInputError, UnsupportedError
from airflow_iceberg.format import types as t
from airflow_iceberg.format.metadata_columns import METADATA_IDS
from airflow_iceberg.format.names import fold
from airflow_iceberg.format.properties.table_properties import TableProperties
from airflow_iceberg.format.schemas.promotion import is_promotion

_NANOS = (t.TimestampNsType, t.TimestamptzNsType)
_ZONED = (t.TimestamptzType, t.TimestamptzNsType)


class FieldCheck:
    """Checks one file.

    Args:
        constants: the columns whose value is the same in all rows, as the file's folders say.
        unzoned: the leaf columns whose stored type does not tell whether they have a zone: INT96.
        nodes: the columns of a Parquet file as its footer has them; None for another format.
    """

    def __init__(
        self,
        location: str,
        file_format: str,
        target: Target,
        *,
        constants: Collection[int],
        unzoned: Collection[int],
        nodes: Sequence[Node] | None = None,
    ) -> None:
        self._location = location
        self._is_orc = file_format == "orc"
        self._nodes = nodes
        self._unfit: list[str] = []
        self._target = target
        self._constants = constants
        self._unzoned = unzoned

    def check(self, fields: Sequence[FileField]) -> None:
        """Check the columns of the file.

        Raises:
            UnfitFileError: one is of another type, or in a form that readers misread; names the file, the column, and
                what was expected. All else is right.
            InvalidInputError: a name, an id, or a missing column.
            FormatError, UnsupportedError: the ids are not usable.
        """
        self._check_ids(fields)
        self._check_struct(self._target.schema.fields, fields, (), self._nodes)
        if self._unfit:
            raise UnfitFileError(
                f"cannot add {self._location}: {self._unfit[0]}; nothing was committed: append its rows instead, or "
                f"set rewrite_unfit=True, which writes the rows of such files into new ones in the same commit"
            )
        tuple(find_leaves(self._target.schema.fields, fields))

    def _check_ids(self, fields: Sequence[FileField]) -> None:
        for field in walk(fields):
            if field.field_id in METADATA_IDS:
                self._refuse(
                    f"column '{field.name}' is a metadata column (field id {field.field_id}), so its rows have ids of "
                    f"another table; append its rows instead"
                )
            known = self._target.names.get(field.field_id) if field.field_id is not None else None
            if known is not None and field.name not in known:
                self._refuse(
                    f"field id {field.field_id} is column '{field.name}', and in the table "
                    f"'{self._target.schema.find_name(field.field_id or 0) or ' or '.join(sorted(known))}': it was "
                    f"written for another table; append its rows instead"
                )

    def _check_struct(
        self,
        wanted: Sequence[t.NestedField],
        fields: Sequence[FileField],
        path: tuple[str, ...],
        nodes: Sequence[Node] | None,
    ) -> None:
        by_id = fields_by_id(fields)
        ids = {field.name: field.id for field in wanted}
        for mapped in fields:
            if mapped.is_mapped and ids.get(mapped.name, mapped.field_id) != mapped.field_id:
                self._refuse_other_column(mapped, path)
        for field in wanted:
            found = by_id.get(field.id)
            if found is None:
                self._check_missing(field, fields, path)
            else:
                node = None if nodes is None else nodes[found.position]
                self._check_field(field, found, (*path, field.name), node)

    def _refuse_other_column(self, found: FileField, path: tuple[str, ...]) -> NoReturn:
        now = self._target.schema.find_name(found.field_id or 0)
        meant = "of a column that was dropped" if now is None else f"of the column that is called '{now}' now"
        self._refuse(
            f"column '{'.'.join((*path, found.name))}' of files without field ids has the values {meant}, since the "
            f"table's property '{TableProperties.name_mapping}' gives the name to field id {found.field_id}, which had "
            f"it first; append the file's rows instead"
        )

    def _check_missing(self, field: t.NestedField, fields: Sequence[FileField], path: tuple[str, ...]) -> None:
        name = ".".join((*path, field.name))
        others = self._target.schema.fields_by_id
        free = [found for found in fields if found.field_id is None or found.field_id not in others]
        for found in free:
            if found.name == field.name and found.field_id is None:
                self._refuse(
                    f"the table's property '{TableProperties.name_mapping}' does not name column '{name}', so that the "
                    f"file's column would be read as null; add it"
                )
            if found.name == field.name:
                self._refuse(
                    f"column '{name}' has field id {found.field_id} in the file and {field.id} in the table: it was "
                    f"written for another table; append its rows instead"
                )
            if fold(found.name) == fold(field.name):
                self._refuse(
                    f"the file has column '{found.name}' and the table '{name}', and names are compared with their "
                    f"case; add the name '{found.name}' to the table's property '{TableProperties.name_mapping}'"
                )
        if field.required and field.initial_default is None and field.id not in self._constants:
            self._refuse(f"column '{name}' is required in the table, and the file does not have it")

    def _check_field(self, field: t.NestedField, found: FileField, path: tuple[str, ...], node: Node | None) -> None:
        kind = found.type
        match field.type:
            case t.StructType():
                is_right = kinds.is_struct(kind)
            case t.ListType():
                is_right = is_list(kind)
            case t.MapType():
                is_right = kinds.is_map(kind)
            case t.VariantType():
                is_right = _is_variant(kind)
            case _:
                is_right = self._fits(field.type, found)
        if not is_right:
            self._wrong_type(field, found, path, node)
        elif isinstance(field.type, t.PrimitiveType):
            if node is not None and (node.is_repeated or not fits(node, field.type, self._target.format_version)):
                self._wrong_form(field, node, path)
        elif node is not None and (problem := problem_of_group(node, field.type)):
            self._unfit.append(f"column '{'.'.join(path)}' {problem}, and the table has {field.type}")
        else:
            self._check_below(field.type, found, path, None if node is None else below(node, field.type))

    def _check_below(
        self, type_: t.IcebergType, found: FileField, path: tuple[str, ...], nodes: Sequence[Node] | None
    ) -> None:
        match type_:
            case t.StructType():
                self._check_struct(type_.fields, found.children, path, nodes)
            case t.ListType():
                self._check_inner((type_.element_field,), found, path, nodes)
            case t.MapType():
                self._check_inner((type_.key_field, type_.value_field), found, path, nodes)

    def _check_inner(
        self, wanted: Sequence[t.NestedField], found: FileField, path: tuple[str, ...], nodes: Sequence[Node] | None
    ) -> None:
        for position, (field, child) in enumerate(zip(wanted, found.children, strict=True)):
            if child.field_id != field.id:
                self._refuse(
                    f"column '{'.'.join((*path, field.name))}' has no field id {field.id} in the file, and the "
                    f"table's property '{TableProperties.name_mapping}' does not name it"
                )
            self._check_field(field, child, (*path, field.name), None if nodes is None else nodes[position])

    def _fits(self, expected: t.IcebergType, found: FileField) -> bool:
        kind = found.type.value_type if kinds.is_dictionary(found.type) else found.type
        if is_geo(expected) or isinstance(expected, t.UnknownType) or not may_become(kind, expected):
            return False
        match expected:
            case t.IntegerType() | t.LongType():
                return bool(kinds.is_signed_integer(kind))
            case t.FloatType() | t.DoubleType():
                return not kinds.is_float16(kind)
            case t.DecimalType():
                return bool(kind.precision <= expected.precision)
            case t.TimeType():
                return self._is_orc or (kinds.is_time(kind) and kind.unit == "us")
            case t.TimestampType() | t.TimestamptzType() | t.TimestampNsType() | t.TimestamptzNsType():
                return self._is_same_time(expected, kind, found)
            case t.StringType() | t.BinaryType():
                return any(check(kind) for check in _TEXTS) == isinstance(expected, t.StringType)
            case t.UUIDType() | t.FixedType():
                return self._is_orc or bool(kinds.is_fixed_size_binary(kind))
        return True

    def _is_same_time(self, expected: t.IcebergType, kind: pa.DataType, found: FileField) -> bool:
        if kinds.is_date(kind):
            return is_promotion(t.DateType(), expected, self._target.format_version)
        # ORC has nanoseconds only, whatever the table's type.
        if not self._is_orc and kind.unit != ("ns" if isinstance(expected, _NANOS) else "us"):
            return False
        return found.leaf in self._unzoned or (kind.tz is not None) == isinstance(expected, _ZONED)

    def _wrong_type(self, field: t.NestedField, found: FileField, path: tuple[str, ...], node: Node | None) -> None:
        stored = f", and it is stored as {node.form}" if node is not None and not node.children else ""
        self._unfit.append(
            f"column '{'.'.join(path)}' is {found.type} in the file, expected {field.type} as in the table, or a type "
            f"that may be promoted to it{stored}"
        )

    def _wrong_form(self, field: t.NestedField, node: Node, path: tuple[str, ...]) -> None:
        stored = f"{node.form}, repeated" if node.is_repeated else node.form
        self._unfit.append(
            f"column '{'.'.join(path)}' is stored as {stored}, which readers of Iceberg misread: expected "
            f"{' or '.join(forms_of(field.type, self._target.format_version))} for {field.type}"
        )

    def _refuse(self, why: str) -> NoReturn:
        raise InvalidInputError(f"cannot add {self._location}: {why}; nothing was committed")


def _is_variant(kind: pa.DataType) -> bool:
    """Return whether a column can be read as a variant, be it shredded or not."""
    try:
        check_variant_columns(kind)
    except (FormatError, UnsupportedError):
        return False
    return True


_TEXTS = (kinds.is_string, kinds.is_large_string, kinds.is_string_view)


def leaves_by_id(fields: Sequence[FileField]) -> dict[int, FileField]:
    """Return the fields of a file by their ids, at every depth."""
    return dict(_with_ids(fields))


def _with_ids(fields: Sequence[FileField]) -> Iterator[tuple[int, FileField]]:
    return ((field.field_id, field) for field in walk(fields) if field.field_id is not None)
