"""What is wrong with inputs and sources: one clear error for each operation that has them, and nothing is committed."""

import json
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_iceberg.commit.operation_key import OperationKey
from airflow_iceberg.errors import (
    IcebergError,
    InvalidInputError,
    NotFoundError,
)
from airflow_iceberg.jobs.protocol.source import Source
from airflow_iceberg.jobs.run_local import run_local
from airflow_iceberg.operations.append import AppendRequest, append
from airflow_iceberg.operations.delete import DeleteRequest, delete
from airflow_iceberg.operations.expire_snapshots import ExpireSnapshotsRequest, expire_snapshots
from airflow_iceberg.operations.inputs.changes import Changes
from airflow_iceberg.operations.inputs.tables import Input
from airflow_iceberg.operations.overwrite import OverwriteRequest, overwrite
from airflow_iceberg.operations.row_level.merge import MergeRequest, merge
from airflow_iceberg.operations.row_level.update import UpdateRequest, update
from airflow_iceberg.operations.work import Work
from airflow_iceberg.table import Table
from tests.support.builders import data_locations, new_catalog, staged

KEY = OperationKey(dag_id="dag", run_id="run", task_id="task")
COLUMNS = {"id": "long", "n": "long"}


@dataclass(kw_only=True)
class Lake:
    """A table that is written to, and one that is read."""

    catalog: object
    table: Table

    @property
    def source(self) -> Table:
        return Table.load(self.catalog, "db.source")

    def input(self, name="db.source", **more):
        return {"src": Input(open=lambda: Table.load(self.catalog, name), **more)}


@pytest.fixture
def lake(tmp_path):
    catalog = new_catalog(tmp_path)
    table = Table.create(catalog, "db.t", schema=COLUMNS)
    table.append(rows((1, 10), (2, 20)))
    Table.create(catalog, "db.source", schema=COLUMNS).append(rows((2, 22), (3, 33)))
    return Lake(catalog=catalog, table=table)


def rows(*values):
    ids, numbers = zip(*values, strict=True)
    return pa.table({"id": pa.array(ids, pa.int64()), "n": pa.array(numbers, pa.int64())})


def as_append(query, where, inputs, **more):
    return append, AppendRequest(rows=query, inputs=inputs, **more)


def as_overwrite(query, where, inputs, **more):
    return overwrite, OverwriteRequest(rows=query, replace="table", inputs=inputs, **more)


def as_merge(query, where, inputs, **more):
    return merge, MergeRequest(rows=query, on=["id"], upsert=True, dialect="duckdb", inputs=inputs, **more)


def as_filter(query, where, inputs, **more):
    given = {"overwrite_filter": where, "check_filter": False, "dialect": "duckdb"}
    return overwrite, OverwriteRequest(rows=rows((1, 1)), inputs=inputs, **given, **more)


def as_update(query, where, inputs, **more):
    return update, UpdateRequest(set={"n": "0"}, where=where, dialect="duckdb", inputs=inputs, **more)


def as_delete(query, where, inputs, **more):
    return delete, DeleteRequest(predicate=where, dialect="duckdb", inputs=inputs, **more)


OF_ROWS = [as_append, as_overwrite, as_merge]
ALL = [*OF_ROWS, as_filter, as_update, as_delete]
IDS = {one: one.__name__.removeprefix("as_") for one in ALL}


def refused(lake, make, *, query="select id, n from src", where="id in (select id from src)", inputs=None, **how):
    """Return the error of an operation that has to fail, and check that it has done nothing."""
    given = lake.input() if inputs is None else inputs
    disk, head = data_locations(lake.table), lake.table.refresh().current_snapshot()

    def job(plan):
        return run_local(plan, lake.table.io)

    def run():
        source = Source.from_sql(query, dialect="duckdb") if isinstance(query, str) else query
        operation, request = make(source, where, given, **how)
        operation(Work(lake.table, run=job, operation_key=KEY, try_number=1), request)

    with pytest.raises(IcebergError) as caught:
        run()
    text = str(caught.value)
    assert "\n" not in text
    assert "Traceback" not in text
    assert lake.table.refresh().current_snapshot() == head
    assert (data_locations(lake.table), staged(lake.table)) == (disk, [])
    return caught.value


@pytest.mark.parametrize("make", ALL, ids=IDS.get)
class TestInputs:
    """Of the tables that SQL reads."""

    def test_an_unknown_table(self, lake, make):
        error = refused(lake, make, inputs=lake.input("db.nope"))
        assert isinstance(error, NotFoundError)
        assert "input 'src'" in str(error)
        assert "db.nope" in str(error)

    @pytest.mark.parametrize("place", [{"snapshot_id": 7}, {"ref": "nope"}])
    def test_an_unknown_snapshot_or_branch(self, lake, make, place):
        assert "input 'src'" in str(refused(lake, make, inputs=lake.input(**place)))

    def test_a_view_that_does_not_exist(self, lake, make):
        error = refused(lake, make, query="select id, n from nope", where="id in (select id from nope)", inputs={})
        assert isinstance(error, InvalidInputError)
        assert "Table with name nope does not exist" in str(error)
        assert "give each table that the SQL reads in inputs" in str(error)

    def test_a_column_that_does_not_exist(self, lake, make):
        error = refused(lake, make, query="select id, nope as n from src", where="id in (select nope from src)")
        assert isinstance(error, InvalidInputError)
        assert "nope" in str(error)

    def test_a_column_that_was_renamed(self, lake, make):
        lake.source.alter([{"rename_column": {"from": "id", "to": "key"}}])
        error = refused(lake, make, where="id in (select src.id from src)")
        assert isinstance(error, InvalidInputError)
        assert "id" in str(error)

    def test_a_filter_that_does_not_fit(self, lake, make):
        assert "input 'src'" in str(refused(lake, make, inputs=lake.input(row_filter="n = 'x'")))

    def test_a_name_that_is_no_name(self, lake, make):
        error = refused(lake, make, inputs={"a b": lake.input()["src"]})
        assert "'a b' cannot be the name of an input" in str(error)


@pytest.mark.parametrize("make", [*OF_ROWS, as_filter, as_update], ids=IDS.get)
def test_a_watermark_that_has_expired(lake, make):
    """It is not known which changes were read: the error says so, and what to do."""
    first = lake.source.current_snapshot().snapshot_id
    lake.source.append(rows((4, 44)))
    moment = lake.source.current_snapshot().timestamp_ms + 1
    expire_snapshots(Work(lake.source), ExpireSnapshotsRequest(older_than_ms=moment, retain_last=1))
    changes = {"src": Changes(open=lambda: lake.source, snapshot_id=first)}
    error = refused(lake, make, inputs=changes)
    assert "input 'src'" in str(error)
    assert str(first) in str(error)
    assert "say in `since`, for this one run, which snapshot, tag or time of the input" in str(error)


@pytest.mark.costly
@pytest.mark.parametrize("make", ALL, ids=IDS.get)
def test_an_input_whose_schema_changes_while_the_job_runs(lake, make):
    """It is read as it was when the job was planned; a task that is planned after the change fails, as above."""

    def job(plan):
        if "id" in lake.source.schema().names:
            lake.source.alter([{"rename_column": {"from": "id", "to": "key"}}])
        return run_local(plan, lake.table.io)

    source = Source.from_sql("select id, n from src", dialect="duckdb")
    operation, request = make(source, "id in (select src.id from src)", lake.input())
    result = operation(Work(lake.table, run=job, operation_key=KEY, try_number=1), request)
    assert result.outcome == "committed"
    assert lake.source.schema().find_field("key").id == 1


@pytest.mark.parametrize("make", ALL, ids=IDS.get)
def test_what_was_read_is_told_by_the_summary_the_result_and_the_next_try(lake, make):
    source = Source.from_sql("select id, n from src", dialect="duckdb")
    operation, request = make(source, "id in (select src.id from src)", lake.input())
    read = {"table": "db.source", "snapshot-id": str(lake.source.current_snapshot().snapshot_id)}
    for number, outcome in ((1, "committed"), (2, "found")):
        work = Work(lake.table.refresh(), run=lambda plan: run_local(plan, lake.table.io), operation_key=KEY)
        result = operation(replace(work, try_number=number), request)
        assert result.outcome == outcome
        assert list(result.inputs) == ["src"]
        assert read.items() <= result.inputs["src"].items()
        lake.source.append(rows((5, 55)))
    assert json.loads(lake.table.refresh().current_snapshot().summary["airflow.inputs"]) == result.inputs


class TestSources:
    """Of rows."""

    @pytest.mark.parametrize("make", OF_ROWS, ids=IDS.get)
    def test_a_file_whose_types_do_not_fit(self, lake, make, tmp_path):
        pq.write_table(pa.table({"id": ["one"], "n": pa.array([1], pa.int64())}), tmp_path / "f.parquet")
        error = refused(lake, make, query=Source.from_files(str(tmp_path / "f.parquet")), inputs={})
        assert isinstance(error, InvalidInputError)
        assert "id" in str(error)
        assert "f.parquet" in str(error)

    @pytest.mark.parametrize("make", OF_ROWS, ids=IDS.get)
    def test_a_query_whose_types_do_not_fit(self, lake, make):
        error = refused(lake, make, query="select id, [n] as n from src")
        assert isinstance(error, InvalidInputError)
        assert "'n'" in str(error)

    @pytest.mark.parametrize(
        ("query", "message"),
        [
            ("select null as id, 1 as n from src limit 1", "a null key"),
            ("select 2 as id, n from src", "2 rows with the same key"),
            ("select n from src", "column 'id', by which rows are matched, is not in"),
        ],
    )
    def test_a_key_that_is_null_ambiguous_or_missing(self, lake, query, message):
        assert message in str(refused(lake, as_merge, query=query))

    @pytest.mark.costly
    def test_two_rows_that_match_one(self, lake):
        def clauses(query, where, inputs):
            given = {"clauses": "when matched then update set n = source.n", "dialect": "duckdb", "inputs": inputs}
            return merge, MergeRequest(rows=query, on=["id"], **given)

        assert "match one row" in str(refused(lake, clauses, query="select 2 as id, n from src"))

    def test_a_clause_that_can_never_apply(self, lake):
        def clauses(query, where, inputs):
            text = "when matched then delete when matched and source.n > 1 then update set n = 0"
            return merge, MergeRequest(rows=query, on=["id"], clauses=text, dialect="duckdb", inputs=inputs)

        assert "can never apply" in str(refused(lake, clauses))
