"""What a task says when its Spark cannot work: the cause is the first thing, and Spark's own output is folded."""

import json
import re
import subprocess
import sys
import venv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from airflow_iceberg.backends.backend import open_backend, run_job
from airflow_iceberg.backends.config import SparkConfig
from airflow_iceberg.backends.spark_output import SparkOutput
from airflow_iceberg.errors import IcebergError, StalePlanError
from airflow_iceberg.jobs.main import main
from airflow_iceberg.jobs.protocol.source import Source
from tests.airflow.conftest import Lake
from tests.airflow.live import _free_port
from tests.support.append_steps import plan_append
from tests.support.on_call import check_error

QUIET = {"spark.ui.enabled": "false"}
WITH_SERVICES = pytest.mark.services


@pytest.fixture
def failing(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> Callable[..., IcebergError]:
    """Submits a job to a real Spark and returns why it failed."""

    def run(master: str = "local[1]", **config: Any) -> IcebergError:
        monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps({"conn_type": "spark", "host": master}))
        table = lake.create()
        source = Source.from_sql("select id from range(3)")
        config["conf"] = {**QUIET, **config.pop("conf", {})}
        made = open_backend("spark_default", SparkConfig(**config), table=table, source=source, name="job")
        with pytest.raises(IcebergError) as caught:
            run_job(made, table, plan_append(table, source)).raise_for_error()
        assert lake.load().current_snapshot() is None
        return caught.value

    return run


@pytest.fixture
def bare_python(tmp_path: Path) -> str:
    venv.create(tmp_path / "bare", symlinks=True)
    python = str(tmp_path / "bare" / "bin" / "python")
    assert subprocess.run([python, "-c", "import pyarrow"], capture_output=True, check=False).returncode == 1
    return python


def first_line(error: IcebergError) -> str:
    return str(error).splitlines()[0]


@pytest.mark.spark
@pytest.mark.slow
class TestTheFirstLineNamesTheCause:
    """With a real spark-submit that really fails."""

    @pytest.mark.services
    def test_memory_with_which_java_does_not_start(self, failing, capfd):
        error = failing(driver_memory="1m")
        assert isinstance(error, StalePlanError)
        assert first_line(error).startswith(
            "Java does not start with this driver_memory: Too small maximum heap; choose another amount; the job for "
        )
        self.check_folded(capfd.readouterr().out, "Too small maximum heap")
        check_error("Java does not start with the memory that was asked for", error)

    def check_folded(self, log: str, spark_said: str) -> None:
        before, group, rest = log.partition("::group::Output of spark-submit")
        assert group
        inside, end, after = rest.partition("::endgroup::")
        assert end
        assert (spark_said in before, spark_said in inside, spark_said in after) == (False, True, False)

    @pytest.mark.services
    def test_a_package_that_the_driver_lacks(self, failing, bare_python):
        error = failing(conf={"spark.pyspark.driver.python": bare_python, "spark.pyspark.python": sys.executable})
        assert first_line(error).startswith(
            f"the Python of the driver, {bare_python}, cannot run the job: No module named "
        )
        check_error("a package is missing on the driver", error)

    @WITH_SERVICES
    def test_a_package_that_the_executors_lack(self, failing, bare_python):
        error = failing(conf={"spark.pyspark.driver.python": sys.executable, "spark.pyspark.python": bare_python})
        assert first_line(error).startswith(
            "the Spark job failed: the Python of the executors has no package 'pyarrow'; install it there, or set "
        )
        check_error("a package is missing on the executors", error)

    @WITH_SERVICES
    def test_a_python_that_the_executors_lack(self, failing):
        python = {"spark.pyspark.driver.python": sys.executable, "spark.pyspark.python": "/no/python"}
        error = failing(conf=python)
        assert first_line(error).startswith(
            "Spark cannot start /no/python, there is no such file; set spark.pyspark.python (PYSPARK_PYTHON) to a "
        )
        check_error("the executors have no such Python", error)

    @WITH_SERVICES
    def test_too_little_memory_for_spark(self, failing):
        # How much of 100 MiB the JVM counts depends on its garbage collector.
        assert re.match(
            r"the driver has too little memory: \d{8,9} bytes, expected at least 471859200; raise driver_memory; ",
            first_line(failing(driver_memory="100m")),
        )

    @WITH_SERVICES
    def test_a_master_that_does_not_answer(self, failing):
        master = f"spark://127.0.0.1:{_free_port()}"
        error = failing(master)
        assert first_line(error).startswith(
            f"no Spark master answers at {master}; check the connection's host, and that a Spark of this version runs "
        )
        check_error("the master of Spark does not answer", error)

    @pytest.mark.services
    def test_a_cluster_that_is_not_configured(self, failing, monkeypatch):
        for name in ("HADOOP_CONF_DIR", "YARN_CONF_DIR"):
            monkeypatch.delenv(name, raising=False)
        assert first_line(failing("yarn")).startswith(
            "spark-submit failed: When running with master 'yarn' either HADOOP_CONF_DIR or YARN_CONF_DIR must be set"
        )


class TestWhatSparkSays:
    """Lines of Spark that no machine of one node can be made to print, as its sources have them."""

    def cause(self, *lines: str, exit_code: int | None = 1) -> str | None:
        output = SparkOutput(master="spark://h:7077")
        assert list(output.watched(lines)) == list(lines)
        output.exit_code = exit_code
        return output.cause(died=True)

    def test_without_anything_known_it_is_the_exit_code(self):
        cause = "the driver ended with exit code 1; read the end of spark-submit's output, in the group above"
        assert self.cause("INFO all is well") == cause
        assert SparkOutput(master="m").cause("the moon", died=False) is None

    def test_of_a_long_line_the_beginning_is_searched(self):
        """Spark prints rows that it cannot read; some patterns take time by the square of a line."""
        parts = ("InvalidClassException: org.apache.spark", "ConnectException: ", "Could not reserve enough space ")
        for part in (*parts, 'Cannot run program "a" ', "ExecutorLostFailure ", "Required AM memory "):
            line = part * (300_000 // len(part))
            self.cause(line)
            SparkOutput(master="m").cause(line, died=False)
        memory = "java.lang.OutOfMemoryError: Java heap space"
        none = self.cause("x")
        assert self.cause("x" * 100 + memory + "y" * 100_000) != none
        assert self.cause("x" * 5_000 + memory) == none

    def test_of_a_long_error_of_the_job_the_middle_is_left_out(self):
        """The last lines of a traceback say what has happened."""
        memory, stack = "java.lang.OutOfMemoryError: Java heap space", "  at a.b.C\n" * 50_000
        heap = "Java ran out of memory (Java heap space); raise driver_memory or executor_memory"
        for text in (f"{stack}{memory}", f"{memory}\n{stack}", f"{stack}{memory}\n{'x' * 10_000}"):
            assert SparkOutput(master="m").cause(text, died=False) == heap
        assert SparkOutput(master="m").cause(f"{stack}{memory}\n{stack}", died=False) is None

    def test_a_signal_comes_before_what_was_printed_earlier(self):
        slow = "WARN TaskSchedulerImpl: Initial job has not accepted any resources; check your cluster UI"
        to_do = "most often memory ran out: give the worker more, or the job less"
        assert self.cause(exit_code=-9) == f"spark-submit was killed by SIGKILL; {to_do}"
        assert self.cause(exit_code=137) == f"the driver was killed by SIGKILL; {to_do}"
        assert self.cause(slow, exit_code=137) == (
            "the driver was killed by SIGKILL; its output says: the cluster at spark://h:7077 gives the job no "
            "executors; request less memory or fewer cores, or wait until workers are free"
        )

    def test_a_package_that_the_driver_lacks_is_final_unless_a_signal_has_ended_it(self, capsys, monkeypatch):
        """The driver cannot read its plan, and so writes no result: its output alone tells."""
        monkeypatch.setitem(sys.modules, "s3fs", None)
        monkeypatch.delitem(sys.modules, "airflow_iceberg.storage.stores.s3", raising=False)
        assert main(["s3://lake/plan.json", "0-" + 64 * "0"]) == 2
        said = capsys.readouterr().out
        output = SparkOutput(master="m")
        assert "".join(output.watched(["INFO before\n", said])).endswith(said)
        cause = output.cause(died=True)
        assert cause is not None
        assert cause.startswith("the Python of the driver cannot use s3://lake/plan.json: import of s3fs halted; ")
        assert cause.endswith("; install airflow-iceberg[s3] there")
        for exit_code, is_final in ((2, True), (1, True), (-9, False), (137, False)):
            output.exit_code = exit_code
            assert output.lacks_package(died=True) is is_final
        # An earlier cause explains this one.
        list(output.watched(["java.lang.OutOfMemoryError: Java heap space"]))
        output.exit_code = 2
        assert not output.lacks_package(died=True)
        assert not SparkOutput(master="m").lacks_package(died=True)

    @pytest.mark.parametrize(
        ("line", "cause"),
        [
            (
                "Caused by: java.lang.OutOfMemoryError: Java heap space",
                "Java ran out of memory (Java heap space); raise driver_memory or executor_memory",
            ),
            (
                "org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)",
                (
                    "a Python worker of the executors was killed, most often because memory ran out; raise "
                    "executor_memory or spark.executor.memoryOverhead"
                ),
            ),
            (
                (
                    "pyspark.errors.exceptions.base.PySparkRuntimeError: [PYTHON_VERSION_MISMATCH] Python in worker "
                    "has different version: 3.9 than that in driver: 3.11, PySpark cannot run with different minor"
                ),
                (
                    "the executors run Python 3.9 and the driver Python 3.11; set spark.pyspark.python "
                    "(PYSPARK_PYTHON) to the driver's version"
                ),
            ),
            (
                "INFO Client: Retrying connect to server: rm/10.0.0.1:8032. Already tried 3 time(s)",
                (
                    "no YARN resource manager answers at rm/10.0.0.1:8032; check HADOOP_CONF_DIR, and that the "
                    "resource manager runs"
                ),
            ),
            (
                "java.io.InvalidClassException: org.apache.spark.rpc.RpcEndpointRef; local class incompatible: stream",
                (
                    "the cluster at spark://h:7077 runs another version of Spark than this machine; set SPARK_HOME to "
                    "that version"
                ),
            ),
        ],
    )
    def test_in_one_sentence_with_what_to_do(self, line, cause):
        assert self.cause("INFO before", line, "INFO after") == cause
