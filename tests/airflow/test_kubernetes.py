"""Jobs on Kubernetes in deploy mode cluster: awaited, deferred, followed and ended, against a stand-in of its API.

The real back end submits, with a `spark-submit` that hands its command to the stand-in; jobs run in threads.
"""

import asyncio
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import BaseHook

from airflow_iceberg.backends import following, kubernetes_access
from airflow_iceberg.backends.applications import Applications
from airflow_iceberg.backends.backend import open_backend, run_job
from airflow_iceberg.backends.config import SparkConfig
from airflow_iceberg.backends.kubernetes import ApiServer
from airflow_iceberg.backends.spark_submit import SparkSubmit
from airflow_iceberg.commit.operation_key import OperationKey
from airflow_iceberg.errors import IcebergError
from airflow_iceberg.jobs.protocol.source import Source
from airflow_iceberg.operators import IcebergAppendOperator
from airflow_iceberg.triggers import IcebergJobTrigger
from tests.airflow.conftest import operators
from tests.support.append_steps import plan_append
from tests.support.stand_in_cluster import Submitted
from tests.support.stand_in_kubernetes import StandInKubernetes

TOKEN = "the-t0ken-of-etl"
LABEL = "spark.kubernetes.driver.label.airflow-iceberg-"
append = operators(IcebergAppendOperator, task_id="append", poll_interval=0.1)


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StandInKubernetes]:
    made = StandInKubernetes(tmp_path)
    monkeypatch.setenv("SPARK_HOME", str(made.home))
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps(made.connection))
    monkeypatch.setattr(kubernetes_access, "SERVICE_ACCOUNT", tmp_path / "none")
    yield made
    made.close()


@pytest.fixture
def rows(lake: Any) -> str:
    lake.create()
    return str(lake.write_file("a.parquet", [1, 2]))


class TestAJob:
    """It is submitted with labels and without secrets; what it has signed is committed, awaited or deferred."""

    @pytest.mark.services
    @pytest.mark.parametrize("deferrable", [True, False])
    def test_loads_rows(self, deferrable, cluster, rows, lake, run_task, caplog, capfd):
        run = run_task(append, files=rows, deferrable=deferrable)
        assert (run.state, run.failures, lake.ids(), lake.staged()) == ("success", [], [1, 2], [])
        (one,) = cluster.submitted
        assert one.conf["spark.kubernetes.submission.waitAppCompletion"] == str(not deferrable).lower()
        assert one.conf["spark.kubernetes.namespace"] == "jobs"
        assert one.conf[f"{LABEL}work"] != one.conf[f"{LABEL}submission"]
        assert not Path(one.conf["spark.kubernetes.authenticate.submission.oauthTokenFile"]).exists()
        for shown in (" ".join(one.argv), caplog.text, *capfd.readouterr(), json.dumps(run.result("append"))):
            assert TOKEN not in shown

    @pytest.mark.services
    def test_that_has_signed_nothing(self, cluster, rows, lake, run_task):
        cluster.then = lambda one: cluster.end(one, "FAILED", "OOMKilled")
        (error,) = run_task(append, files=rows, deferrable=True).failures
        assert "ended without a result" in str(error)
        assert "ended on Kubernetes with phase Failed: exit code 137, OOMKilled" in str(error)
        assert (lake.ids(), lake.staged()) == ([], [])

    @pytest.mark.services
    def test_whose_pod_is_said_to_have_failed_though_it_has_signed(self, cluster, rows, lake, run_task):
        def finish(one: Submitted) -> None:
            cluster.finish(one)
            cluster.end(one, "FAILED", "Error")

        cluster.then = finish
        assert run_task(append, files=rows, deferrable=True).state == "success"
        assert lake.ids() == [1, 2]


@pytest.mark.services
@pytest.mark.spark
@pytest.mark.slow
class TestSparksOwnSubmission:
    """The real spark-submit creates the pod at the stand-in: no container runs, but all that is sent is seen."""

    def test_labels_the_pod_and_sends_no_secret_to_the_cluster(self, cluster, lake, tmp_path, monkeypatch):
        monkeypatch.delenv("SPARK_HOME")
        conf = {"spark.kubernetes.container.image": "x", "spark.kubernetes.file.upload.path": f"file://{tmp_path}/up"}
        table = lake.create()
        source = Source.from_sql("select 's3cr3t-value' as id")
        made = open_backend("spark_default", SparkConfig(conf=conf), table=table, source=source, name="job")
        assert isinstance(made, SparkSubmit)
        key = OperationKey.parse("dag/run/home/task/-1/1")
        reference = made.submit(plan_append(table, source, operation_key=key))
        (one,) = cluster.submitted
        assert reference["pod"] == f"{one.id}/uid-0"
        kinds = {document["kind"] for document in cluster.created}
        assert {"Pod", "Service", "ConfigMap"} <= kinds
        sent = json.dumps(cluster.created)
        for secret in (TOKEN, "s3cr3t-value", made._result_secret):
            assert secret not in sent
        # The next try finds it by its work, and ends it; a trigger follows it by its submission.
        assert following.follow(reference).look() is None
        Applications(str(key), str(table.metadata.table_uuid), lambda: server(cluster)).end_earlier()
        assert cluster.is_deleted(one)
        assert [following.follow(reference).look() for _ in range(2)] == [None, None]


def server(cluster: StandInKubernetes) -> ApiServer:
    connection = BaseHook.get_connection("spark_default")
    return ApiServer.of(connection, {}, {"spark.kubernetes.namespace": cluster.namespace})


class TestWhatAnEarlierTryHasLeft:
    """It is ended, by its label, before the next try submits its own; and nothing else is."""

    @pytest.mark.services
    def test_by_a_retry(self, cluster, rows, lake, run_task):
        other = cluster.add("other-driver", airflow_iceberg_work="airflow-iceberg-of-another-table")
        seen: list[bool] = []

        def once(one: Submitted) -> None:
            if len(cluster.submitted) == 2:
                # Its labels are known only now. The worker dies, and the pod runs on.
                raise RuntimeError("the connection is lost after the submission")
            seen.append(cluster.is_deleted(cluster.submitted[1]))
            cluster.finish(one)

        cluster.then = once
        # spark-submit fails, and what it has submitted cannot be deleted at that time.
        cluster.may_delete = False
        real = cluster.answer

        def allow_later(method: str, *arguments: Any) -> Any:
            found = real(method, *arguments)
            cluster.may_delete = cluster.may_delete or method == "DELETE"
            return found

        cluster.answer = allow_later
        run = run_task(append, files=rows, retries=1, deferrable=True)
        assert (run.state, lake.ids(), seen) == ("success", [1, 2], [True])
        assert not cluster.is_deleted(other)


class TestATaskThatIsEnded:
    """Its driver pod is deleted, awaited or deferred, and no other pod."""

    @pytest.mark.services
    def test_while_it_waits(self, cluster, lake):
        table = lake.create()
        source = Source.from_files(str(lake.write_file("a.parquet", [1])))
        made = open_backend("spark_default", SparkConfig(), table=table, source=source, name="job")
        cancelled = threading.Event()

        def cancel(one: Submitted) -> None:
            made.cancel()
            cancelled.set()

        cluster.then = cancel
        with pytest.raises(IcebergError, match="was killed; nothing was committed"):
            run_job(made, table, plan_append(table, source))
        assert cancelled.wait(60)
        (one,) = cluster.submitted
        assert cluster.is_deleted(one)

    @pytest.mark.services
    def test_while_it_is_deferred(self, cluster, rows, lake, run_task):
        triggers: list[IcebergJobTrigger] = []

        def end(one: Submitted) -> None:
            other = cluster.add("other-driver", airflow_iceberg_work=one.conf[f"{LABEL}work"])
            made = run_trigger(one)
            asyncio.run(made.cleanup())
            assert not cluster.is_deleted(one)
            asyncio.run(made.on_kill())
            asyncio.run(made.on_kill())
            assert (cluster.is_deleted(one), cluster.is_deleted(other)) == (True, False)
            triggers.append(made)

        def run_trigger(one: Submitted) -> IcebergJobTrigger:
            reference = {
                "kind": "kubernetes",
                "pod": "airflow-iceberg-1-driver/uid-0",
                "tag": one.conf[f"{LABEL}submission"],
                "server": cluster.url,
                "namespace": "jobs",
                "conn_id": "spark_default",
                "settings": {},
            }
            return IcebergJobTrigger(**json.loads(json.dumps({"reference": reference})))

        cluster.then = end
        (error,) = run_task(append, files=rows, deferrable=True).failures
        assert len(triggers) == 1
        assert "nothing was committed" in str(error) or "does not know" in str(error)
        assert lake.ids() == []
