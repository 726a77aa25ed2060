"""Updates, from the words of a request to the commit, with DuckDB in this process."""

from typing import Any

import pyarrow as pa
import pytest

from airflow_iceberg.commit.operation_key import OperationKey
from airflow_iceberg.errors import InvalidInputError, NotFoundError
from airflow_iceberg.jobs.run_local import run_local
from airflow_iceberg.operations.inputs.tables import Input
from airflow_iceberg.operations.row_level.update import UpdateRequest, update
from airflow_iceberg.operations.work import Work
from airflow_iceberg.table import Table
from tests.support.builders import data_locations, lineage, reachable, staged
from tests.support.memory import MemoryCatalog

KEY = OperationKey(dag_id="d", run_id="r", task_id="update")
COW, MOR = "copy-on-write", "merge-on-read"


def make(version: int = 2, mode: str = COW, partition_by: Any = ("part",), **more: str) -> Table:
    """Ids 0 to 9 and 10 to 19 in two appends, even ones in 'a', odd ones in 'b'; n is the id, and null for 7."""
    table = Table.create(
        MemoryCatalog(),
        "db.t",
        schema={"id": "long", "part": "string", "n": "int"},
        partition_by=partition_by,
        properties={"format-version": str(version), "write.update.mode": mode, **more},
    )
    for start in (0, 10):
        table.append(rows(range(start, start + 10)))
    return table


def rows(ids: Any) -> pa.Table:
    parts, numbers = ["ab"[n % 2] for n in ids], [None if n == 7 else n for n in ids]
    return pa.table({"id": pa.array(ids, pa.int64()), "part": parts, "n": pa.array(numbers, pa.int32())})


def numbers(table: Table, **scan: Any) -> list[int | None]:
    read = table.refresh().scan(**scan).to_arrow().sort_by("id").to_pylist()
    return [row["n"] for row in read]


START = [None if n == 7 else n for n in range(20)]


@pytest.mark.parametrize(("version", "mode"), [(1, COW), (2, COW), (2, MOR), (3, COW), (3, MOR)])
class TestRows:
    """Those for which the condition is true get new values, computed of the old ones; the others stay."""

    @pytest.mark.costly
    def test_by_any_sql(self, version, mode):
        table = make(version, mode)
        result = table.update(
            {"n": "n + id", "PART": "upper(part)"}, where="n + 1 = 4 or length(part) > 5 or id in (5, 15)"
        )
        assert numbers(table) == [{3: 6, 5: 10, 15: 30}.get(n, START[n]) for n in range(20)]
        assert table.scan("part = 'B'").count() == 3
        assert (result.outcome, result.updated_records, result.added_records) == ("committed", 3, 0)
        assert result.deleted_records == 0
        assert not staged(table)
        assert reachable(table) >= data_locations(table)

    @pytest.mark.costly
    def test_a_null_selects_nothing_and_all_rows_can_be_meant(self, version, mode):
        table = make(version, mode)
        assert table.update({"n": "1"}, where="n > 100 or n <> n").outcome == "nothing"
        assert table.update({"n": "coalesce(n, -1)"}).updated_records == 20
        assert numbers(table) == [-1 if n == 7 else n for n in range(20)]


class TestMore:
    """Lineage, inputs, branches and values that a narrower column has to take."""

    @pytest.mark.costly
    @pytest.mark.parametrize("mode", [COW, MOR])
    def test_rows_keep_their_ids_also_in_another_partition(self, mode):
        table = make(3, mode)
        before = lineage(table)["_row_id"].to_pylist()
        table.update({"part": "'c'"}, where="id in (3, 4)")
        after = lineage(table.refresh())
        assert after["_row_id"].to_pylist() == before
        changed = [n for n in after.to_pylist() if n["_last_updated_sequence_number"] == 3]
        assert [row["id"] for row in changed] == [3, 4]

    @pytest.mark.costly
    def test_a_subquery_over_an_input_with_placeholders(self):
        table = make()
        other = Table.create(table.catalog, "db.small", schema={"id": "long", "n": "int"})
        other.append(rows(range(5)).drop_columns(["part"]))
        request = UpdateRequest(
            set={"n": "$to"},
            where="id in (select id from small where n >= $least)",
            params={"to": 100, "least": 3},
            dialect="duckdb",
            inputs={"small": Input(open=lambda: other)},
        )
        result = update(Work(table), request)
        assert (result.updated_records, list(result.inputs)) == (2, ["small"])
        assert [n for n, value in enumerate(numbers(table)) if value == 100] == [3, 4]

    @pytest.mark.costly
    def test_of_a_branch_and_of_a_table_without_rows(self):
        table = make()
        table.create_branch("dev")
        assert table.update({"n": "0"}, where="id = 3", branch="dev").updated_records == 1
        assert (numbers(table), numbers(table, ref="dev")[3]) == (START, 0)
        empty = Table.create(MemoryCatalog(), "db.t", schema={"id": "long"})
        assert empty.update({"id": "1"}).outcome == "nothing"

    def test_a_value_is_rounded_as_by_a_cast_of_sql(self):
        table = make()
        table.update({"n": "n * 1.5"}, where="id = 3")
        assert numbers(table)[3] == 4


class TestOnce:
    """A retry finds the commit; a cleared task updates once more; others are not overwritten."""

    def test_a_retry_finds_the_commit(self):
        table = make()
        request = UpdateRequest(set={"n": "n + 1"}, where="id = 3", dialect="duckdb")
        first = update(Work(table, operation_key=KEY), request)
        table.append(rows([30]))
        second = update(Work(table, operation_key=KEY, try_number=2), request)
        assert (second.outcome, second.snapshot_id) == ("found", first.snapshot_id)
        assert second.updated_records == 1
        assert numbers(table)[3] == 4

    @pytest.mark.costly
    @pytest.mark.parametrize(("version", "mode"), [(2, COW), (2, MOR), (3, MOR)])
    def test_another_update_of_the_same_row_meanwhile(self, version, mode):
        table, jobs = make(version, mode), []

        def run(plan):
            result = run_local(plan, table.io, threads=2)
            if not jobs:
                Table.load(table.catalog, "db.t").update({"n": "n * 10"}, where="id = 3")
            jobs.append(plan)
            return result

        update(Work(table, run=run), UpdateRequest(set={"n": "n + 1"}, where="id = 3", dialect="duckdb"))
        assert (numbers(table)[3], len(jobs)) == (31, 2)
        assert not data_locations(table) - reachable(table)


class TestBadInput:
    """One clear error each; nothing is committed, and nothing is left."""

    @pytest.mark.parametrize(
        ("set_", "where", "message"),
        [
            ({}, "true", "an update sets no column"),
            ({"n": "1"}, " ", "where is empty; to update every row write 'true'"),
            ({"nope": "1"}, "true", "column 'nope' of 'update' is not in the table, which has id, part, n"),
            ({"n": "nope"}, "true", "nope"),
            ({"n": "1"}, "nope > 1", "nope"),
            ({"n": "1"}, "id in (select id from other)", "other"),
            ({"n": "'x'"}, "id = 1", "x"),
            ({"n": "id + 99999999999"}, "id = 1", "100000000000"),
            ({"n": "1", "N": "2"}, "true", "column 'N' is set twice"),
        ],
    )
    def test_is_refused(self, set_, where, message):
        table = make()
        disk, head = data_locations(table), table.current_snapshot()
        with pytest.raises((InvalidInputError, NotFoundError), match=message):
            table.update(set_, where=where)
        assert (data_locations(table), table.refresh().current_snapshot()) == (disk, head)
        assert not staged(table)


class TestFieldsOfStructs:
    """A field is set, the others of its struct stay; a struct that is null becomes one of nulls, as in Java."""

    @pytest.mark.costly
    @pytest.mark.parametrize(("version", "mode"), [(2, COW), (3, MOR)])
    def test_by_name(self, version, mode):
        shape = {"id": "long", "st": "struct<a: int, B: string, deep: struct<x: double, y: int>>", "n": "decimal(5,2)"}
        properties = {"format-version": str(version), "write.update.mode": mode, "write.merge.mode": mode}
        table = Table.create(MemoryCatalog(), "db.t", schema=shape, properties=properties)
        full = {"a": 1, "B": "b", "deep": {"x": 0.5, "y": 1}}
        structs = [full, None, {**full, "deep": None}, full]
        ids = pa.array([1, 2, 3, 4], pa.int64())
        columns = table.scan().to_arrow().schema
        table.append(pa.table({"id": ids, "st": pa.array(structs, columns.field("st").type), "n": [None] * 4}))
        table.update({"st.Deep.y": "id + 0.75", "ST.a": "st.a + 1", "n": "1.005"}, where="id < 4")
        found = table.refresh().scan().to_arrow().sort_by("id").to_pylist()
        assert [row["st"] for row in found] == [
            {"a": 2, "B": "b", "deep": {"x": 0.5, "y": 1}},
            {"a": None, "B": None, "deep": {"x": None, "y": 2}},
            {"a": 2, "B": "b", "deep": {"x": None, "y": 3}},
            full,
        ]
        clauses = (
            "when matched then update set target.st.b = source.b, n = default",
            "when not matched then insert (id) values (9)",
        )
        table.merge(pa.table({"id": [2, 9], "b": ["new", "x"]}), ["id"], clauses)
        found = {row["id"]: row for row in table.refresh().scan().to_arrow().to_pylist()}
        assert found[2] == {"id": 2, "st": {"a": None, "B": "new", "deep": {"x": None, "y": 2}}, "n": None}
        assert found[9] == {"id": 9, "st": None, "n": None}
        assert str(found[1]["n"]) == "1.01"

    def test_a_value_that_does_not_fit_its_field(self):
        table = Table.create(MemoryCatalog(), "db.t", schema={"id": "long", "st": "struct<a: int>"})
        table.append(pa.table({"id": [1]}))
        head = table.refresh().current_snapshot()
        with pytest.raises(InvalidInputError, match="st"):
            table.update({"st.a": "3000000000"})
        assert table.refresh().current_snapshot() == head
