"""New rows of a table with a sort order: sorted before a file claims it."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_iceberg.data.write import sorted as sorted_write
from airflow_iceberg.data.write.ordering import sort_rows
from airflow_iceberg.data.write.sorted import write_order
from airflow_iceberg.format.manifests.entries import DataFile
from airflow_iceberg.format.schemas.arrow import schema_to_arrow
from airflow_iceberg.jobs import append_sorted, compact_sorted
from airflow_iceberg.jobs.protocol.plan import JobPlan
from airflow_iceberg.jobs.protocol.source import Source
from airflow_iceberg.jobs.protocol.staged_files import staged_files
from airflow_iceberg.jobs.run_local import run_local
from airflow_iceberg.jobs.sources import files as sources
from airflow_iceberg.table import Table
from tests.support.append_steps import plan_append
from tests.support.builders import new_catalog

COLUMNS = {"id": "long", "day": "date", "name": "string"}
ORDER = ["name desc nulls last", "id"]


def new_table(folder: Path, **settings: Any) -> Table:
    catalog = new_catalog(folder / "warehouse")
    return Table.create(catalog, "db.t", schema=COLUMNS, **{"sort_by": ORDER, **settings})


def rows(ids: range) -> pa.Table:
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "day": pa.array([number % 3 for number in ids], pa.int32()).cast(pa.date32()),
            "name": [None if number % 7 == 0 else f"n{number * 37 % 101}" for number in ids],
        }
    )


def stage(table: Table, folder: Path, *, files: int = 4, each: int = 250) -> tuple[JobPlan, list[DataFile]]:
    (folder / "in").mkdir()
    for number in range(files):
        pq.write_table(rows(range(number * each, (number + 1) * each)), folder / f"in/{number}.parquet")
    plan = plan_append(table, Source.from_files(f"{folder}/in/*"))
    result = run_local(plan, table.io, threads=2)
    result.raise_for_error()
    assert result.warnings == ()
    return plan, list(staged_files(plan, result))


def read(table: Table, file: DataFile) -> pa.Table:
    found = pq.ParquetFile(table.io.filesystem(file.file_path)[1]).read()
    return found.cast(schema_to_arrow(table.schema(), with_field_ids=False))


def assert_sorted(table: Table, files: list[DataFile]) -> None:
    order = write_order(table.sort_order(), table.schema(), table.metadata.spec())
    for file in files:
        found = read(table, file)
        assert found.equals(sort_rows(found, order)), file.file_path
        assert file.sort_order_id == table.sort_order().order_id != 0


def ids_of(table: Table, files: list[DataFile]) -> list[int]:
    return sorted(number for file in files for number in read(table, file)["id"].to_pylist())


@pytest.fixture(params=["in memory", "by ranges"])
def way(request, monkeypatch):
    monkeypatch.setattr(sources, "MIN_TASK_BYTES", 1)
    if request.param == "by ranges":
        monkeypatch.setattr(append_sorted, "SMALL_SOURCE_BYTES", 0)
        monkeypatch.setattr(append_sorted, "RANGE_BYTES", 4000)
        monkeypatch.setattr(append_sorted, "SAMPLE_EVERY", 3)
    return request.param


class TestFiles:
    """A job that appends to a sorted table gives files that are in order, whatever the distribution mode."""

    @pytest.mark.usefixtures("way")
    @pytest.mark.parametrize("mode", ["range", "hash", "none", "RANGE"])
    @pytest.mark.parametrize("partition_by", [[], ["day"], ["bucket(4, id)"]])
    def test_every_file_is_in_the_order_that_it_claims(self, mode, partition_by, tmp_path):
        properties = {"write.distribution-mode": mode}
        table = new_table(tmp_path, partition_by=partition_by, properties=properties)
        _, files = stage(table, tmp_path)
        assert_sorted(table, files)
        assert ids_of(table, files) == list(range(1000))

    def test_range_is_the_default_and_brings_all_rows_into_one_order(self, way, tmp_path):
        table = new_table(tmp_path, properties={"write.target-file-size-bytes": "2000"})
        _, files = stage(table, tmp_path)
        joined = pa.concat_tables([read(table, file) for file in files])
        assert len(files) > 1
        assert joined.equals(sort_rows(joined, write_order(table.sort_order(), table.schema(), table.metadata.spec())))

    def test_a_range_that_is_one_key_is_written_in_runs(self, monkeypatch, tmp_path):
        monkeypatch.setattr(append_sorted, "SMALL_SOURCE_BYTES", 0)
        monkeypatch.setattr(append_sorted, "RANGE_BYTES", 200)
        monkeypatch.setattr(compact_sorted, "RANGE_BYTES", 200)
        monkeypatch.setattr(sorted_write, "RUN_BYTES", 4000)
        table = new_table(tmp_path, sort_by=["day"])
        _, files = stage(table, tmp_path)
        assert_sorted(table, files)
        assert ids_of(table, files) == list(range(1000))

    def test_nothing_of_the_exchange_is_left(self, way, tmp_path):
        table = new_table(tmp_path)
        plan, _ = stage(table, tmp_path)
        assert not [status for status in table.io.list(plan.staging_location) if status.location.endswith(".arrow")]

    def test_no_rows_give_no_files(self, way, tmp_path):
        _, files = stage(new_table(tmp_path), tmp_path, each=0)
        assert files == []

    def test_a_table_without_an_order_claims_none(self, way, tmp_path):
        _, files = stage(new_table(tmp_path, sort_by=[]), tmp_path)
        assert {file.sort_order_id for file in files} == {0}


class TestInProcess:
    """Rows of this process are sorted as well."""

    @pytest.mark.parametrize("run_bytes", [sorted_write.RUN_BYTES, 4000])
    @pytest.mark.parametrize("partition_by", [[], ["day"]])
    def test_appended_files_are_in_order_and_each_run_has_its_own(self, partition_by, run_bytes, monkeypatch, tmp_path):
        monkeypatch.setattr(sorted_write, "RUN_BYTES", run_bytes)
        table = new_table(tmp_path, partition_by=partition_by)
        table.append(rows(range(500)))
        files = [task.file for task in table.scan().plan_files()]
        assert (len(files) > max(1, 3 * len(partition_by))) == (run_bytes == 4000)
        assert_sorted(table, files)
        assert ids_of(table, files) == list(range(500))

    def test_the_orders_columns_follow_a_rename(self, tmp_path):
        table = new_table(tmp_path)
        table.alter([{"rename_column": {"from": "name", "to": "title"}}])
        table.append(rows(range(50)).rename_columns(["id", "day", "title"]))
        assert_sorted(table, [task.file for task in table.scan().plan_files()])
