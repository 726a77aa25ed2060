"""Existing files join a table under `dag.test()`: once a run, and never deleted."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_iceberg.operators import IcebergAddFilesOperator
from tests.airflow.conftest import Lake, dying, operators

add = operators(IcebergAddFilesOperator, task_id="add")


def put(lake: Lake, name: str, *ids: int) -> str:
    path = lake.folder / "warehouse" / "landing" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"id": list(ids)}), path)
    return f"file://{path}"


@pytest.fixture
def table(lake: Lake) -> Lake:
    lake.create(schema={"id": "long", "ds": "date"}, partition_by=["ds"])
    return lake


class TestTheTask:
    """Arguments are templates, and the result says what was added."""

    @pytest.mark.costly
    def test_a_folder_with_the_partition_of_the_run(self, table, new_dag, run_dag):
        for day in (1, 2):
            put(table, f"ds=2026-01-0{day}/a.parquet", day)
        with new_dag(params={"root": f"{table.folder}/warehouse/landing"}) as dag:
            add(source="{{ params.root }}", partition_filter={"ds": "{{ logical_date | ds }}"})
        result = run_dag(dag).result("add")
        assert (result["outcome"], result["added_data_files"], result["added_records"]) == ("committed", 1, 1)
        assert (table.ids(), result["operation"]) == ([1], "append")

    @pytest.mark.costly
    def test_a_list_of_files(self, table, new_dag, run_dag):
        files = [put(table, f"ds=2026-01-01/{n}.parquet", n) for n in (1, 2)]
        with new_dag(params={"files": files}) as dag:
            add(files="{{ params.files | tojson }}", snapshot_properties={"why": "{{ dag.dag_id }}"})
        assert run_dag(dag).result("add")["added_data_files"] == 2
        assert table.load().current_snapshot().summary["why"] == dag.dag_id
        assert table.ids() == [1, 2]

    @pytest.mark.costly
    def test_files_that_readers_misread(self, table, new_dag, run_dag):
        location = put(table, "ds=2026-01-01/a.parquet", 1)
        rows = pa.table({"id": pa.array([1], pa.uint32())})
        pq.write_table(rows, location.removeprefix("file://"))
        with new_dag(params={"anew": "true"}) as dag:
            add(files=[location], rewrite_unfit="{{ params.anew }}")
        result = run_dag(dag).result("add")
        assert (result["outcome"], result["added_data_files"], table.ids()) == ("committed", 1, [1])

    @pytest.mark.services
    def test_a_wrong_request_fails_for_good(self, table, run_task):
        assert "exactly one of files and source" in run_task(add).refusal
        assert "partition_filter is not a JSON object" in run_task(add, source="/x", partition_filter="{").refusal
        assert "files is not a list of locations" in run_task(add, files="/x").refusal

    @pytest.mark.costly
    def test_a_file_that_does_not_fit_fails_for_good(self, table, run_task):
        location = put(table, "ds=tomorrow/a.parquet", 1)
        assert "'ds=tomorrow' is not a value of column 'ds' (date)" in run_task(add, files=[location]).refusal
        assert table.load().current_snapshot() is None


class TestExactlyOnce:
    """A retry finds the commit; a cleared task leaves the table with the files that it names now."""

    @pytest.mark.services
    def test_a_retry_finds_its_commit(self, table, run_task):
        location = put(table, "ds=2026-01-01/a.parquet", 1)
        run = run_task(dying(IcebergAddFilesOperator), task_id="add", table="s.t", files=[location], retries=1)
        result = run.result("add")
        assert (result["outcome"], result["done_by_this_try"], table.ids()) == ("found", False, [1])

    @pytest.mark.services
    def test_a_cleared_task(self, table, new_dag, run_dag, clear):
        for name, number in (("a", 1), ("b", 2)):
            put(table, f"ds=2026-01-01/{name}.parquet", number)
        folder = table.folder / "warehouse" / "landing"
        with new_dag() as dag:
            add(source=str(folder))
        run = run_dag(dag)
        assert table.ids() == [1, 2]
        gone = folder / "ds=2026-01-01" / "a.parquet"
        kept = gone.rename(Path(table.folder) / "elsewhere.parquet")
        put(table, "ds=2026-01-01/c.parquet", 3)
        result = clear(dag, run).result("add")
        assert (result["added_data_files"], result["deleted_data_files"]) == (1, 1)
        assert (table.ids(), kept.exists()) == ([2, 3], True)
        again = clear(dag, run).result("add")
        assert (again["outcome"], table.ids()) == ("nothing", [2, 3])
