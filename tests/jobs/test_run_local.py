import json
import subprocess
import sys
from collections import Counter
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_iceberg.errors import FormatError, InvalidInputError, NotFoundError, StorageError, UnsupportedError
from airflow_iceberg.jobs import exchange
from airflow_iceberg.jobs.exchange import Slice, bucket_of, deal
from airflow_iceberg.jobs.protocol.plan import JobPlan
from airflow_iceberg.jobs.protocol.result import JobResult
from airflow_iceberg.jobs.protocol.source import Source
from airflow_iceberg.jobs.run_local import run_local
from airflow_iceberg.jobs.sources import files
from tests.jobs.builders import IO, append_task, data_files, files_below, make_plan, rows_of
from tests.support.airflow_home import ROOT

DAY = date(2026, 1, 1)


def write_rows(path: Path, ids: range, **columns: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    days = pa.array([DAY + timedelta(days=number % 5) for number in ids], pa.date32())
    table = {"id": pa.array(ids, pa.int64()), "name": [f"n{number}" for number in ids], "day": days}
    pq.write_table(pa.table({**table, **columns}), path)


@pytest.fixture
def many_tasks(monkeypatch):
    """Small files are worth a task each."""
    monkeypatch.setattr(files, "MIN_TASK_BYTES", 1)


class TestRun:
    """A job over files stages all rows once, and its result document says the same as what it returns."""

    def test_rows_of_all_formats_come_together(self, tmp_path):
        write_rows(tmp_path / "in/a.parquet", range(3))
        (tmp_path / "in/b.csv").write_text("day,id\n2026-01-01,3\n")
        (tmp_path / "in/c.jsonl").write_text('{"id": 4, "name": "x"}\n')
        plan = make_plan(tmp_path, Source.from_files(f"{tmp_path}/in"))
        result = run_local(plan, IO)
        assert sorted(row["id"] for row in rows_of(plan, result)) == [0, 1, 2, 3, 4]
        assert {"id": 3, "name": None, "day": DAY} in rows_of(plan, result)
        assert {"id": 4, "name": "x", "day": None} in rows_of(plan, result)
        assert (result.record_count, result.source_files, result.engine) == (5, 3, "local")

    def test_the_result_is_in_the_document_and_names_files_by_the_try(self, tmp_path):
        write_rows(tmp_path / "a.parquet", range(3))
        plan = make_plan(tmp_path, Source.from_files(f"{tmp_path}/a.parquet"))
        result = run_local(plan, IO)
        (file,) = data_files(plan, result)
        assert file.file_path.startswith(f"{append_task(plan).write.data_location}/{plan.file_prefix}-00000-")
        assert JobResult.from_json(IO.read(plan.result_location)) == result
        # A second run has its own files, and does not believe what the document says.
        (other,) = data_files(plan, run_local(plan, IO))
        assert other.file_path != file.file_path
        assert JobResult.from_json(IO.read(plan.result_location)) == result

    @pytest.mark.parametrize("threads", [1, 3])
    def test_no_files_are_no_rows(self, threads, tmp_path):
        plan = make_plan(tmp_path, Source.from_files(f"{tmp_path}/*.csv"), partition_by=["day"])
        result = run_local(plan, IO, threads=threads)
        assert (result.status, result.data_files, result.record_count) == ("succeeded", (), 0)

    def test_files_without_rows_make_no_data_files(self, tmp_path):
        write_rows(tmp_path / "a.parquet", range(0))
        (tmp_path / "b.csv").write_text("id\n")
        (tmp_path / "c.csv").write_text("")
        plan = make_plan(tmp_path, Source.from_files([f"{tmp_path}/*.parquet", f"{tmp_path}/*.csv"]))
        assert run_local(plan, IO).data_files == ()

    @pytest.mark.parametrize("source", [Source.from_sql("select 1"), Source.from_callable("a:b")])
    def test_what_needs_spark_says_what_to_set(self, source, tmp_path):
        result = run_local(make_plan(tmp_path, source), IO)
        with pytest.raises(UnsupportedError, match="needs Spark; set spark_conn_id"):
            result.raise_for_error()


@pytest.mark.usefixtures("many_tasks")
class TestDistribution:
    """`hash` keeps the rows of a partition in one task, so that a partition gets one file; `none` does not."""

    def plan(self, root: Path, **settings: Any) -> JobPlan:
        for number in range(6):
            write_rows(root / f"in/{number}.parquet", range(number * 100, number * 100 + 100))
        return make_plan(root, Source.from_files(f"{root}/in/*"), partition_by=["day"], **settings)

    @pytest.mark.parametrize(("mode", "count"), [("hash", 1), ("range", 1), ("none", 3)])
    def test_the_files_of_a_partition(self, mode, count, tmp_path):
        plan = self.plan(tmp_path, distribution_mode=mode)
        result = run_local(plan, IO, threads=3)
        staged = data_files(plan, result)
        assert set(Counter(file.partition for file in staged).values()) == {count}
        for file in staged:
            days = pq.read_table(IO.filesystem(file.file_path)[1]).column("day").to_pylist()
            assert {(day - date(1970, 1, 1)).days for day in days} == set(file.partition)
        assert sorted(row["id"] for row in rows_of(plan, result)) == list(range(600))
        assert result.warnings == ()  # of range without an order, too
        assert files_below(plan.staging_location) == [plan.result_location]

    def test_nested_columns_pass_the_exchange(self, tmp_path):
        columns = {"k": "int", "tags": "list<string>", "m": "map<string, double>", "p": "struct<x: long, y: uuid>"}
        rows = [{"k": n % 3, "tags": ["a", None], "m": {"x": 1.5}, "p": {"x": n, "y": None}} for n in range(30)]
        for part in range(3):
            lines = "\n".join(json.dumps(row) for row in rows[part::3])
            (tmp_path / f"{part}.jsonl").write_text(lines)
        source = Source.from_files(f"{tmp_path}/*.jsonl")
        plan = make_plan(tmp_path, source, columns=columns, partition_by=["bucket(2, k)"])
        found = rows_of(plan, run_local(plan, IO, threads=3))
        assert sorted((row["p"]["x"], row["k"]) for row in found) == [(n, n % 3) for n in range(30)]
        assert all((row["tags"], row["m"]) == (["a", None], [("x", 1.5)]) for row in found)


class TestExchange:
    """Buckets do not depend on the process; they are dealt out evenly, a large one in parts."""

    @pytest.mark.services
    def test_a_bucket_is_the_same_everywhere(self):
        code = "from airflow_iceberg.jobs.exchange import bucket_of; print(bucket_of((1, 'ä', None), 128))"
        command = [sys.executable, "-R", "-c", code]
        found = {subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=True).stdout for _ in range(2)}
        assert found == {f"{bucket_of((1, 'ä', None), 128)}\n"}

    def test_all_nans_are_one_partition(self):
        assert bucket_of((float("nan"),), 128) == bucket_of((-float("nan"),), 128)

    def piece(self, bucket: int, size_bytes: int, path: str = "/a") -> Slice:
        return Slice(path=path, bucket=bucket, parts=((0, 1, ""),), record_count=1, size_bytes=size_bytes)

    def test_the_heaviest_go_first_to_who_has_least(self):
        slices = [self.piece(bucket, size) for bucket, size in enumerate([5, 9, 4, 6])]
        tasks = deal(slices, 2, target_file_size_bytes=1000)
        assert [[group[0].bucket for group in groups] for groups in tasks] == [[1, 2], [3, 0]]

    def test_a_bucket_is_divided_only_if_it_becomes_several_files(self):
        small, large = ([self.piece(0, size, f"/{number}") for number in range(4)] for size in (10, 600))
        assert deal(small, 3, target_file_size_bytes=1000) == [(tuple(small),)]
        assert len(deal(large, 4, target_file_size_bytes=100)) == 4


class TestFailures:
    """A failed job says why in words of its own, names the file, and leaves nothing that anybody refers to."""

    def failed(self, plan: JobPlan) -> JobResult:
        result = run_local(plan, IO, threads=2)
        assert result.status == "failed"
        assert JobResult.from_json(IO.read(plan.result_location)) == result
        return result

    @pytest.mark.usefixtures("many_tasks")
    @pytest.mark.parametrize("partition_by", [[], ["day"]])
    def test_a_wrong_value_in_one_of_many_files(self, partition_by, tmp_path):
        for number in range(12):
            (tmp_path / f"{number:02d}.csv").write_text(f"id,name\n{number},x\n{'oops' if number == 7 else 1},y\n")
        plan = make_plan(tmp_path, Source.from_files(f"{tmp_path}/*.csv"), partition_by=partition_by)
        with pytest.raises(InvalidInputError, match=rf"column 'id', row 2 of {tmp_path}/07\.csv: value 'oops'"):
            self.failed(plan).raise_for_error()
        assert files_below(exchange.location(plan)) == []

    def test_the_row_is_counted_through_the_whole_file(self, tmp_path, monkeypatch):
        monkeypatch.setattr("airflow_iceberg.jobs.context.COALESCE_ROWS", 10)
        monkeypatch.setattr("airflow_iceberg.jobs.sources.readers.JSON_BATCH_ROWS", 10)
        lines = [json.dumps({"id": None if number == 95 else number}) for number in range(1, 101)]
        (tmp_path / "a.jsonl").write_text("\n".join(lines))
        with pytest.raises(InvalidInputError, match=rf"column 'id', row 95 of {tmp_path}/a.jsonl: null"):
            self.failed(make_plan(tmp_path, Source.from_files(f"{tmp_path}/a.jsonl"))).raise_for_error()

    @pytest.mark.parametrize(
        ("text", "error", "message"),
        [
            ("name\nx\n", InvalidInputError, r"required column 'id' \(long\) is missing in .*a\.csv"),
            ("id,more\n1,2\n", InvalidInputError, r"column 'more' of .*a\.csv is not in the table"),
            ("id,more\n", InvalidInputError, r"column 'more'"),
            (None, NotFoundError, r"a\.csv does not exist"),
        ],
        ids=["missing column", "extra column", "extra column without rows", "missing file"],
    )
    def test_a_file_that_does_not_fit(self, text, error, message, tmp_path):
        if text is not None:
            (tmp_path / "a.csv").write_text(text)
        with pytest.raises(error, match=message):
            self.failed(make_plan(tmp_path, Source.from_files(f"{tmp_path}/a.csv"))).raise_for_error()

    def test_a_broken_file(self, tmp_path):
        (tmp_path / "a.parquet").write_bytes(b"PAR1 nothing PAR1")
        with pytest.raises(FormatError) as caught:
            self.failed(make_plan(tmp_path, Source.from_files(f"{tmp_path}/a.parquet"))).raise_for_error()
        assert caught.value.path == f"{tmp_path}/a.parquet"

    def test_a_data_location_that_cannot_be_written(self, tmp_path):
        write_rows(tmp_path / "a.parquet", range(2))
        (tmp_path / "wall").write_text("a file where a directory should be")
        plan = make_plan(
            tmp_path, Source.from_files(f"{tmp_path}/a.parquet"), data_location=f"file://{tmp_path}/wall/data"
        )
        with pytest.raises(StorageError, match=rf"file://{tmp_path}/wall/data"):
            self.failed(plan).raise_for_error()

    def test_half_written_files_of_the_failing_task_are_removed(self, tmp_path):
        (tmp_path / "a.csv").write_text("id\n1\n")
        (tmp_path / "b.csv").write_text("id\noops\n")
        plan = make_plan(tmp_path, Source.from_files(f"{tmp_path}/*.csv"))
        self.failed(plan)
        assert files_below(append_task(plan).write.data_location) == []


@pytest.mark.services
def test_jobs_run_where_airflow_cannot_be_imported(tmp_path):
    write_rows(tmp_path / "a.parquet", range(3))
    plan = make_plan(tmp_path, Source.from_files(f"{tmp_path}/a.parquet"), partition_by=["day"])
    IO.create(plan.location, plan.to_json())
    code = """
import sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("airflow", "pyspark") or name.startswith(
            ("airflow_iceberg.catalogs", "airflow_iceberg.commit", "airflow_iceberg.table")
        ):
            raise ImportError(f"{name} must not be imported")
sys.meta_path.insert(0, Refuse())
from airflow_iceberg.jobs import main, run_local
from airflow_iceberg.jobs.protocol.plan import JobPlan
from airflow_iceberg.jobs.spark import package, read_table, run
from airflow_iceberg.storage.stores.fsspec_io import load_file_io
io = load_file_io()
print(run_local.run_local(JobPlan.from_json(io.read(sys.argv[1])), io).record_count)
"""
    found = subprocess.run([sys.executable, "-c", code, plan.location], capture_output=True, text=True, cwd=ROOT)
    assert (found.stdout, found.stderr) == ("3\n", "")
