"""Jobs on a real standalone cluster of Spark: they load rows, and their application ends with their task."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from airflow_iceberg.backends.config import SparkConfig
from airflow_iceberg.operators.append import IcebergAppendOperator
from tests.airflow.conftest import Lake, operators
from tests.airflow.task_process import TaskProcess
from tests.services.spark_standalone import Standalone

pytestmark = [pytest.mark.services, pytest.mark.spark, pytest.mark.slow]
append = operators(IcebergAppendOperator, task_id="append")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Standalone]:
    started = Standalone()
    yield started
    started.stop()


@pytest.fixture(autouse=True)
def connection(cluster: Standalone, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps({"conn_type": "spark", "host": cluster.url}))


def test_a_job_loads_rows(lake, cluster, run_task):
    lake.create()
    files = str(lake.write_file("a.parquet", [1, 2, 3]))
    conf = {"spark.pyspark.python": sys.executable, "spark.executor.memory": "512m", "spark.ui.enabled": "false"}
    assert run_task(append, files=files, spark_config=SparkConfig(conf=conf)).state == "success"
    assert lake.ids() == [1, 2, 3]
    assert cluster.applications() == []
    assert len(cluster.applications("completedapps")) == 1


@pytest.mark.parametrize("how", ["cancel", "die", "lose_worker"])
def test_the_application_ends_with_its_task(how, lake: Lake, cluster: Standalone, tmp_path: Path, airflow_db: Path):
    lake.create()
    task = TaskProcess(tmp_path / "task", {})
    task.wait_until_it_works()
    (application,) = cluster.applications()
    getattr(task, how)()
    if how == "cancel":
        assert task.ended().startswith("AirflowException: the job for table s.t was killed; nothing was committed")
    task.wait_for(lambda: cluster.applications() == [], "the application to end")
    assert application["id"] in [one["id"] for one in cluster.applications("completedapps")]
    assert lake.load().current_snapshot() is None
