"""Rewrites and sorted appends on Spark: one session runs all plans, the rows are those of the tables."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_iceberg.format.sort_orders import sort_order_from_shorthand
from airflow_iceberg.jobs.protocol.plan import JobPlan
from airflow_iceberg.jobs.protocol.result import JobResult
from airflow_iceberg.jobs.protocol.source import Source
from airflow_iceberg.jobs.protocol.staged_files import staged_files
from airflow_iceberg.operations.compact_job import plan_compaction, write_compact_plan
from airflow_iceberg.operations.work import Work
from airflow_iceberg.plan.compact import RewriteOptions
from airflow_iceberg.table import Table
from tests.jobs.submissions import HERE, SPARK_4, SPARK_35
from tests.jobs.test_rewrite import as_lines, new_table, read, rows
from tests.jobs.test_sorted_staging import assert_sorted, ids_of
from tests.jobs.test_sorted_staging import new_table as sorted_table
from tests.jobs.test_sorted_staging import rows as sorted_rows
from tests.support.append_steps import plan_append

QUERY = "select id, date_add(DATE'1970-01-01', int(id % 3)) as day, concat('n', id * 37 % 101) as name from range(900)"


def rewrite_plan(folder: Path, order: list[str] | None) -> tuple[Table, JobPlan]:
    table = new_table(folder, **{"format-version": "3"})
    for start in range(0, 500, 100):
        table.append(rows(range(start, start + 100)))
    table.delete("id < 10", mode="merge-on-read")
    compaction = plan_compaction(table.scan(), RewriteOptions.of({"rewrite-all": True}, {}))
    sort_order = sort_order_from_shorthand(order, table.schema()) if order else None
    return table, write_compact_plan(Work(table), compaction, sort_order=sort_order)


def append_plan(folder: Path, source: Source, **settings: object) -> tuple[Table, JobPlan]:
    table = sorted_table(folder, **settings)
    return table, plan_append(table, source)


def write_files(folder: Path) -> Source:
    folder.mkdir()
    for number in range(4):
        pq.write_table(sorted_rows(range(number * 250, number * 250 + 250)), folder / f"{number}.parquet")
    return Source.from_files(f"{folder}/*")


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(SPARK_4, marks=pytest.mark.spark),
        pytest.param(SPARK_35, marks=[pytest.mark.java, pytest.mark.services]),
    ],
)
def ran(request, spark_of, tmp_path_factory):
    root = tmp_path_factory.mktemp("rewrites")
    hashed = {"write.distribution-mode": "hash"}
    made = {
        "binpack": rewrite_plan(root / "a", None),
        "sort": rewrite_plan(root / "b", ["name desc"]),
        "files": append_plan(root / "c", write_files(root / "in")),
        "query": append_plan(root / "d", Source.from_sql(QUERY)),
        "query_by_day": append_plan(root / "e", Source.from_sql(QUERY), partition_by=["day"]),
        "query_hash": append_plan(root / "f", Source.from_sql(QUERY), partition_by=["day"], properties=hashed),
    }
    spark_of(request.param).run(HERE / "spark_program.py", *(plan.location for _, plan in made.values()))
    found = {}
    for name, (table, plan) in made.items():
        result = JobResult.from_json(table.io.read(plan.result_location))
        result.raise_for_error()
        found[name] = (table, list(staged_files(plan, result)))
    return found


class TestRewrites:
    """A rewrite on Spark gives the rows of the scan, with their lineage."""

    @pytest.mark.services
    @pytest.mark.parametrize("name", ["binpack", "sort"])
    def test_rows_and_lineage_stay(self, ran, name):
        table, files = ran[name]
        columns = ("*", "_row_id", "_last_updated_sequence_number")
        assert as_lines(read(table, files, columns)) == as_lines(table.scan(selected_fields=columns).to_arrow())
        assert sum(file.record_count for file in files) == 490

    def test_sorted_rows_are_in_order(self, ran):
        table, files = ran["sort"]
        for file in files:
            names = read(table, [file])["name"].to_pylist()
            assert names == sorted(names, reverse=True)


class TestSortedAppends:
    """Rows of files and of queries come into the table's order."""

    @pytest.mark.parametrize(("name", "count"), [("files", 1000), ("query", 900), ("query_by_day", 900)])
    def test_files_are_in_the_order_that_they_claim(self, ran, name, count):
        table, files = ran[name]
        assert_sorted(table, files)
        assert ids_of(table, files) == list(range(count))

    def test_within_partitions_by_hash(self, ran):
        table, files = ran["query_hash"]
        assert_sorted(table, files)
        assert len(files) == 3
        assert ids_of(table, files) == list(range(900))

    def test_no_row_is_doubled(self, ran):
        table, files = ran["query"]
        found = pa.concat_tables([read(table, [file]) for file in files])
        assert len(set(found["id"].to_pylist())) == 900
