"""Columns that change their names keep their values, also in files that have no field ids, which know names alone."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc

from airflow_iceberg.catalogs import load_catalog
from airflow_iceberg.commit.operation_key import OperationKey
from airflow_iceberg.errors import FormatError, IcebergError, InvalidInputError
from airflow_iceberg.table import Table
from tests.support.builders import new_table
from tests.support.sampling import SEED, sampled

MAPPING = "schema.name-mapping.default"
EXCHANGE = [("a", "tmp"), ("b", "a"), ("tmp", "b")]


def key(name: object) -> OperationKey:
    return OperationKey(dag_id="d", run_id="r", task_id=str(name))


def rename(old: str, new: str) -> dict[str, Any]:
    return {"rename_column": {"from": old, "to": new}}


def add(name: str, type_: str = "long") -> dict[str, Any]:
    return {"add_column": {"name": name, "type": type_}}


def with_files(folder: Path, columns: dict[str, Any], schema: dict[str, Any], kind: str = "parquet") -> Table:
    """Return a table with one file without field ids, as other programs write it."""
    path = folder / "old" / f"file.{kind}"
    path.parent.mkdir(parents=True, exist_ok=True)
    write: Any = pq.write_table if kind == "parquet" else orc.write_table
    write(pa.table(columns), path)
    table = new_table(folder, schema=schema)
    table.add_files([f"file://{path}"])
    return table


def three(folder: Path, kind: str = "parquet") -> Table:
    return with_files(
        folder, {"id": [1], "a": [10], "b": [20], "c": [30]}, dict.fromkeys(("id", "a", "b", "c"), "long"), kind
    )


def row(table: Table) -> dict[str, Any]:
    (found,) = table.refresh().scan().to_arrow().to_pylist()
    return found


class TestNamesThatColumnsExchange:
    """The values of a column are those of its field id: a name that another column gets does not bring its values."""

    @pytest.mark.parametrize("kind", ["parquet", "orc"])
    @pytest.mark.parametrize("is_one_list", [True, False])
    def test_two_columns_that_exchange_their_names_keep_their_values(self, tmp_path, kind, is_one_list):
        table = three(tmp_path, kind)
        steps = [rename(*names) for names in EXCHANGE]
        for number, changes in enumerate([steps] if is_one_list else [[step] for step in steps]):
            table.alter(changes, operation_key=key(number))
        assert row(table) == {"id": 1, "b": 10, "a": 20, "c": 30}

    def test_and_so_do_three(self, tmp_path):
        table = three(tmp_path)
        table.alter([rename("a", "t"), rename("b", "a"), rename("c", "b"), rename("t", "c")], operation_key=key(0))
        assert row(table) == {"id": 1, "c": 10, "a": 20, "b": 30}

    def test_and_fields_of_structs_in_lists(self, tmp_path):
        columns = {"s": [{"a": 1, "b": 2}], "l": [[{"a": 3, "b": 4}]]}
        table = with_files(tmp_path, columns, {"s": "struct<a: long, b: long>", "l": "list<struct<a: long, b: long>>"})
        for place in ("s", "l.element"):
            table.alter(
                [rename(f"{place}.a", "t"), rename(f"{place}.b", "a"), rename(f"{place}.t", "b")],
                operation_key=key(place),
            )
        assert row(table) == {"s": {"b": 1, "a": 2}, "l": [{"b": 3, "a": 4}]}

    def test_a_column_that_gets_the_name_of_a_dropped_one_has_its_own_values(self, tmp_path):
        table = three(tmp_path)
        table.alter([{"drop_column": "a"}])
        table.alter([rename("b", "a")])
        assert row(table) == {"id": 1, "a": 20, "c": 30}

    def test_a_new_column_does_not_have_the_values_of_a_dropped_or_renamed_one(self, tmp_path):
        table = three(tmp_path)
        table.alter([{"drop_column": "a"}])
        table.alter([add("a")])
        table.alter([rename("b", "d"), add("b", "string")], operation_key=key(0))
        assert row(table) == {"id": 1, "d": 20, "c": 30, "a": None, "b": None}
        table.alter([rename("a", "e")])
        assert row(table)["e"] is None

    def test_and_those_of_a_migrated_folder(self, tmp_path):
        catalog = load_catalog("test", type="sql", uri=f"sqlite:///{tmp_path}/c.db", warehouse=f"file://{tmp_path}/w")
        catalog.create_namespace("db")
        folder = tmp_path / "w" / "moved"
        folder.mkdir(parents=True)
        pq.write_table(pa.table({"a": [1], "b": [2]}), folder / "0.parquet")
        table = Table.migrate_table(catalog, "db.moved", str(folder))
        table.alter([rename(*names) for names in EXCHANGE], operation_key=key(0))
        assert row(table) == {"b": 1, "a": 2}

    def test_new_rows_have_the_new_names(self, tmp_path):
        table = three(tmp_path)
        table.alter([rename(*names) for names in EXCHANGE], operation_key=key(0))
        table.append(pa.table({"id": [2], "a": [200], "b": [100], "c": [300]}))
        assert sorted(table.scan("a > 15").to_arrow()["b"].to_pylist()) == [10, 100]
        assert table.delete("b = 10").deleted_records == 1

    def test_other_readers_find_the_same_values(self, tmp_path):
        table = three(tmp_path)
        table.alter([rename(*names) for names in EXCHANGE], operation_key=key(0))
        theirs = pytest.importorskip("pyiceberg.table").StaticTable.from_metadata(table.metadata_location)
        assert theirs.scan().to_arrow().to_pylist() == [{"id": 1, "b": 10, "a": 20, "c": 30}]


class TestFilesThatCome:
    """One name stands for one column: files without ids whose names stand for other columns by now are refused."""

    @pytest.mark.parametrize(
        ("changes", "meant"),
        [
            ([rename(*names) for names in EXCHANGE], "the column that is called 'b' now"),
            ([{"drop_column": "a"}, rename("b", "a")], "a column that was dropped"),
            ([{"drop_column": "a"}, add("a")], "a column that was dropped"),
        ],
    )
    def test_whose_name_another_column_has(self, tmp_path, changes, meant):
        table = three(tmp_path)
        table.alter(changes, operation_key=key(0))
        late = tmp_path / "old" / "late.parquet"
        pq.write_table(pa.table({"id": [2], "a": [1]}), late)
        with pytest.raises(InvalidInputError, match=meant):
            table.add_files([f"file://{late}"])

    def test_unless_the_file_names_them_by_ids(self, tmp_path):
        table = three(tmp_path)
        table.append(pa.table({"id": [2], "a": [11], "b": [21], "c": [31]}))
        with_ids = table.scan("id = 2").plan_files()[0].file.file_path
        copy = tmp_path / "old" / "copy.parquet"
        copy.write_bytes(Path(with_ids.removeprefix("file://")).read_bytes())
        table.alter([rename(*names) for names in EXCHANGE], operation_key=key(0))
        table.add_files([f"file://{copy}"])
        assert sorted(table.scan().to_arrow()["b"].to_pylist()) == [10, 11, 11]

    def test_a_mapping_with_one_name_for_two_columns_is_refused_as_by_java(self, tmp_path):
        table = three(tmp_path)
        twice = [{"field-id": 2, "names": ["a"]}, {"field-id": 3, "names": ["b", "a"]}]
        table.alter([{"set_properties": {MAPPING: json.dumps(twice)}}])
        with pytest.raises(FormatError, match="name 'a' stands for field ids 2 and 3"):
            table.scan().to_arrow()

    def test_names_may_be_left_out_as_in_java(self, tmp_path):
        table = three(tmp_path)
        table.alter([{"set_properties": {MAPPING: '[{"field-id": 1, "names": ["id"]}, {"field-id": 2}]'}}])
        assert row(table) == {"id": 1, "a": None, "b": None, "c": None}


@pytest.mark.generated
def test_whatever_becomes_of_the_columns_their_values_stay(tmp_path):
    """Random renames, drops and additions: a column has the values of the file's column that it was made from."""
    for number in range(sampled(60)):
        random = Random(f"{SEED}/{number}")
        table = with_files(
            tmp_path / str(number),
            {"id": [1], "a": [10], "b": [20], "s": [{"a": 30, "b": 40}]},
            {"id": "long", "a": "long", "b": "long", "s": "struct<a: long, b: long>"},
        )
        model: dict[str, Any] = {"id": 1, "a": 10, "b": 20, "s.a": 30, "s.b": 40}
        for step in range(random.randint(2, 6)):
            kept, changes = dict(model), []
            for _ in range(random.randint(1, 4)):
                changes += _random_change(random, kept)
            try:
                table.refresh().alter(changes, operation_key=key(step))
            except IcebergError:
                continue
            model = kept
        found = row(table)
        flat = {name: value for name, value in found.items() if name != "s"}
        flat |= {f"s.{name}": value for name, value in found["s"].items()}
        assert flat == model, number


def _random_change(random: Random, model: dict[str, Any]) -> list[dict[str, Any]]:
    prefix = random.choice(["", "s."])
    there = [name for name in model if name != "id" and name.startswith("s.") == bool(prefix)]
    free = [prefix + name for name in "abcd" if prefix + name not in model]
    kind = random.choice(["rename", "rename", "rename", "drop", "add"])
    if kind == "add" and free:
        name = random.choice(free)
        model[name] = None
        return [add(name)]
    if kind == "drop" and len(there) > 1:
        name = random.choice(there)
        del model[name]
        return [{"drop_column": name}]
    if free:
        old, new = random.choice(there), random.choice(free)
        model[new] = model.pop(old)
        return [rename(old, new)]
    return []
