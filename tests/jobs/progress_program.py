"""Runs a job of four tasks, two of which end only when the log has told what the first two did."""

import time
from pathlib import Path

from airflow_iceberg.jobs.progress import Progress
from airflow_iceberg.jobs.spark.following import new_counters, reports_of
from airflow_iceberg.jobs.spark.package import ship
from airflow_iceberg.jobs.spark.worker import Worker
from airflow_iceberg.jobs.task import TaskReport


def main(session, folder):
    ship(session)
    told, counters = Path(folder) / "told", new_counters(session)
    worker = Worker(plan=b"", storage={}, max_failures=1, counters=counters)

    def work(number):
        deadline = time.monotonic() + 60
        while number > 1 and not told.exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        return TaskReport(number=number, record_count=10, data_files=({"file-size-in-bytes": 1 << 20},))

    def run(batches):
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield worker._report(number, lambda number=number: work(number))

    def say(line):
        lines.append(line)
        if "2 files, 20 rows, 2.0 MiB; " in line:
            told.touch()

    lines = []
    progress = Progress("append s.t", say=say, interval_s=0)
    progress.begin(4)
    frame = session.range(0, 4, 1, 4).mapInArrow(run, "report string")
    reports = reports_of(frame, session, progress, counters)
    assert sorted(report.number for report in reports) == [0, 1, 2, 3], reports
    (Path(folder) / "lines").write_text("\n".join(lines))
