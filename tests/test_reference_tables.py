"""Tables written by Iceberg Java read as Java reads them, through the public surface alone.

What is not implemented yet is listed with its reason, and must be refused: never other rows.
"""

import hashlib
import json
from typing import Any

import pyarrow as pa
import pytest

from airflow_iceberg.errors import UnsupportedError
from airflow_iceberg.plan.filters import parse_filter, to_arrow
from airflow_iceberg.spec.arrow import values_from_array
from airflow_iceberg.spec.schema import Schema
from airflow_iceberg.spec.types import (
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    ListType,
    MapType,
    StructType,
    TimestampNsType,
    TimestampType,
    TimestamptzNsType,
    TimestamptzType,
    TimeType,
    UUIDType,
    Value,
    VariantType,
)
from airflow_iceberg.spec.values import to_json
from airflow_iceberg.spec.variant import Node, decode
from airflow_iceberg.table import Table
from tests.support import golden

NOT_READ_YET = {golden.REFUSED: "format version 4"}
NAMES = sorted(golden.tables())
READABLE = [name for name in NAMES if name not in NOT_READ_YET]


def load(name: str) -> Table:
    table = golden.table(name)
    return Table.from_metadata(table.metadata_location, io=table.io)


def canonical(kind: IcebergType, value: Value) -> Any:
    """Return a value as the expected rows spell it; see the README of the reference tables."""
    if value is None:
        return None
    match kind:
        case FloatType() | DoubleType():
            special = {"inf": "Infinity", "-inf": "-Infinity", "nan": "NaN"}
            return special.get(repr(value), value)
        case StructType():
            return {child.name: canonical(child.type, item) for child, item in zip(kind.fields, value, strict=True)}
        case ListType():
            return [canonical(kind.element, item) for item in value]
        case MapType():
            items = [[canonical(kind.key, key), canonical(kind.value, item)] for key, item in value.items()]
            return sorted(items, key=lambda item: json.dumps(item[0], sort_keys=True))
        case VariantType():
            return {"$variant": of_variant(decode(*value))}
        case TimestampNsType() | TimestamptzNsType():
            return with_fraction(to_json(kind, value), 9)
        case TimestampType() | TimestamptzType() | TimeType():
            return with_fraction(to_json(kind, value), 6)
        case DecimalType() | DateType() | UUIDType():
            return to_json(kind, value)
    return value.hex() if isinstance(value, bytes) else value


def of_variant(node: Node) -> Any:
    """Return a variant's value as the expected rows spell it."""
    if isinstance(node, dict):
        return {name: of_variant(item) for name, item in node.items()}
    if isinstance(node, list):
        return [of_variant(item) for item in node]
    return canonical(node.type, node.value)


def with_fraction(text: str, digits: int) -> str:
    """Spell out all digits of a second, and leave out the zone."""
    seconds, _, fraction = text.removesuffix("+00:00").partition(".")
    seconds = f"{seconds}:00" if seconds.count(":") == 1 else seconds
    return f"{seconds}.{fraction.ljust(digits, '0')}"


def rows_of(table: pa.Table, schema: Schema) -> list[str]:
    """Return rows as sorted lines of canonical JSON."""
    columns = [
        [canonical(field.type, value) for value in values_from_array(field.type, table[field.name])]
        for field in schema.fields
    ]
    names = [field.name for field in schema.fields]
    return sorted(
        json.dumps(dict(zip(names, row, strict=True)), sort_keys=True, ensure_ascii=False, separators=(",", ":"))
        for row in zip(*columns, strict=True)
    )


def expected_rows(name: str) -> list[str]:
    return sorted(
        json.dumps(row, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
        for row in golden.table(name).expected_rows()
    )


def digest(rows: list[str]) -> str:
    return hashlib.sha256("\n".join(rows).encode()).hexdigest()


class TestRows:
    """The rows of the current snapshot."""

    @pytest.mark.parametrize("name", READABLE)
    def test_they_are_those_that_java_reads(self, name: str) -> None:
        table = load(name)
        assert rows_of(table.scan().to_arrow(), table.schema()) == expected_rows(name)

    @pytest.mark.parametrize("name", READABLE)
    def test_streamed_rows_and_their_number_are_the_same(self, name: str) -> None:
        table = load(name)
        streamed = table.scan().to_arrow_batch_reader().read_all()
        assert rows_of(streamed, table.schema()) == expected_rows(name)
        assert table.scan().count() == len(expected_rows(name))

    @pytest.mark.parametrize("name", sorted(set(NOT_READ_YET) & set(NAMES)))
    def test_what_is_not_read_yet_is_refused(self, name: str) -> None:
        with pytest.raises(UnsupportedError, match=NOT_READ_YET[name]):
            load(name).scan().to_arrow()


class TestTimeTravel:
    """The rows at each snapshot, in the schema that was current then."""

    @pytest.mark.parametrize("name", READABLE)
    def test_rows_at_each_snapshot(self, name: str) -> None:
        table = load(name)
        seen = 0
        for snapshot in golden.table(name).expected["snapshots"]:
            if "sha256" not in snapshot:
                continue
            scan = table.scan(snapshot_id=snapshot["snapshot_id"])
            rows = rows_of(scan.to_arrow(), table.metadata.schema(snapshot["schema_id"] or 0))
            assert (len(rows), digest(rows)) == (snapshot["rows"], snapshot["sha256"]), snapshot["snapshot_id"]
            seen += 1
        assert seen or not golden.table(name).expected["snapshots"]

    def test_branches_have_the_current_schema_and_tags_their_own(self) -> None:
        table = load("v2_branch_schemas")
        expected = golden.table("v2_branch_schemas").expected["ref_rows"]
        for ref in ("main", "t0", "t1", "dev/tag"):
            found = table.scan(ref=ref).to_arrow()
            snapshot = table.metadata.ref_snapshot(ref)
            assert snapshot is not None
            schema = table.schema() if ref == "main" else table.metadata.schema(snapshot.schema_id)
            assert found.column_names == expected[ref]["columns"]
            assert rows_of(found, schema) == sorted(expected[ref]["data"])


# Where we plan other files than Java, and why.
DIFFERENT_PLANS = {
    ("v2_nested", "st.inner.x is null"): "Java loses the rows whose struct is null",
    ("v2_types_spark", "d > 1"): "a file with NaN, which is above every number",
    ("v2_types_spark", "d = 0.0D"): "a file with -0.0, which equals 0.0",
    ("v2_types_spark", "not b"): "one file less: both its bounds are true",
}
PLANS = [
    (name, plan) for name in NAMES for plan in golden.table(name).expected.get("plans", ()) if name != golden.REFUSED
]
SAME_PLANS = [(name, plan) for name, plan in PLANS if (name, plan["where"]) not in DIFFERENT_PLANS]


class TestPlans:
    """Filters plan the files that Java plans, and select the rows that SQL selects."""

    @pytest.mark.parametrize(("name", "plan"), SAME_PLANS, ids=[f"{name}-{plan['where']}" for name, plan in SAME_PLANS])
    def test_the_same_files_and_a_residual_for_the_same_of_them(self, name: str, plan: dict[str, Any]) -> None:
        tasks = load(name).scan(row_filter=plan["where"]).plan_files()
        found = sorted((task.file.file_path.rsplit("/")[-1], str(task.residual) == "true") for task in tasks)
        expected = [(task["path"].rsplit("/")[-1], task["residual"] == "true") for task in plan["tasks"]]
        assert found == sorted(expected)

    @pytest.mark.parametrize(("name", "where"), [(name, plan["where"]) for name, plan in PLANS if name in READABLE])
    def test_the_rows_are_those_of_a_full_scan_filtered(self, name: str, where: str) -> None:
        table = load(name)
        schema = table.schema()
        expected = table.scan().to_arrow().filter(to_arrow(parse_filter(where, schema), schema))
        found = table.scan(row_filter=where).to_arrow()
        assert rows_of(found, schema) == rows_of(expected, schema)
        assert found.num_rows or (name, where) not in DIFFERENT_PLANS
