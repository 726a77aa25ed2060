"""What the workers of a cluster need: pyarrow and fsspec; the zip of the job brings the rest.

The page docs/installation.md says so, and here it is tried: jobs are planned and committed in this process, and run out
of the zip in one where nothing else can be imported, sqlglot and fastavro least of all.
"""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.orc as orc
import pyarrow.parquet as pq
import pytest

from airflow_iceberg.errors import InvalidInputError
from airflow_iceberg.expressions.tree import Comparison
from airflow_iceberg.jobs.protocol.plan import JobPlan
from airflow_iceberg.jobs.protocol.result import JobResult
from airflow_iceberg.jobs.protocol.source import Source
from airflow_iceberg.jobs.spark.package import build_zip
from airflow_iceberg.operations.compact import CompactRequest, compact
from airflow_iceberg.operations.delete import DeleteRequest, delete
from airflow_iceberg.operations.overwrite import OverwriteRequest, overwrite
from airflow_iceberg.operations.work import Work
from airflow_iceberg.table import Table
from tests.support.append_steps import commit_append, plan_append, read_result
from tests.support.builders import new_table

PROGRAM = Path(__file__).parent / "bare_program.py"


@pytest.fixture(scope="module")
def zipped(tmp_path_factory):
    return build_zip(tmp_path_factory.mktemp("zip"))


def run_bare(table: Table, zipped: Path) -> Callable[[JobPlan], JobResult]:
    def run(plan: JobPlan) -> JobResult:
        environ = {**os.environ, "PYTHONPATH": str(zipped)}
        command = [sys.executable, str(PROGRAM), plan.location]
        done = subprocess.run(command, env=environ, cwd=zipped.parent, capture_output=True, text=True)
        assert table.io.exists(plan.result_location), done.stderr
        assert done.stdout == "nothing else\n", done.stderr
        return read_result(table, plan)

    return run


@pytest.fixture
def table(tmp_path):
    table = new_table(tmp_path, schema={"id": "long not null", "day": "date"}, sort_by=["id"])
    table.alter([{"upgrade_format_version": 3}])
    for start in (0, 10):
        table.append(pa.table({"id": list(range(start, start + 10)), "day": pa.array([start] * 10, pa.date32())}))
    return table


def ids(table: Table) -> list[int]:
    return sorted(table.refresh().scan().to_arrow()["id"].to_pylist())


class TestJobs:
    """Each kind of job runs to its end, predicates included."""

    @pytest.mark.services
    def test_a_delete(self, table, zipped):
        run, mode = run_bare(table, zipped), "merge-on-read"
        delete(Work(table, run=run), DeleteRequest(predicate="id in (3, 13) and day < DATE '2026-01-01'", mode=mode))
        assert ids(table) == [id_ for id_ in range(20) if id_ not in (3, 13)]

    @pytest.mark.services
    def test_a_delete_by_an_expression_copy_on_write(self, table, zipped):
        delete(Work(table, run=run_bare(table, zipped)), DeleteRequest(predicate=Comparison(">", "id", 17)))
        assert ids(table) == list(range(18))

    @pytest.mark.services
    def test_an_overwrite_with_new_columns(self, table, zipped, tmp_path):
        pq.write_table(pa.table({"id": [5, 6], "price": [1.5, 2.5]}), tmp_path / "rows.parquet")
        rows = Source.from_files(f"{tmp_path}/rows.parquet")
        request = OverwriteRequest(rows=rows, overwrite_filter="id between 5 and 8", schema_evolution="add_columns")
        overwrite(Work(table, run=run_bare(table, zipped)), request)
        assert ids(table) == [0, 1, 2, 3, 4, 5, 6, *range(9, 20)]
        assert table.scan("price > 2").count() == 1

    @pytest.mark.services
    def test_an_append_of_other_files(self, table, zipped, tmp_path):
        orc.write_table(pa.table({"id": [50]}), str(tmp_path / "rows.orc"))
        (tmp_path / "rows.csv").write_text("id\n51\n")
        (tmp_path / "rows.jsonl").write_text('{"id": 52}\n')
        plan = plan_append(table, Source.from_files(f"{tmp_path}/rows.*"))
        commit_append(table, plan, run_bare(table, zipped)(plan))
        assert ids(table)[-3:] == [50, 51, 52]

    @pytest.mark.services
    def test_files_in_avro(self, table, zipped, tmp_path):
        pq.write_table(pa.table({"id": [5, 50]}), tmp_path / "rows.parquet")
        rows = Source.from_files(f"{tmp_path}/rows.parquet")
        chosen = {"write_format": "avro", "check_filter": False}
        request = OverwriteRequest(rows=rows, overwrite_filter="id between 5 and 8", **chosen)
        overwrite(Work(table, run=run_bare(table, zipped)), request)
        assert ids(table) == [*range(6), *range(9, 20), 50]
        assert sorted(task.file.file_format for task in table.scan().plan_files()) == ["avro", "avro", "parquet"]

    @pytest.mark.services
    def test_a_compaction(self, table, zipped):
        request = CompactRequest(where="id >= 0", strategy="sort", options={"rewrite-all": "true"})
        compact(Work(table, run=run_bare(table, zipped)), request)
        assert ids(table) == list(range(20))
        assert len(table.scan().plan_files()) == 1

    @pytest.mark.services
    def test_rows_that_do_not_match_are_named_as_ever(self, table, zipped, tmp_path):
        pq.write_table(pa.table({"id": [5, 99]}), tmp_path / "rows.parquet")
        with pytest.raises(InvalidInputError, match=r"row 2 of .* does not match the overwrite's filter 'id < 9'"):
            overwrite(
                Work(table, run=run_bare(table, zipped)),
                OverwriteRequest(rows=Source.from_files(f"{tmp_path}/rows.parquet"), overwrite_filter="id < 9"),
            )
