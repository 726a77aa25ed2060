"""Predicates that only an SQL engine can evaluate: functions, columns compared with columns, subqueries."""

import pyarrow as pa
import pytest

from airflow_iceberg.catalogs import load_catalog
from airflow_iceberg.errors import InvalidInputError, UnsupportedError
from airflow_iceberg.jobs.run_local import run_local
from airflow_iceberg.operations.delete import DeleteRequest, delete
from airflow_iceberg.operations.inputs.tables import Input
from airflow_iceberg.operations.work import Work
from airflow_iceberg.table import Table


@pytest.fixture
def catalog(tmp_path):
    catalog = load_catalog("lake", type="sql", uri=f"sqlite:///{tmp_path}/c.db", warehouse=f"file://{tmp_path}/wh")
    catalog.create_namespace("s")
    Table.create(catalog, "s.blocked", schema={"who": "long"}).append(pa.table({"who": [2, 5]}))
    return catalog


def new_table(catalog, version="2", mode="copy-on-write"):
    properties = {"format-version": version, "write.delete.mode": mode}
    table = Table.create(catalog, "s.t", schema={"id": "long", "low": "int"}, properties=properties)
    for start in (0, 4):
        numbers = pa.array(range(start, start + 4), pa.int32())
        table.append(pa.table({"id": numbers.cast(pa.int64()), "low": numbers}))
    return table


def work(table, jobs=None):
    def run(plan):
        if jobs is not None:
            jobs.append(plan)
        return run_local(plan, table.io)

    return Work(table, run=run)


def ids(table):
    return sorted(table.refresh().scan().to_arrow()["id"].to_pylist())


@pytest.mark.parametrize(
    ("version", "mode"),
    [("1", "copy-on-write"), ("2", "merge-on-read"), ("3", "copy-on-write"), ("3", "merge-on-read")],
)
class TestAnEngineDecides:
    """The rows for which the engine says true are deleted, those for which it says null are kept."""

    @pytest.mark.costly
    def test_a_function_and_two_columns(self, catalog, version, mode):
        table = new_table(catalog, version, mode)
        result = delete(work(table), DeleteRequest(predicate="abs(id - 3) = 2 or low > id + 0 * id", dialect="duckdb"))
        assert (ids(table), result.deleted_records, result.updated_records) == ([0, 2, 3, 4, 6, 7], 2, 0)
        assert result.carried_records == (6 if mode == "copy-on-write" else 0)

    @pytest.mark.costly
    def test_a_subquery_over_an_input(self, catalog, version, mode):
        table = new_table(catalog, version, mode)
        blocked = {"blocked": Input(open=lambda: Table.load(catalog, "s.blocked"))}
        predicate = "exists (select 1 from blocked where blocked.who = target.id)"
        result = delete(work(table), DeleteRequest(predicate=predicate, dialect="duckdb", inputs=blocked))
        assert (ids(table), result.deleted_records) == ([0, 1, 3, 4, 6, 7], 2)
        assert result.inputs["blocked"]["table"] == "s.blocked"


class TestWhoDecides:
    """What metadata and Arrow can prove needs no engine, and without an engine the rest is rejected at once."""

    def test_a_plain_predicate_is_decided_without_sql(self, catalog):
        table, jobs = new_table(catalog), []
        delete(work(table, jobs), DeleteRequest(predicate="id < 4", dialect="duckdb"))
        assert (ids(table), jobs) == ([4, 5, 6, 7], [])

    @pytest.mark.costly
    def test_files_are_left_out_by_the_part_that_is_proved(self, catalog):
        table, jobs = new_table(catalog), []
        delete(work(table, jobs), DeleteRequest(predicate="id >= 4 and abs(id) = 5", dialect="duckdb"))
        (plan,) = jobs
        assert str(plan.task.target.row_filter) == "id >= 4"
        assert table.refresh().current_snapshot().summary["deleted-data-files"] == "1"

    def test_without_an_engine_nothing_is_started(self, catalog):
        table, jobs = new_table(catalog), []
        with pytest.raises(UnsupportedError):
            delete(work(table, jobs), DeleteRequest(predicate="abs(id) = 1"))
        assert (len(ids(table)), jobs) == (8, [])

    def test_inputs_need_an_engine(self, catalog):
        blocked = {"blocked": Input(open=lambda: Table.load(catalog, "s.blocked"))}
        with pytest.raises(InvalidInputError, match="need Spark"):
            DeleteRequest(predicate="id = 1", inputs=blocked)

    @pytest.mark.costly
    def test_more_rows_than_max_rows_are_an_error_and_no_file_is_left(self, catalog, tmp_path):
        table = new_table(catalog)
        before = sorted(tmp_path.rglob("*.parquet"))
        with pytest.raises(InvalidInputError, match=r"selects at least 4 rows .* max_rows is 3"):
            delete(work(table), DeleteRequest(predicate="id % 2 = 0", dialect="duckdb", max_rows=3))
        assert (len(ids(table)), sorted(tmp_path.rglob("*.parquet"))) == (8, before)

    @pytest.mark.costly
    def test_a_predicate_that_the_engine_rejects(self, catalog):
        table = new_table(catalog)
        with pytest.raises(InvalidInputError, match="nope"):
            delete(work(table), DeleteRequest(predicate="nope(id) = 1", dialect="duckdb"))
        assert len(ids(table)) == 8
