"""What a Parquet file may hold for each type of a table: one table of forms, everything else is refused.

Readers of Iceberg look at the table's type first, and take the bytes of the file for it. So milliseconds are read as
microseconds, and bytes as text. Arrow's types are not enough to tell: it reads more forms than Iceberg has, and the
program that wrote the file may have left a schema of Arrow's in it that says something else.

INT96 is not in the specification, but Iceberg Java reads it where files of Hive and Spark join a table.

Spec: Appendix A, Parquet; Parquet's LogicalTypes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from airflow_iceberg.data.existing.footer_bytes import PHYSICAL_TYPES
from airflow_iceberg.data.thrift import BINARY, FALSE, LIST, STRUCT, TRUE, CompactReader
from airflow_iceberg.errors import FormatError
from airflow_iceberg.format import types as t
from airflow_iceberg.format.schemas.promotion import is_promotion

# -- the schema in a footer --------------------------------------------------------------------------------------------

_SCHEMA = 2
# Field ids of SchemaElement.
_TYPE, _LENGTH, _REPETITION, _NAME, _CHILDREN, _CONVERTED, _SCALE, _PRECISION, _LOGICAL = 1, 2, 3, 4, 5, 6, 7, 8, 10
_REPEATED = 2
_UNITS = {1: "MILLIS", 2: "MICROS", 3: "NANOS"}
# The fields of the union LogicalType that have no fields of their own.
_PLAIN = {
    **{1: "STRING", 2: "MAP", 3: "LIST", 4: "ENUM", 6: "DATE", 11: "UNKNOWN", 12: "JSON", 13: "BSON", 14: "UUID"},
    **{15: "FLOAT16", 16: "VARIANT", 17: "GEOMETRY", 18: "GEOGRAPHY"},
}
_DECIMAL, _TIME, _TIMESTAMP, _INTEGER = 5, 7, 8, 10
# Numbers of the enum ConvertedType, which older writers have; 5 is a decimal.
_CONVERTED_TYPES = {
    **{0: "STRING", 1: "MAP", 2: "MAP", 3: "LIST", 4: "ENUM", 6: "DATE", 7: "TIME(MILLIS, UTC)"},
    **{8: "TIME(MICROS, UTC)", 9: "TIMESTAMP(MILLIS, UTC)", 10: "TIMESTAMP(MICROS, UTC)"},
    **{11: "UINT(8)", 12: "UINT(16)", 13: "UINT(32)", 14: "UINT(64)", 15: "INT(8)", 16: "INT(16)", 17: "INT(32)"},
    **{18: "INT(64)", 19: "JSON", 20: "BSON", 21: "INTERVAL"},
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Node:
    """A column or a group of a Parquet schema.

    Attributes:
        physical: INT32, BYTE_ARRAY, FIXED_LEN_BYTE_ARRAY(16); "" for a group.
        annotation: the logical type, such as TIMESTAMP(MICROS, UTC) or DECIMAL(9, 2); "" for none.
        decimal: precision and scale of a decimal.
    """

    name: str = ""
    physical: str = ""
    annotation: str = ""
    decimal: tuple[int, int] | None = None
    is_repeated: bool = False
    is_required: bool = False
    children: tuple[Node, ...] = ()

    @property
    def form(self) -> str:
        """How values are stored, for tables and messages."""
        return " ".join(part for part in (self.physical, self.annotation) if part) or "a group without annotation"


def schema_nodes(footer: bytes) -> tuple[Node, ...]:
    """Return the columns of a file, by the bytes of its footer.

    Raises:
        FormatError, IndexError: the bytes are no footer.
    """
    reader = CompactReader(footer)
    for field_id, kind in reader.fields():
        if field_id == _SCHEMA and kind == LIST:
            size, item = reader.list_header()
            if item != STRUCT or not size:
                raise FormatError("the footer of a Parquet file has no schema")
            elements = iter([_element(reader) for _ in range(size)])
            return _tree(elements, depth=0).children
        reader.skip(kind)
    raise FormatError("the footer of a Parquet file has no schema")


def _tree(elements: Iterator[tuple[dict[str, Any], int]], *, depth: int) -> Node:
    found = next(elements, None)
    if found is None or depth > _MOST_LEVELS:
        raise FormatError("the schema in the footer of a Parquet file has other numbers of columns than it says")
    values, count = found
    return Node(**values, children=tuple([_tree(elements, depth=depth + 1) for _ in range(count)]))


_MOST_LEVELS = 200


def _element(reader: CompactReader) -> tuple[dict[str, Any], int]:
    """Return the values of a node but for its children, and their number."""
    numbers: dict[int, int] = {}
    name, logical, decimal = "", "", None
    for field_id, kind in reader.fields():
        if field_id == _NAME and kind == BINARY:
            name = reader.binary().decode("utf-8", "replace")
        elif field_id == _LOGICAL and kind == STRUCT:
            logical, decimal = _logical(reader)
        elif field_id in (_TYPE, _LENGTH, _REPETITION, _CHILDREN, _CONVERTED, _SCALE, _PRECISION):
            numbers[field_id] = reader.integer()
        else:
            reader.skip(kind)
    physical = PHYSICAL_TYPES.get(numbers.get(_TYPE), "") if _TYPE in numbers else ""
    if physical == "FIXED_LEN_BYTE_ARRAY":
        physical = f"{physical}({numbers.get(_LENGTH, 0)})"
    if not logical and _CONVERTED in numbers:
        if numbers[_CONVERTED] == _DECIMAL:
            decimal = numbers.get(_PRECISION, 0), numbers.get(_SCALE, 0)
        logical = "" if decimal else _CONVERTED_TYPES.get(numbers[_CONVERTED], f"type {numbers[_CONVERTED]}")
    if decimal is not None:
        logical = f"DECIMAL({decimal[0]}, {decimal[1]})"
    values = {
        "name": name,
        "physical": physical,
        "annotation": logical,
        "decimal": decimal,
        "is_repeated": numbers.get(_REPETITION) == _REPEATED,
        "is_required": numbers.get(_REPETITION) == 0,
    }
    return values, max(numbers.get(_CHILDREN, 0), 0)


def _logical(reader: CompactReader) -> tuple[str, tuple[int, int] | None]:
    """Return the text of a logical type, and precision and scale of a decimal."""
    text, decimal = "", None
    for field_id, kind in reader.fields():
        if kind != STRUCT:
            reader.skip(kind)
            continue
        values, unit = _members(reader)
        text = _PLAIN.get(field_id, f"logical type {field_id}")
        if field_id == _DECIMAL:
            decimal = int(values.get(2, 0)), int(values.get(1, 0))
        elif field_id in (_TIME, _TIMESTAMP):
            zone = ", UTC" if values.get(1) else ""
            text = f"{'TIME' if field_id == _TIME else 'TIMESTAMP'}({_UNITS.get(unit, '?')}{zone})"
        elif field_id == _INTEGER:
            text = f"{'INT' if values.get(2) else 'UINT'}({values.get(1, 0)})"
    return text, decimal


def _members(reader: CompactReader) -> tuple[dict[int, int | bool], int]:
    """Return the numbers and truth values of a struct, and the number of the field that is set in a union in it."""
    values: dict[int, int | bool] = {}
    unit = 0
    for field_id, kind in reader.fields():
        if kind in (TRUE, FALSE):
            values[field_id] = kind == TRUE
        elif kind == STRUCT:
            for inner, inner_kind in reader.fields():
                unit = inner
                reader.skip(inner_kind)
        elif kind == _BYTE:
            values[field_id] = reader.byte()
        elif kind in _INTEGERS:
            values[field_id] = reader.integer()
        else:
            reader.skip(kind)
    return values, unit


_BYTE, _INTEGERS = 3, (4, 5, 6)


# -- the table of forms ------------------------------------------------------------------------------------------------

_FORMS: Mapping[type[t.IcebergType], tuple[str, ...]] = {
    t.BooleanType: ("BOOLEAN",),
    t.IntegerType: ("INT32", "INT32 INT(32)", "INT32 INT(8)", "INT32 INT(16)"),
    # Not of an annotated int: Iceberg Java's vectorized reader fails on its promotion.
    t.LongType: ("INT64", "INT64 INT(64)", "INT32"),
    t.FloatType: ("FLOAT",),
    t.DoubleType: ("DOUBLE", "FLOAT"),
    t.DateType: ("INT32 DATE",),
    # A time of day has no zone: the specification has none, and old writers say UTC.
    t.TimeType: ("INT64 TIME(MICROS)", "INT64 TIME(MICROS, UTC)"),
    t.TimestampType: ("INT64 TIMESTAMP(MICROS)", "INT96"),
    t.TimestamptzType: ("INT64 TIMESTAMP(MICROS, UTC)", "INT96"),
    t.TimestampNsType: ("INT64 TIMESTAMP(NANOS)",),
    t.TimestamptzNsType: ("INT64 TIMESTAMP(NANOS, UTC)",),
    t.StringType: ("BYTE_ARRAY STRING",),
    t.UUIDType: ("FIXED_LEN_BYTE_ARRAY(16) UUID",),
    t.BinaryType: ("BYTE_ARRAY",),
}
_MOST_DIGITS = {"INT32": 9, "INT64": 18}


def forms_of(type_: t.IcebergType, format_version: int) -> tuple[str, ...]:
    """Return the forms in which a file may hold a type without fields of its own, the type's own form first."""
    if isinstance(type_, t.FixedType):
        return (f"FIXED_LEN_BYTE_ARRAY({type_.length})",)
    if isinstance(type_, t.DecimalType):
        text = f"DECIMAL({type_.precision}, {type_.scale})"
        return *(f"{name} {text}" for name, most in _MOST_DIGITS.items() if type_.precision <= most), f"fixed {text}"
    found = _FORMS.get(type(type_), ())
    dates = ("INT32 DATE",) if is_promotion(t.DateType(), type_, format_version) else ()
    return (*found, *(form for form in dates if form not in found))


def fits(node: Node, type_: t.IcebergType, format_version: int) -> bool:
    """Return whether a file's column may hold the values of a type without fields of its own."""
    if isinstance(type_, t.DecimalType):
        return _fits_decimal(node, type_)
    return not node.children and node.form in forms_of(type_, format_version)


def _fits_decimal(node: Node, type_: t.DecimalType) -> bool:
    if node.decimal is None or node.annotation != f"DECIMAL({node.decimal[0]}, {node.decimal[1]})":
        return False
    precision, scale = node.decimal
    has_room = node.physical.startswith("FIXED_LEN_BYTE_ARRAY(") or precision <= _MOST_DIGITS.get(node.physical, 0)
    return has_room and 0 < precision <= type_.precision and scale == type_.scale


def problem_of_group(node: Node, type_: t.IcebergType) -> str:
    """Return what is wrong with the group of a struct, a list, a map or a variant; "" for nothing."""
    expected = {t.ListType: "LIST", t.MapType: "MAP", t.VariantType: "VARIANT"}.get(type(type_), "")
    if node.is_repeated:
        return "is repeated without a group of the type LIST"
    if node.annotation != expected:
        return f"is {node.form}, expected a group of the type {expected or 'struct'}"
    if isinstance(type_, t.ListType | t.MapType) and (len(node.children) != 1 or not node.children[0].is_repeated):
        return f"is a group of the type {expected} without one repeated field in it"
    if isinstance(type_, t.ListType) and _is_element(node.children[0], node):
        return "is a list of two levels, as Hive and old versions of Spark write it"
    if isinstance(type_, t.MapType):
        if len(node.children[0].children) != 2:
            return "is a group of the type MAP whose entries are not a key and a value"
        if not node.children[0].children[0].is_required:
            return "is a map whose keys are optional"
    return ""


def _is_element(repeated: Node, node: Node) -> bool:
    """Return whether the repeated field of a list is its element, by Parquet's rules for older writers."""
    return len(repeated.children) != 1 or repeated.name in ("array", f"{node.name}_tuple")


def element_node(node: Node) -> Node | None:
    """Return the element of a list, also of one of two levels; None for what is no list."""
    if node.is_repeated:
        return replace(node, is_repeated=False)
    if node.annotation != "LIST" or len(node.children) != 1 or not node.children[0].is_repeated:
        return None
    repeated = node.children[0]
    return replace(repeated, is_repeated=False) if _is_element(repeated, node) else repeated.children[0]


def below(node: Node, type_: t.IcebergType) -> Sequence[Node]:
    """Return the nodes of the fields below a group that has no problem, in the order of the file."""
    if isinstance(type_, t.ListType):
        return node.children[0].children
    if isinstance(type_, t.MapType):
        return node.children[0].children
    return node.children
