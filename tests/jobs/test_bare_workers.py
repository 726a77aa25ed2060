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

from airflow_iceberg.compacting import CompactionRequest, compact
from airflow_iceberg.deleting import DeleteRequest, delete
from airflow_iceberg.errors import InvalidInputError
from airflow_iceberg.jobs.package import build_zip
from airflow_iceberg.jobs.protocol import JobPlan, JobResult, Source
from airflow_iceberg.overwriting import OverwriteRequest, overwrite
from airflow_iceberg.plan.filters import Comparison
from airflow_iceberg.table import Table
from tests.support.builders import new_table

PROGRAM = Path(__file__).parent / "bare_program.py"


@pytest.fixture(scope="module")
def zipped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_zip(tmp_path_factory.mktemp("zip"))


def run_bare(table: Table, zipped: Path) -> Callable[[JobPlan], JobResult]:
    """Return what runs a job in a bare process."""

    def run(plan: JobPlan) -> JobResult:
        environ = {**os.environ, "PYTHONPATH": str(zipped)}
        command = [sys.executable, str(PROGRAM), plan.location]
        done = subprocess.run(command, env=environ, cwd=zipped.parent, capture_output=True, text=True)
        assert table.io.exists(plan.result_location), done.stderr
        assert done.stdout == "nothing else\n", done.stderr
        return table.read_result(plan)

    return run


@pytest.fixture
def table(tmp_path: Path) -> Table:
    table = new_table(tmp_path, schema={"id": "long not null", "day": "date"}, sort_by=["id"])
    table.alter([{"upgrade_format_version": 3}])
    for start in (0, 10):
        table.append(pa.table({"id": list(range(start, start + 10)), "day": pa.array([start] * 10, pa.date32())}))
    return table


def ids(table: Table) -> list[int]:
    return sorted(table.refresh().scan().to_arrow()["id"].to_pylist())


class TestJobs:
    """Each kind of job runs to its end, predicates included."""

    def test_a_delete(self, table, zipped):
        run, mode = run_bare(table, zipped), "merge-on-read"
        delete(table, DeleteRequest(predicate="id in (3, 13) and day < DATE '2026-01-01'", mode=mode), run=run)
        assert ids(table) == [id_ for id_ in range(20) if id_ not in (3, 13)]

    def test_a_delete_by_an_expression_copy_on_write(self, table, zipped):
        delete(table, DeleteRequest(predicate=Comparison(">", "id", 17)), run=run_bare(table, zipped))
        assert ids(table) == list(range(18))

    def test_an_overwrite_with_new_columns(self, table, zipped, tmp_path):
        pq.write_table(pa.table({"id": [5, 6], "price": [1.5, 2.5]}), tmp_path / "rows.parquet")
        request = OverwriteRequest(overwrite_filter="id between 5 and 8", schema_evolution="add_columns")
        overwrite(table, Source.from_files(f"{tmp_path}/rows.parquet"), request, run=run_bare(table, zipped))
        assert ids(table) == [0, 1, 2, 3, 4, 5, 6, *range(9, 20)]
        assert table.scan("price > 2").count() == 1

    def test_an_append_of_other_files(self, table, zipped, tmp_path):
        orc.write_table(pa.table({"id": [50]}), str(tmp_path / "rows.orc"))
        (tmp_path / "rows.csv").write_text("id\n51\n")
        (tmp_path / "rows.jsonl").write_text('{"id": 52}\n')
        plan = table.plan_append(Source.from_files(f"{tmp_path}/rows.*"))
        table.commit_append(plan, run_bare(table, zipped)(plan))
        assert ids(table)[-3:] == [50, 51, 52]

    def test_a_compaction(self, table, zipped):
        request = CompactionRequest(where="id >= 0", strategy="sort", options={"rewrite-all": "true"})
        compact(table, request, run=run_bare(table, zipped))
        assert ids(table) == list(range(20))
        assert len(table.scan().plan_files()) == 1

    def test_rows_that_do_not_match_are_named_as_ever(self, table, zipped, tmp_path):
        pq.write_table(pa.table({"id": [5, 99]}), tmp_path / "rows.parquet")
        with pytest.raises(InvalidInputError, match=r"row 2 of .* does not match the overwrite's filter 'id < 9'"):
            overwrite(
                table,
                Source.from_files(f"{tmp_path}/rows.parquet"),
                OverwriteRequest(overwrite_filter="id < 9"),
                run=run_bare(table, zipped),
            )
