"""Overwrites by filters that only an SQL engine can evaluate: functions, columns compared with columns, subqueries."""

import json
from collections import Counter
from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_iceberg.commit.operation_key import OperationKey
from airflow_iceberg.errors import InvalidInputError, StalePlanError, UnsupportedError
from airflow_iceberg.jobs.protocol.merge_task import MergeTask
from airflow_iceberg.jobs.protocol.source import Source
from airflow_iceberg.jobs.run_local import run_local
from airflow_iceberg.operations.inputs.tables import Input
from airflow_iceberg.operations.new_rows import RowsFunction
from airflow_iceberg.operations.overwrite import OverwriteRequest, overwrite
from airflow_iceberg.operations.work import Work
from airflow_iceberg.table import Table
from tests.support.builders import data_locations, lineage, new_catalog, staged
from tests.support.sampling import examples

SCHEMA = {"id": "long", "low": "int"}
KEY = OperationKey(dag_id="dag", run_id="run", task_id="task")


@pytest.fixture
def catalog(tmp_path):
    return with_namespace(new_catalog(tmp_path))


def with_namespace(catalog):
    catalog.create_namespace("s")
    Table.create(catalog, "s.days", schema={"day": "long"}).append(pa.table({"day": [2, 5]}))
    return catalog


def new_table(catalog, version="2", **properties):
    given = {"format-version": version, **properties}
    table = Table.create(catalog, "s.t", schema=SCHEMA, properties=given)
    for start in (0, 4):
        table.append(rows_of(*((n, n) for n in range(start, start + 4))))
    return table


def rows_of(*rows):
    ids, lows = zip(*rows, strict=True) if rows else ((), ())
    return pa.table({"id": pa.array(ids, pa.int64()), "low": pa.array(lows, pa.int32())})


def run(table, rows, overwrite_filter, *, meanwhile=None, jobs=None, key=None, try_number=None, **request):
    def job(plan):
        if jobs is not None:
            jobs.append(plan)
        if meanwhile is not None and isinstance(plan.task, MergeTask):
            meanwhile()
        return run_local(plan, table.io)

    asked = OverwriteRequest(rows=rows, overwrite_filter=overwrite_filter, dialect="duckdb", **request)
    return overwrite(Work(table, run=job, operation_key=key, try_number=try_number), asked)


def ids(table):
    return sorted(table.refresh().scan().to_arrow()["id"].to_pylist(), key=lambda one: (one is None, one))


def days(catalog, opened=None):
    def load():
        if opened is not None:
            opened.append(1)
        return Table.load(catalog, "s.days")

    return {"days": Input(open=load)}


class TestAnEngineDecides:
    """The rows for which the engine says true are replaced; each new row has to be one of them."""

    @pytest.mark.costly
    @pytest.mark.parametrize("version", ["1", "2", "3"])
    def test_a_function_and_two_columns(self, catalog, version):
        table = new_table(catalog, version)
        before = lineage(table, "id in (0, 2, 3)") if version == "3" else None
        result = run(table, rows_of((5, 5), (1, -1)), "abs(id - 3) = 2 and low <= id")
        assert ids(table) == [0, 1, 2, 3, 4, 5, 6, 7]
        assert (result.added_records, result.deleted_records, result.carried_records) == (2, 2, 6)
        assert table.scan("id = 1").to_arrow()["low"].to_pylist() == [-1]
        assert len(table.snapshots()) == 3
        if before is not None:
            assert lineage(table, "id in (0, 2, 3)").equals(before)

    @pytest.mark.costly
    @pytest.mark.parametrize(
        "predicate", ["id in (select day from days)", "exists (select 1 from days where days.day = target.id)"]
    )
    def test_a_subquery_over_an_input_of_the_filter_alone(self, catalog, predicate):
        table, opened = new_table(catalog), []
        result = run(table, rows_of((5, 50)), predicate, inputs=days(catalog, opened))
        assert (ids(table), len(opened)) == ([0, 1, 3, 4, 5, 6, 7], 1)
        assert result.inputs["days"]["table"] == "s.days"

    @pytest.mark.costly
    def test_the_query_and_the_filter_read_an_input_at_one_snapshot(self, catalog):
        table, jobs = new_table(catalog), []

        def more(plan):
            jobs.append(plan)
            if len(jobs) == 1:
                Table.load(catalog, "s.days").append(pa.table({"day": [7]}))
            return run_local(plan, table.io)

        query = Source.from_sql("select day as id, 0 as low from days where day < 5", dialect="duckdb")
        request = OverwriteRequest(
            rows=query,
            overwrite_filter="id in (select day from days)",
            dialect="duckdb",
            inputs=days(catalog),
        )
        result = overwrite(Work(table, run=more), request)
        # The query needs only days before 5, and the filter all of them; neither sees the seventh.
        assert ids(table) == [0, 1, 2, 3, 4, 6, 7]
        assert str(jobs[0].inputs[0].row_filter) == "day < 5"
        assert str(jobs[1].inputs[0].row_filter) == "true"
        summary = json.loads(table.current_snapshot().summary["airflow.inputs"])
        assert summary["days"]["snapshot-id"] == str(jobs[1].inputs[0].snapshot_id)
        assert result.added_records == 1

    @pytest.mark.costly
    def test_rows_of_this_process(self, catalog):
        table = new_table(catalog)
        function = RowsFunction(name="f", call=lambda: rows_of((3, 3)))
        run(table, function, "id % 2 = 1", predicate_params=None)
        assert ids(table) == [0, 2, 3, 4, 6]

    @pytest.mark.costly
    def test_new_columns_come_with_the_rows(self, catalog, tmp_path):
        table = new_table(catalog)
        rows = rows_of((1, 1)).append_column("note", pa.array(["x"]))
        run(table, rows, "id % 2 = 1", schema_evolution="add_columns")
        assert ids(table) == [0, 1, 2, 4, 6]
        assert table.scan("id < 2").to_arrow().sort_by("id")["note"].to_pylist() == [None, "x"]

    def test_placeholders(self, catalog):
        table = new_table(catalog)
        run(table, rows_of((6, 0)), "id % $two = 0 and id > $two", predicate_params={"two": 2}, check_filter=False)
        assert ids(table) == [0, 1, 2, 3, 5, 6, 7]

    def test_a_table_without_rows(self, catalog):
        table = Table.create(catalog, "s.empty", schema=SCHEMA)
        run(table, rows_of((5, 5)), "abs(id) = 5")
        assert ids(table) == [5]

    @pytest.mark.costly
    def test_a_source_without_rows(self, catalog):
        table = new_table(catalog)
        assert run(table, rows_of(), "id % 2 = 1").outcome == "nothing"
        result = run(table, rows_of(), "id % 2 = 1", deletes_when_empty=True)
        assert (ids(table), result.deleted_records) == ([0, 2, 4, 6], 4)


class TestNewRowsAreChecked:
    """A new row for which the filter is false or null is an error that shows it, and nothing is committed."""

    @pytest.mark.parametrize(("row", "shown"), [((2, 3), "id is 2, low is 3"), ((None, 3), "id is null, low is 3")])
    def test_false_and_null(self, catalog, row, shown):
        table = new_table(catalog)
        disk, head = data_locations(table), table.current_snapshot()
        with pytest.raises(InvalidInputError, match=r"a new row does not match .*abs\(id\) = low.*: " + shown):
            run(table, rows_of((4, 4), row), "abs(id) = low")
        assert (table.refresh().current_snapshot(), data_locations(table), staged(table)) == (head, disk, [])

    @pytest.mark.costly
    def test_not_if_it_is_switched_off(self, catalog):
        table = new_table(catalog)
        run(table, rows_of((None, 3), (2, 3)), "abs(id) = low and id % 2 = 1", check_filter=False)
        assert ids(table) == [0, 2, 2, 4, 6, None]

    @pytest.mark.costly
    def test_a_filter_that_the_engine_rejects(self, catalog):
        table = new_table(catalog)
        disk = data_locations(table)
        for check in (True, False):
            with pytest.raises(InvalidInputError, match="nope"):
                run(table, rows_of((1, 1)), "nope(id) = 1", check_filter=check)
        assert (len(ids(table)), data_locations(table), staged(table)) == (8, disk, [])


class TestWhoDecides:
    """What metadata and Arrow can prove needs no engine, and without an engine the rest is rejected at once."""

    def test_a_plain_filter_is_decided_without_sql(self, catalog):
        table, jobs = new_table(catalog), []
        run(table, rows_of((3, 3)), "id < 4", jobs=jobs)
        assert (ids(table), jobs) == ([3, 4, 5, 6, 7], [])

    @pytest.mark.costly
    def test_files_are_left_out_by_the_part_that_is_proved(self, catalog):
        table, jobs = new_table(catalog), []
        run(table, rows_of((5, 5)), "id >= 4 and abs(id) = 5", jobs=jobs)
        (plan,) = jobs
        assert str(plan.task.target.row_filter) == "id >= 4"
        assert table.refresh().current_snapshot().summary["deleted-data-files"] == "1"

    def test_without_an_engine_nothing_is_started(self, catalog):
        with pytest.raises(UnsupportedError):
            OverwriteRequest(rows=rows_of((1, 1)), overwrite_filter="abs(id) = 1")

    def test_inputs_that_nothing_reads(self, catalog):
        for predicate in ("abs(id) = 1", "id = 1"):
            with pytest.raises(InvalidInputError, match="the rows come from elsewhere"):
                OverwriteRequest(
                    rows=rows_of((1, 1)), overwrite_filter=predicate, dialect="duckdb", inputs=days(catalog)
                )

    def test_an_input_with_a_name_of_the_table_itself(self, catalog):
        with pytest.raises(InvalidInputError, match="an input cannot be named 'target'"):
            OverwriteRequest(
                rows=rows_of((1, 1)),
                overwrite_filter="id in (select day from target)",
                dialect="duckdb",
                inputs={"target": days(catalog)["days"]},
            )


class TestBesideOtherWriters:
    """Rows that others add where the filter may select, or change, are conflicts: what is not proved is one."""

    @pytest.mark.costly
    def test_rows_that_may_match(self, catalog):
        table = new_table(catalog)
        disk, other = data_locations(table), Table.load(catalog, "s.t")
        with pytest.raises(StalePlanError):
            run(table, rows_of((1, 1)), "id % 2 = 1", meanwhile=lambda: other.append(rows_of((9, 9))))
        # Only the file of the other writer is new.
        assert (ids(table), len(data_locations(table))) == ([0, 1, 2, 3, 4, 5, 6, 7, 9], len(disk) + 1)

    @pytest.mark.costly
    def test_rows_that_cannot_match(self, catalog):
        table = new_table(catalog)
        other = Table.load(catalog, "s.t")
        run(table, rows_of((1, 1)), "id % 2 = 1 and id < 9", meanwhile=lambda: other.append(rows_of((9, 9))))
        assert ids(table) == [0, 1, 2, 4, 6, 9]

    @pytest.mark.costly
    def test_a_file_that_is_rewritten(self, catalog):
        table = new_table(catalog)
        other = Table.load(catalog, "s.t")
        with pytest.raises(StalePlanError):
            run(
                table,
                rows_of((1, 1)),
                "id % 2 = 1",
                isolation_level="snapshot",
                meanwhile=lambda: other.delete("id = 0"),
            )
        assert ids(table) == [1, 2, 3, 4, 5, 6, 7]


class TestExactlyOnce:
    """A retry finds the commit; a cleared task replaces the rows of its earlier run, wherever they are."""

    @pytest.mark.costly
    def test_a_retry(self, catalog):
        table = new_table(catalog)
        first = run(table, rows_of((1, 1)), "id % 2 = 1", key=KEY, try_number=1)
        second = run(table, rows_of((3, 3)), "id % 2 = 1", key=KEY, try_number=2)
        assert (second.outcome, second.snapshot_id) == ("found", first.snapshot_id)

    @pytest.mark.costly
    @pytest.mark.parametrize("check", [True, False])
    def test_a_cleared_task(self, catalog, check):
        table = new_table(catalog)
        run(table, rows_of((1, 1), (11, 11)), "id % 2 = 1", key=KEY, try_number=1, check_filter=check)
        cleared = replace(KEY, epoch=1)
        run(table, rows_of((3, 3)), "id % 2 = 1 and id < 9", key=cleared, try_number=2, check_filter=check)
        assert ids(table) == [0, 2, 3, 4, 6]


VALUES = st.one_of(st.none(), st.integers(-3, 3))
FILTERS = {
    "abs(id) = 2": lambda one, low: one is not None and abs(one) == 2,
    "id > low": lambda one, low: one is not None and low is not None and one > low,
    "id not in (select day from days) or low % 2 = 1": lambda one, low: (
        (one is not None and one not in (2, 5)) or (low is not None and low % 2 == 1 and low > 0)
    ),
    "coalesce(low, 0) = 0 and cast(id as varchar) like '%1'": lambda one, low: (
        (low or 0) == 0 and one is not None and str(one).endswith("1")
    ),
}


class TestAnyRows:
    """The table has the old rows that the filter does not select, and the new ones; or nothing has changed."""

    @pytest.mark.services
    @examples(25)
    @given(
        old=st.lists(st.lists(st.tuples(VALUES, VALUES), max_size=6), max_size=3),
        new=st.lists(st.tuples(VALUES, VALUES), min_size=1, max_size=4),
        predicate=st.sampled_from(sorted(FILTERS)),
        check=st.booleans(),
    )
    def test_as_sql_means_them(self, tmp_path_factory, old, new, predicate, check):
        catalog = with_namespace(new_catalog(tmp_path_factory.mktemp("any")))
        table = Table.create(catalog, "s.t", schema=SCHEMA)
        for rows in old:
            table.append(rows_of(*rows))
        selects, kept = FILTERS[predicate], [row for rows in old for row in rows]
        inputs = days(catalog) if "days" in predicate else {}
        is_refused = check and not all(selects(*row) for row in new)
        if is_refused:
            with pytest.raises(InvalidInputError, match="does not match"):
                run(table, rows_of(*new), predicate, check_filter=check, inputs=inputs)
        else:
            run(table, rows_of(*new), predicate, check_filter=check, inputs=inputs)
            kept = [*(row for row in kept if not selects(*row)), *new]
        found = table.refresh().scan().to_arrow()
        assert Counter(zip(found["id"].to_pylist(), found["low"].to_pylist(), strict=True)) == Counter(kept)
