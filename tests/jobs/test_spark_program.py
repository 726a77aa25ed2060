"""The program of a job as spark-submit runs it: how it ends, and what a worker that is killed leaves."""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from airflow_iceberg.jobs.protocol.result import JobResult
from airflow_iceberg.jobs.protocol.source import Source
from airflow_iceberg.jobs.spark.package import main_program
from tests.jobs.builders import IO, append_task, data_files, files_below, make_plan, rows_of
from tests.jobs.submissions import SPARK_4, SPARK_35, submission, submit, write_csv_files

# With make test the operators submit it to Spark 4.
OF_SPARK_4 = pytest.param(SPARK_4, marks=[pytest.mark.spark, pytest.mark.services])
# With make test it is the changed plan that Spark 3.5 is given.
OF_SPARK_35 = pytest.param(SPARK_35, marks=[pytest.mark.java, pytest.mark.services])


class TestProgram:
    """`main.py` reads the plan, writes the result, says one line and tells by its exit code how it went."""

    @pytest.mark.parametrize("version", [OF_SPARK_4, OF_SPARK_35])
    def test_success(self, version, tmp_path):
        plan = make_plan(tmp_path, write_csv_files(tmp_path / "in"), partition_by=["day"])
        IO.create(plan.location, plan.to_json())
        ended = submit(version, tmp_path, main_program(), plan.location, str(plan.seal))
        assert ended.returncode == 0, ended.stderr[-5000:]
        assert "airflow_iceberg: append sales.orders: staged 24 rows in 6 files in " in ended.stdout
        assert JobResult.from_json(IO.read(plan.result_location)).record_count == 24

    @pytest.mark.services
    @pytest.mark.parametrize("version", [pytest.param(SPARK_35, marks=pytest.mark.java)])
    def test_a_changed_plan_is_not_run(self, version, tmp_path):
        plan = make_plan(tmp_path, write_csv_files(tmp_path / "in"))
        IO.create(plan.location, make_plan(tmp_path, Source.from_sql("select 1 as id")).to_json())
        ended = submit(version, tmp_path, main_program(), plan.location, str(plan.seal))
        assert ended.returncode == 2
        assert "the job plan is not the one that was written" in ended.stdout
        assert files_below(append_task(plan).write.data_location) == []

    @pytest.mark.services  # how a job fails on Spark 4 is seen with make test through the operator
    @pytest.mark.parametrize("version", [OF_SPARK_4, pytest.param(SPARK_35, marks=pytest.mark.java)])
    def test_failure(self, version, tmp_path):
        plan = make_plan(tmp_path, write_csv_files(tmp_path / "in", wrong=7))
        IO.create(plan.location, plan.to_json())
        ended = submit(version, tmp_path, main_program(), plan.location, str(plan.seal))
        assert ended.returncode == 1
        assert "failed: InvalidInputError: column 'id', row 2 of" in ended.stdout
        assert "Traceback" not in ended.stdout + ended.stderr
        assert files_below(append_task(plan).write.data_location) == []


@pytest.mark.spark
@pytest.mark.services
@pytest.mark.parametrize("signalled", ["once", "for good"])
def test_a_killed_worker_leaves_only_files_that_nobody_refers_to(signalled, tmp_path):
    """Spark tries the task again where it may; only the files of the attempt that came through are named."""
    small = {"write.parquet.row-group-size-bytes": "100000"}
    source = Source.from_callable("frames:slow")
    plan = make_plan(tmp_path, source, columns={"id": "long"}, properties=small)
    IO.create(plan.location, plan.to_json())
    command, environ = submission(SPARK_4, tmp_path)
    master = "local[2,2]" if signalled == "once" else "local[2]"
    process = subprocess.Popen(
        [*command, "--master", master, str(main_program()), plan.location, str(plan.seal)],
        cwd=tmp_path,
        env=environ,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        wait_for(lambda: bool(files_below(append_task(plan).write.data_location)))
        orphans = files_below(append_task(plan).write.data_location)
        victims = python_workers(process.pid)
        assert victims
        for victim in victims:
            with contextlib.suppress(ProcessLookupError):
                os.kill(victim, signal.SIGKILL)
        process.wait(timeout=500)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    result = JobResult.from_json(IO.read(plan.result_location))
    named = {file.file_path for file in data_files(plan, result)}
    assert named.isdisjoint(orphans)
    if signalled == "once":
        assert sorted(row["id"] for row in rows_of(plan, result)) == list(range(600_000))
    else:
        assert (result.status, named) == ("failed", set())


def wait_for(happened: Any, seconds: float = 500.0) -> None:
    end = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.05)


def python_workers(root: int) -> Sequence[int]:
    """Return the Python workers below a process: the children of the daemons."""
    found = [pid for pid in descendants(root) if "pyspark.daemon" in command_line(pid)]
    return [pid for pid in found if "pyspark.daemon" in command_line(parent(pid))]


def descendants(root: int) -> Iterator[int]:
    children = [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if parent(pid) == root]
    for child in children:
        yield child
        yield from descendants(child)


def parent(pid: int) -> int:
    with contextlib.suppress(OSError):
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return 0


def command_line(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    return ""
