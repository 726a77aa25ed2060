"""Any sequence of changes keeps ids stable and old rows readable: compared with a model of the table."""

from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from airflow_iceberg.errors import IcebergError
from airflow_iceberg.spec.arrow import schema_to_arrow
from airflow_iceberg.table import Table
from tests.support.memory import MemoryCatalog

WIDER = {"int": "long", "float": "double", "decimal(9, 2)": "decimal(18, 2)", "date": "timestamp"}
TYPES = ["int", "float", "decimal(9, 2)", "date", "string", "boolean", "list<int>", "struct<x: int, y: string>"]
NAMES = list("abcdef")


@dataclass(frozen=True)
class Model:
    """What the table must be: its columns in order, and the rows as values by field id.

    Attributes:
        columns: (field id, name) at the top level.
        rows: of each row what it has by field id; a column that came later has its default.
        defaults: by field id, what rows of before the column have.
    """

    columns: tuple[tuple[int, str], ...]
    rows: tuple[dict[int, Any], ...] = ()
    defaults: dict[int, Any] = field(default_factory=dict)

    def read(self) -> list[dict[str, Any]]:
        return [{name: row.get(i, self.defaults.get(i)) for i, name in self.columns} for row in self.rows]


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
    return pa.scalar(number, pa.int32()).cast(pa.int64() if pa.types.is_timestamp(type_) else type_).cast(type_).as_py()


changes = st.one_of(
    st.builds(
        lambda name, kind, first: {"add_column": {"name": name, "type": kind, **({"first": True} if first else {})}},
        st.sampled_from(NAMES),
        st.sampled_from(TYPES),
        st.booleans(),
    ),
    st.builds(
        lambda name, value: {"add_column": {"name": name, "type": "int", "default": value}},
        st.sampled_from(NAMES),
        st.integers(-5, 5),
    ),
    st.builds(lambda name: {"drop_column": name}, st.sampled_from(NAMES)),
    st.builds(lambda a, b: {"rename_column": {"from": a, "to": b}}, st.sampled_from(NAMES), st.sampled_from(NAMES)),
    st.builds(lambda a, b: {"move_column": {"name": a, "after": b}}, st.sampled_from(NAMES), st.sampled_from(NAMES)),
    st.builds(lambda name: {"change_type": {"name": name, "type": None}}, st.sampled_from(NAMES)),
    st.builds(lambda term: {"add_partition_field": term}, st.sampled_from([f"bucket(2, {n})" for n in NAMES] + NAMES)),
    st.builds(lambda name: {"drop_partition_field": name}, st.sampled_from([f"{n}_bucket_2" for n in NAMES] + NAMES)),
    st.builds(lambda names: {"set_partitioning": names}, st.lists(st.sampled_from(NAMES), max_size=2, unique=True)),
    st.builds(lambda name: {"set_sort_order": [name]}, st.sampled_from(NAMES)),
    st.just({"upgrade_format_version": 2}),
    st.just({"upgrade_format_version": 3}),
)
steps = st.lists(st.one_of(changes, st.just("append")), min_size=1, max_size=12)


def completed(change: dict[str, Any], table: Table) -> dict[str, Any]:
    """Fill in the wider type of a column, which the strategy cannot know."""
    if "change_type" not in change:
        return change
    name = change["change_type"]["name"]
    found = next((str(f.type) for f in table.schema().fields if f.name == name), "int")
    return {"change_type": {"name": name, "type": WIDER.get(found, found if "<" not in found else "int")}}


def widened(value: Any, before: Any, after: Any) -> Any:
    """Return what a value of a column has become after a promotion."""
    if value is None or before.equals(after):
        return value
    return pa.scalar(value, before).cast(after).as_py()


def after_change(model: Model, before: Any, after: Any, table: Table) -> Model:
    """Return the model after a change, from the schemas of before and after: ids tell what became of what."""
    old = {field.id: arrow.type for field, arrow in zip(before.fields, schema_to_arrow(before), strict=True)}
    new = {field.id: arrow.type for field, arrow in zip(after.fields, schema_to_arrow(after), strict=True)}
    rows = tuple(
        {i: widened(value, plain(old[i]), plain(new[i])) for i, value in row.items() if i in new} for row in model.rows
    )
    added = {f.id: f.initial_default for f in after.fields if f.id not in old}
    defaults = {i: value for i, value in model.defaults.items() if i in new} | added
    return Model(columns=tuple((f.id, f.name) for f in after.fields), rows=rows, defaults=defaults)


def plain(type_: Any) -> Any:
    """Return an Arrow type without the field ids in its metadata."""
    if pa.types.is_struct(type_):
        return pa.struct([(child.name, plain(child.type)) for child in type_])
    if pa.types.is_list(type_):
        return pa.list_(plain(type_.value_type))
    return type_


def appended(model: Model, table: Table, number: int) -> Model:
    arrow = schema_to_arrow(table.schema(), with_field_ids=False)
    values = [{column.name: a_value(column.type, number + i) for column in arrow} for i in range(2)]
    table.append(pa.Table.from_pylist(values, schema=arrow))
    ids = {name: field_id for field_id, name in model.columns}
    return replace(model, rows=(*model.rows, *({ids[name]: v for name, v in row.items()} for row in values)))


def sorted_rows(rows: list[dict[str, Any]]) -> list[str]:
    return sorted(repr(sorted(row.items())) for row in rows)


@pytest.mark.parametrize("version", [1, 2, 3])
class TestAnySequenceOfChanges:
    """Ids are never given twice, rows keep their values under whatever name, and a refused change changes nothing."""

    @settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(steps=steps)
    def test_rows_stay_what_they_were(self, version: int, steps: list[Any]) -> None:
        table = Table.create(
            MemoryCatalog(),
            "db.t",
            schema={"a": "int", "b": "string", "c": "struct<x: int, y: string>"},
            properties={"format-version": str(version)},
        )
        model = appended(Model(columns=((1, "a"), (2, "b"), (3, "c"))), table, 0)
        ever = {f: str(field.type) for f, field in table.schema().fields_by_id.items()}
        for number, step in enumerate([*steps, "append"], start=1):
            if step == "append":
                model = appended(model, table, 10 * number)
            else:
                before, location = table.schema(), table.metadata_location
                change = completed(step, table)
                try:
                    table.alter([change])
                except IcebergError:
                    assert table.metadata_location == location
                    continue
                assert not table.alter([change]).changed
                model = after_change(model, before, table.schema(), table)
                new = set(table.schema().fields_by_id) - set(before.fields_by_id)
                assert not new & ever.keys()
                ever |= {i: str(table.schema().fields_by_id[i].type) for i in new}
        assert [(f.id, f.name) for f in table.schema().fields] == list(model.columns)
        assert sorted_rows(table.scan().to_arrow().to_pylist()) == sorted_rows(model.read())
        assert len({f.field_id for spec in table.metadata.partition_specs for f in spec.fields}) == len(
            {(f.field_id, f.source_id) for spec in table.metadata.partition_specs for f in spec.fields}
        )
