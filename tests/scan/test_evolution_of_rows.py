"""Any sequence of changes keeps ids stable and old rows readable: compared with a model of the table."""

import datetime as dt
import decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from airflow_iceberg.errors import IcebergError
from airflow_iceberg.format.schemas.arrow import schema_to_arrow
from airflow_iceberg.format.schemas.schema import Schema
from airflow_iceberg.format.types import ListType, NestedField, StructType, TimestampType
from airflow_iceberg.table import Table
from tests.support.memory import MemoryCatalog
from tests.support.sampling import examples

WIDER = {"int": "long", "float": "double", "decimal(9, 2)": "decimal(18, 2)", "date": "timestamp"}
TYPES = ["int", "float", "decimal(9, 2)", "date", "string", "boolean", "list<int>", "struct<x: int, y: date>"]
NAMES = ["a", "b", "c", "d"]
COLUMNS = {
    "a": "int",
    "b": "string",
    "s": "struct<x: int, y: struct<z: float>>",
    "l": "list<struct<x: int, y: string>>",
}


# --- changes of what the table is at the time, and sometimes of what it is not ----------------------------------------


def a_change(draw: Any, table: Table) -> dict[str, Any]:
    """Return some change; most of them name columns and partition fields that there are."""
    known = [name for name in table.schema().names if not name.endswith("element")]
    name = draw(st.sampled_from([*known, *known, *NAMES]))
    around = draw(st.sampled_from(["", "", "s.", "s.y.", "l."]))
    fresh = around + draw(st.sampled_from(NAMES))
    found = table.schema().names.get(name)
    kind = "int" if found is None else str(table.schema().fields_by_id[found].type)
    beside = draw(st.sampled_from(known))
    fields = [field.name for field in table.spec().fields] or ["none"]
    add = {"name": fresh, "type": draw(st.sampled_from(TYPES))}
    return draw(
        st.sampled_from(
            [
                {"add_column": add | ({"first": True} if draw(st.booleans()) else {})},
                {"add_column": {"name": fresh, "type": "int", "default": draw(st.integers(-5, 5))}},
                {"drop_column": name},
                {"rename_column": {"from": name, "to": draw(st.sampled_from(NAMES))}},
                {"move_column": {"name": name, "after": beside}},
                {"change_type": {"name": name, "type": WIDER.get(kind, "int" if "<" in kind else kind)}},
                {"add_partition_field": draw(st.sampled_from([name, f"bucket(2, {name})"]))},
                {"drop_partition_field": draw(st.sampled_from(fields))},
                {"set_partitioning": draw(st.lists(st.sampled_from(known), max_size=2, unique=True))},
                {"set_sort_order": [name]},
                {"upgrade_format_version": draw(st.integers(2, 3))},
            ]
        )
    )


# --- the model: each row is what was written, by field id -------------------------------------------------------------


def a_value(type_: Any, number: int) -> Any:
    """Return a value of an Arrow type that says which row it is of."""
    if pa.types.is_struct(type_):
        return {child.name: a_value(child.type, number) for child in type_}
    if pa.types.is_list(type_):
        return [a_value(type_.value_type, number), None]
    if pa.types.is_boolean(type_):
        return bool(number % 2)
    if pa.types.is_string(type_):
        return f"row {number}"
    if pa.types.is_decimal(type_):
        return decimal.Decimal(number).scaleb(-2)
    if pa.types.is_temporal(type_):
        day = dt.date(2026, 1, 1) + dt.timedelta(days=number)
        return at_midnight(day) if pa.types.is_timestamp(type_) else day
    return float(number) if pa.types.is_floating(type_) else number


def at_midnight(day: dt.date) -> dt.datetime:
    """Return the timestamp, which has no zone, that a date becomes."""
    return dt.datetime.combine(day, dt.time())


def by_id(value: Any, type_: Any) -> Any:
    """Return a value with field ids in the place of names."""
    if isinstance(type_, StructType) and value is not None:
        return {child.id: by_id(value[child.name], child.type) for child in type_.fields}
    if isinstance(type_, ListType) and value is not None:
        return [by_id(item, type_.element) for item in value]
    return value


def by_name(value: Any, type_: Any) -> Any:
    """Return a value under the names and types of today; fields that came later have their default."""
    if value is None:
        return None
    if isinstance(type_, StructType):
        return {child.name: by_name(value.get(child.id, child.initial_default), child.type) for child in type_.fields}
    if isinstance(type_, ListType):
        return [by_name(item, type_.element) for item in value]
    if isinstance(type_, TimestampType) and not isinstance(value, dt.datetime):
        return at_midnight(value)
    return value


def append(table: Table, number: int) -> list[Any]:
    arrow = schema_to_arrow(table.schema(), with_field_ids=False)
    rows = [{column.name: a_value(column.type, number + i) for column in arrow} for i in range(2)]
    table.append(pa.Table.from_pylist(rows, schema=arrow))
    return [by_id(row, table.schema().as_struct()) for row in rows]


def names_by_id(schema: Schema) -> dict[int, str]:
    return {field_id: name for name, field_id in schema.names.items()}


def check_ids(change: dict[str, Any], before: Schema, after: Schema, ever: set[int]) -> None:
    """A field keeps its id, and the others keep their names; no id is given twice."""
    ((kind, words),) = change.items()
    old, new = names_by_id(before), names_by_id(after)
    assert not (new.keys() - old.keys()) & ever
    if kind == "add_column":
        assert old.items() <= new.items()
    elif kind == "drop_column":
        gone = before.names[words]
        assert (
            new.items() == {i: n for i, n in old.items() if i not in {gone, *below(before.fields_by_id[gone])}}.items()
        )
    elif kind == "rename_column":
        moved = before.names[words["from"]]
        moved_too = {moved, *below(before.fields_by_id[moved])}
        assert {i: n for i, n in old.items() if i not in moved_too} == {
            i: n for i, n in new.items() if i not in moved_too
        }
        assert new.keys() == old.keys()
        assert new[moved].rpartition(".")[2] == words["to"]
    else:
        assert new == old


def below(field: NestedField) -> set[int]:
    return set(Schema((field,)).fields_by_id)


def sortable(rows: list[dict[str, Any]]) -> list[str]:
    return sorted(repr(sorted(row.items())) for row in rows)


@pytest.mark.parametrize("version", [1, 2, 3])
class TestAnySequenceOfChanges:
    """Ids are never given twice, rows keep their values under whatever name, and a refused change changes nothing."""

    @pytest.mark.costly
    @pytest.mark.sample(3)
    @examples(
        25,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
    )
    @given(data=st.data(), steps=st.integers(1, 10))
    def test_rows_stay_what_they_were(self, version: int, data: Any, steps: int) -> None:
        properties = {"format-version": str(version)}
        table = Table.create(MemoryCatalog(), "db.t", schema=COLUMNS, properties=properties)
        rows, ever = append(table, 0), set(table.schema().fields_by_id)
        for number in range(1, steps + 1):
            before, location = table.schema(), table.metadata_location
            change = a_change(data.draw, table)
            try:
                table.alter([change])
            except IcebergError:
                assert table.metadata_location == location
                continue
            assert not table.alter([change]).done_by_this_try
            if table.metadata_location != location and table.schema() is not before:
                check_ids(change, before, table.schema(), ever)
                ever |= set(table.schema().fields_by_id)
            if data.draw(st.booleans()):
                rows += append(table, 10 * number)
        rows += append(table, 1000)
        wanted = [by_name(row, table.schema().as_struct()) for row in rows]
        assert sortable(table.scan().to_arrow().to_pylist()) == sortable(wanted)
        # One partition field id, one meaning.
        parts = [field for spec in table.metadata.partition_specs for field in spec.fields]
        meanings = {(f.field_id, f.source_id, str(f.transform)) for f in parts if str(f.transform) != "void"}
        assert len({field_id for field_id, _, _ in meanings}) == len(meanings)
