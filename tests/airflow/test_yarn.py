"""Jobs on a real YARN: they load rows, and end with their task; what a dead worker has left is ended by the next try.

Nothing is waited for but conditions, each with a limit.
"""

import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_iceberg.backends.backend import open_backend, run_job
from airflow_iceberg.backends.config import SparkConfig
from airflow_iceberg.backends.yarn import ResourceManager
from airflow_iceberg.errors import IcebergError
from airflow_iceberg.jobs.protocol.source import Source
from airflow_iceberg.operators.append import IcebergAppendOperator
from tests.airflow.conftest import Lake, operators
from tests.airflow.task_process import TaskProcess
from tests.services.yarn import RUNNING, Yarn
from tests.support.append_steps import plan_append

pytestmark = [pytest.mark.services, pytest.mark.spark, pytest.mark.slow]
MODES = ("client", "cluster")
SECRET = "s3cr3t-of-the-store"
append = operators(IcebergAppendOperator, task_id="append")


@pytest.fixture(scope="module")
def started() -> Iterator[Yarn]:
    yarn = Yarn()
    yield yarn
    yarn.remove()


@pytest.fixture
def yarn(started: Yarn, monkeypatch: pytest.MonkeyPatch) -> Yarn:
    for name, value in started.environment.items():
        monkeypatch.setenv(name, value)
    # Like an image of Airflow: none of Hadoop's commands.
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:/usr/bin:/bin")
    return started


@pytest.fixture
def on(yarn: Yarn, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Makes the Spark connection one to YARN in a deploy mode."""

    def connect(mode: str, **extra: str) -> None:
        connection = {"conn_type": "spark", "host": "yarn", "extra": {"deploy-mode": mode, **extra}}
        monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps(connection))

    return connect


@pytest.fixture
def start(lake: Lake, tmp_path: Path, yarn: Yarn, airflow_db: Path) -> Iterator[Callable[..., TaskProcess]]:
    lake.create()
    tasks = []

    def begin(name: str = "task", **options: Any) -> TaskProcess:
        tasks.append(TaskProcess(tmp_path / name, options, yarn.logs))
        return tasks[-1]

    yield begin
    for task in tasks:
        if task.worker.poll() is None:
            task.die()
    for application in yarn.applications(*RUNNING):
        yarn.kill(application["id"])


class TestAJob:
    """Files are read by executors in containers, in both deploy modes."""

    @pytest.mark.parametrize("mode", MODES)
    def test_loads_rows(self, mode, on, lake, yarn, run_task):
        on(mode)
        lake.create()
        files = str(lake.write_file("a.parquet", [1, 2, 3]))
        before = len(yarn.applications())
        run = run_task(append, files=files, spark_config=SparkConfig(conf={"spark.yarn.tags": "mine"}))
        assert run.state == "success", yarn.logs()[-5000:]
        assert lake.ids() == [1, 2, 3]
        assert lake.staged() == []
        (application,) = yarn.applications()[: len(yarn.applications()) - before]
        assert (application["state"], application["finalStatus"]) == ("FINISHED", "SUCCEEDED")
        assert "mine" in application["applicationTags"].split(",")


class TestATaskThatIsCancelled:
    """By Airflow, with SIGTERM: its application ends, whenever that comes, and nothing is committed."""

    @pytest.mark.parametrize("mode", MODES)
    def test_while_its_job_works(self, mode, on, lake, yarn, start, monkeypatch):
        on(mode)
        connection = lake.connection
        connection["extra"]["s3.secret-access-key"] = SECRET
        monkeypatch.setenv("AIRFLOW_CONN_ICEBERG_CATALOG_DEFAULT", json.dumps(connection))
        task = start()
        task.wait_until_it_works()
        (application,) = yarn.applications(*RUNNING)
        scripts = list((yarn.directory / "local").rglob("launch_container.sh"))
        assert scripts
        assert not [path for path in scripts if SECRET in path.read_text()]
        task.cancel()
        assert task.ended().startswith("AirflowException: the job for table s.t was killed; nothing was committed")
        ended = yarn.application(application["id"])["state"]
        # In deploy mode client the application may notice the end of its driver first, and end by itself.
        assert ended == "KILLED" if mode == "cluster" else ended not in RUNNING
        assert lake.load().current_snapshot() is None

    def test_twice_before_the_id_of_its_application_is_known(self, on, lake, yarn, start):
        on("cluster")
        before = len(yarn.applications())
        task = start()
        application = task.wait_for(lambda: len(yarn.applications()) > before and yarn.applications()[0], "YARN")
        task.cancel()
        task.cancel()
        assert "was killed; nothing was committed" in task.ended()
        assert yarn.application(application["id"])["state"] == "KILLED"
        assert not (task.folder / "begun").exists()

    def test_while_spark_submit_starts(self, on, yarn, start):
        on("cluster")
        task = start()
        task.wait_for(task.is_submitting, "spark-submit")
        task.cancel()
        assert "was killed; nothing was committed" in task.ended()
        assert yarn.applications(*RUNNING) == []

    def test_before_it_submits_anything(self, on, lake, yarn):
        on("cluster")
        table = lake.create()
        source = Source.from_sql("select 1 as id")
        made = open_backend("spark_default", SparkConfig(), table=table, source=source, name="job")
        before = len(yarn.applications())
        made.cancel()
        with pytest.raises(IcebergError, match="was killed; nothing was committed"):
            run_job(made, table, plan_append(table, source))
        assert len(yarn.applications()) == before


class TestAWorkerThatDied:
    """Its application runs on. The next try ends it, and no other."""

    def test_leaves_an_application_that_the_next_try_ends_first(self, on, lake, yarn, start):
        on("cluster")
        died, other = start("died"), start("other", map_index=7)
        died.wait_until_it_works()
        other.wait_until_it_works()
        died.die()
        found = {"/7/" in one["name"]: one for one in yarn.applications(*RUNNING)}
        assert len(found) == 2, found
        again = start("again", rows=3, **{"try": 2})
        assert again.ended() == "none", f"{again.log[-5000:]}{yarn.logs()[-5000:]}"
        assert f"an earlier try of this task has left {found[False]['id']} running on the cluster" in again.log
        assert lake.ids() == [0, 1, 2]
        assert len(lake.load().snapshots()) == 1
        new, old = yarn.applications()[0], yarn.application(found[False]["id"])
        assert (old["state"], new["finalStatus"]) == ("KILLED", "SUCCEEDED")
        assert old["finishedTime"] <= new["startedTime"]
        assert yarn.application(found[True]["id"])["state"] == "RUNNING"
        assert other.worker.poll() is None


class TestTheResourceManager:
    """As it is, and after it was restarted."""

    def test_tells_of_applications_and_ends_them(self, on, yarn, start):
        on("cluster")
        manager = ResourceManager.of({}, os.environ, {})
        assert (manager.find("airflow-iceberg-none"), manager.state("application_1_1")) == ([], None)
        start().wait_until_it_works()
        (application,) = yarn.applications(*RUNNING)
        tags = application["applicationTags"].split(",")
        assert len(tags) == 2
        for tag in tags:
            assert manager.find(tag) == [application["id"]]
        yarn.manager.kill()
        yarn.start_manager()
        found = manager.state(application["id"])
        assert found is not None
        assert (found.is_running, found.final_status, set(found.tags)) == (True, "UNDEFINED", set(tags))
        manager.end([application["id"]])
        manager.end([application["id"]])
        ended = manager.state(application["id"])
        assert ended is not None
        assert (ended.state, ended.final_status, manager.find(tags[0])) == ("KILLED", "KILLED", [])
