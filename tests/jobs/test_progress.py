"""The log says how far a job is, by a clock of the test."""

import logging
import re
from typing import Any

import pytest

from airflow_iceberg.jobs.progress import Progress, watched
from airflow_iceberg.jobs.task import TaskReport
from tests.jobs.submissions import HERE, VERSIONS


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def report(rows: int, *sizes: int) -> TaskReport:
    files: Any = tuple({"file-size-in-bytes": size} for size in sizes)
    return TaskReport(number=0, record_count=rows, data_files=files)


def progress(interval_s: float = 15.0) -> tuple[Progress, Clock, list[str]]:
    clock, said = Clock(), list[str]()
    return Progress("append s.t", say=said.append, clock=clock, interval_s=interval_s), clock, said


class TestWhatIsSaid:
    """A line at the start, and one at least every 15 seconds, whether or not a task has ended meanwhile."""

    def test_of_tasks_that_report(self):
        found, clock, said = progress()
        found.begin(4)
        for seconds, done in ((14.9, 0), (0.1, 2), (14.9, 0), (0.1, 1)):
            clock.now += seconds
            for _ in range(done):
                found.add(report(30_000, 3 << 20, 1 << 20))
            found.look()
        first, second = "4 files, 60,000 rows, 8.0 MiB", "6 files, 90,000 rows, 12.0 MiB"
        assert said == [
            "append s.t: 4 tasks started",
            f"append s.t: 2 of 4 tasks ended (50 %) after 15 s: {first}; 4,000 rows/s, 546.1 KiB/s",
            f"append s.t: 3 of 4 tasks ended (75 %) after 30 s: {second}; 3,000 rows/s, 409.6 KiB/s",
        ]

    def test_while_no_task_has_ended(self):
        found, clock, said = progress()
        found.begin(1)
        for _ in range(3):
            clock.now += 15
            found.look()
        assert said[1:] == [f"append s.t: 0 of 1 tasks ended (0 %) after {n} s" for n in (15, 30, 45)]

    def test_of_tasks_that_only_spark_counts(self):
        found, clock, said = progress()
        found.begin(None)
        found.ended(7, 8)
        clock.now += 20
        found.look()
        assert said == ["append s.t: tasks started", "append s.t: 7 of 8 tasks ended (87 %) after 20 s"]

    def test_each_phase_counts_anew(self):
        found, clock, said = progress()
        found.begin(2)
        found.add(report(1, 1))
        clock.now += 100
        found.begin(3)
        clock.now += 15
        found.look()
        assert said[-1] == "append s.t: 0 of 3 tasks ended (0 %) after 15 s"


class TestOnSpark:
    """Files, rows and bytes are told while tasks run, from a classic session and from one of Spark Connect."""

    @pytest.mark.services
    @pytest.mark.parametrize("version", VERSIONS)
    def test_it(self, version, spark_of, tmp_path):
        spark_of(version).run(HERE / "progress_program.py", str(tmp_path))
        lines = (tmp_path / "lines").read_text().splitlines()
        assert (tmp_path / "told").exists(), lines
        found = next(line for line in lines if "2 files" in line)
        pattern = (
            r"append s.t: [0-2] of 4 tasks ended \(\d+ %\) after \d+ s: 2 files, 20 rows, 2.0 MiB; [\d,]+ rows/s, .*/s"
        )
        assert re.fullmatch(pattern, found), found


class TestTheLooks:
    """Another thread looks while the tasks run, and ends with them."""

    def test_an_error_of_the_question_is_of_no_importance(self, monkeypatch):
        monkeypatch.setattr("airflow_iceberg.jobs.progress._LOOK_S", 0.001)
        found, _, said = progress(interval_s=0)
        asked = []

        def ask() -> None:
            asked.append(1)
            raise RuntimeError("Spark has gone")

        with watched(found, ask):
            while len(said) < 3:
                pass
        count = len(said)
        assert asked
        assert len(said) == count

    def test_a_job_in_this_process_says_it(self, tmp_path, caplog, monkeypatch):
        import pyarrow as pa
        import pyarrow.parquet as pq

        from airflow_iceberg.catalogs import load_catalog
        from airflow_iceberg.jobs.protocol.source import Source
        from airflow_iceberg.jobs.run_local import run_local
        from airflow_iceberg.operations.append import AppendRequest, append
        from airflow_iceberg.operations.work import Work
        from airflow_iceberg.table import Table

        catalog = load_catalog("c", type="hadoop", warehouse=tmp_path.as_uri())
        catalog.create_namespace("s")
        table = Table.create(catalog, "s.t", schema={"id": "long"})
        pq.write_table(pa.table({"id": [1, 2]}), tmp_path / "a.parquet")
        monkeypatch.setattr("airflow_iceberg.jobs.progress.INTERVAL_S", 0.0)
        with caplog.at_level(logging.INFO, "airflow_iceberg.jobs.progress"):
            append(
                Work(table, run=lambda plan: run_local(plan, table.io)),
                AppendRequest(rows=Source.from_files([str(tmp_path / "a.parquet")])),
            )
        assert caplog.messages[0] == "append s.t: 1 task started"
