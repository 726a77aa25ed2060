"""Operators that are deferred while their job runs on a cluster, under `dag.test()`, which also runs their trigger."""

import asyncio
import json
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from airflow.providers.common.compat.sdk import AirflowException
from airflow.sdk import DAG, task

from airflow_iceberg.backends import following, yarn
from airflow_iceberg.errors import InvalidInputError
from airflow_iceberg.operators import (
    IcebergAppendOperator,
    IcebergCompactOperator,
    IcebergDeleteOperator,
    IcebergExpireSnapshotsOperator,
    IcebergMergeOperator,
    IcebergOverwriteOperator,
    IcebergUpdateOperator,
)
from airflow_iceberg.triggers import IcebergJobTrigger
from tests.airflow.conftest import first_event, operators
from tests.support.stand_in_yarn import StandInYarn, Submitted

DEFERRED = {"deferrable": True, "poll_interval": 0.1}
append = operators(IcebergAppendOperator, task_id="append", **DEFERRED)
compact = operators(IcebergCompactOperator, task_id="compact", options={"rewrite-all": True}, **DEFERRED)


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StandInYarn]:
    made = StandInYarn(tmp_path)
    monkeypatch.setenv("SPARK_HOME", str(made.home))
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps(made.connection))
    yield made
    made.close()


@pytest.fixture
def table(lake: Any) -> Any:
    made = lake.create()
    lake.append([1, 2])
    lake.append([3, 4])
    return made


def trigger(one: Submitted, cluster: StandInYarn, **options: Any) -> IcebergJobTrigger:
    manager = yarn.ResourceManager([cluster.url], user="etl")
    return IcebergJobTrigger(**{"reference": manager.reference("a", one.id), "poll_interval": 0.1, **options})


class TestEveryOperator:
    """The task frees its slot, and commits once when the job has ended."""

    @pytest.mark.costly
    @pytest.mark.parametrize(
        ("operator", "options", "expected", "jobs"),
        [
            (IcebergAppendOperator, {"files": "{}"}, [1, 2, 3, 4, 4, 5], 1),
            (IcebergOverwriteOperator, {"files": "{}", "overwrite_filter": "id >= 4"}, [1, 2, 3, 4, 5], 2),
            (IcebergDeleteOperator, {"predicate": "id = 2"}, [1, 3, 4], 1),
            (IcebergCompactOperator, {"options": {"rewrite-all": True}}, [1, 2, 3, 4], 1),
        ],
        ids=["append", "overwrite", "delete", "compact"],
    )
    def test_is_deferred_and_commits_once(
        self, operator, options, expected, jobs, cluster, table, lake, run_task, caplog
    ):
        if "files" in options:
            options = {**options, "files": str(lake.write_file("a.parquet", [4, 5]))}
        before = len(lake.load().snapshots())
        run = run_task(operators(operator, task_id="t", **DEFERRED), **options)
        assert (run.state, run.failures) == ("success", [])
        assert lake.ids() == expected
        assert run.result("t")["outcome"] == "committed"
        assert len(lake.load().snapshots()) == before + 1
        assert len(cluster.submitted) == jobs
        assert all(one.conf["spark.yarn.submit.waitAppCompletion"] == "false" for one in cluster.submitted)
        assert lake.staged() == []
        assert "cannot be called outside of the Task Runner" not in caplog.text

    @pytest.mark.services
    def test_its_links_lead_to_the_application_on_yarn(self, cluster, table, lake, run_task, monkeypatch):
        """Told by the process that submits, and shown by the one that commits."""
        history = {**cluster.connection["extra"], "history-server-url": "https://history.example.com/"}
        monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps({**cluster.connection, "extra": history}))
        cluster.then = lambda one: cluster.finish(one)
        run = run_task(append, files=str(lake.write_file("a.parquet", [5])))
        (job,) = cluster.submitted
        page = f"https://history.example.com/history/{job.id}/1/"
        assert run.result("append", key="_link_SparkUiLink") == f"{cluster.url}/proxy/{job.id}/"
        assert run.result("append", key="_link_SparkHistoryLink") == page
        assert run.result("append", key="spark_application")["application_id"] == job.id
        assert run.result("append", key="staging_location").startswith(f"{table.location}/.staging/")

    def test_every_one_that_runs_jobs_takes_the_argument(self):
        for kind in (IcebergMergeOperator, IcebergUpdateOperator, IcebergExpireSnapshotsOperator):
            options = {
                IcebergMergeOperator: {"on": ["id"], "upsert": True},
                IcebergUpdateOperator: {"set": {"a": "1"}, "where": "b"},
            }
            assert operators(kind, task_id="t", deferrable=True)(**options.get(kind, {})).deferrable

    @pytest.mark.services
    def test_other_writers_are_met_as_ever(self, cluster, table, lake, run_task):
        def beside(one: Submitted) -> None:
            if len(cluster.submitted) == 1:
                lake.load().overwrite(pa.table({"id": [3, 9]}), overwrite_filter="id > 2")
            cluster.finish(one)

        cluster.then = beside
        run = run_task(compact)
        assert (run.state, lake.ids()) == ("success", [1, 2, 3, 9])
        assert lake.staged() == []

    @pytest.mark.services
    def test_a_template_of_the_current_time_ends_the_task_all_the_same(self, cluster, table, lake, run_task):
        files = lake.write_file("a.parquet", [7])
        link = lake.folder / "source" / "{{ macros.time.time_ns() }}.parquet"
        text = str(link)
        cluster.then = lambda one: cluster.finish(one)
        run = run_task(append, files=[str(files), text.replace(".parquet", "*.parquet")])
        assert (run.state, lake.ids()) == ("success", [1, 2, 3, 4, 7])
        waits = [one.conf["spark.yarn.submit.waitAppCompletion"] for one in cluster.submitted]
        assert waits == ["false", "true"]


class TestWhereNoJobCanBeAskedFor:
    """The task says why, and waits."""

    @pytest.mark.costly
    def test_in_the_process(self, table, lake, run_task, caplog):
        run = run_task(append, files=str(lake.write_file("a.parquet", [5])), spark_conn_id=None)
        assert (run.state, lake.ids()) == ("success", [1, 2, 3, 4, 5])

    @pytest.mark.parametrize(
        ("fields", "reason"),
        [
            (
                {"host": "local[1]"},
                "the driver of connection 'spark_default' is a process of the task, in deploy",
            ),
            ({"host": "yarn"}, "the driver of connection 'spark_default' is a process of the task"),
            (
                {"host": "k8s://https://h", "extra": {"deploy-mode": "cluster"}},
                "no credentials for the Kubernetes API server: neither the extra field kubernetes_token",
            ),
            (
                {"host": "k8s://http://h", "extra": {"deploy-mode": "cluster", "kubernetes_token": "t0ken"}},
                "the Kubernetes API server http://h would get a token in the clear; set the host",
            ),
            (
                {"host": "spark://h:7077", "extra": {"deploy-mode": "cluster"}},
                "the cluster of connection 'spark_default' is not asked for its jobs, YARN and Kubernetes can be",
            ),
            (
                {"host": "yarn", "extra": {"deploy-mode": "cluster"}},
                "the address of YARN's resource manager is unknown; set the extra field",
            ),
            (
                {"conn_type": "spark_connect", "host": "server"},
                "the driver of a job on Spark Connect (connection 'spark_default') is a process of the task, which",
            ),
        ],
        ids=[
            "local",
            "client mode",
            "Kubernetes without a token",
            "Kubernetes without TLS",
            "standalone",
            "YARN without an address",
            "Spark Connect",
        ],
    )
    def test_on_a_connection(self, fields, reason, monkeypatch, table):
        monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps({"conn_type": "spark", **fields}))
        for name in ("HADOOP_CONF_DIR", "YARN_CONF_DIR", "KUBECONFIG"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("HOME", "/nowhere")
        logged: list[str] = []
        waiting = append(files="/x")
        monkeypatch.setattr(type(waiting), "log", _Log(logged))
        assert not waiting._defers()
        assert logged == [
            f"deferrable is set, and this task waits for its job all the same: {logged[0].split(': ', 1)[1]}"
        ]
        assert reason in logged[0]

    def test_a_function_that_returns_a_dataframe(self, cluster):
        with DAG("functions"):
            made = task.iceberg_append(table="s.t", spark_conn_id="spark_default", deferrable=True)(rows_of)()
        assert not made.operator._defers()

    def test_by_default_the_configuration_says(self):
        assert not operators(IcebergAppendOperator, task_id="t")(files="/x").deferrable


def rows_of(spark: Any) -> Any:
    return spark.range(3)


class _Log:
    def __init__(self, lines: list[str]) -> None:
        self._lines = lines

    def info(self, text: str, *arguments: object) -> None:
        self._lines.append(text % arguments)


class TestTheEndOfTheJob:
    """It is what the job has signed; what the cluster says is only part of the message."""

    @pytest.mark.services
    def test_its_own_error_fails_the_task(self, cluster, table, lake, run_task):
        failed = lambda result: type(result).failed(InvalidInputError("column id: 'x' is no long"))  # noqa: E731
        cluster.then = lambda one: cluster.finish(one, failed)
        run = run_task(append, files=str(lake.write_file("a.parquet", [5])))
        assert run.refusal == "column id: 'x' is no long"
        assert (lake.ids(), lake.staged()) == ([1, 2, 3, 4], [])

    @pytest.mark.services
    def test_killed_on_the_cluster(self, cluster, table, lake, run_task):
        cluster.then = lambda one: cluster.end(one, "KILLED", "Application killed by user dr.who")
        run = run_task(append, files=str(lake.write_file("a.parquet", [5])))
        (error,) = run.failures
        assert "ended without a result" in str(error)
        assert "with state KILLED and final status KILLED: Application killed by user dr.who" in str(error)
        assert (lake.ids(), lake.staged()) == ([1, 2, 3, 4], [])

    @pytest.mark.services
    def test_a_forged_result_is_refused(self, cluster, table, lake, run_task):
        def forge(one: Submitted) -> None:
            cluster.finish(one)
            (path,) = [path for path in lake.staged() if path.name == "result.json"]
            signature, document = path.read_bytes().split(b"\n", 1)
            path.write_bytes(signature + b"\n" + document.replace(b'"record-count": 1', b'"record-count": 9'))

        cluster.then = forge
        run = run_task(append, files=str(lake.write_file("a.parquet", [5])))
        assert "the job result is not the one that was written" in run.refusal
        assert lake.ids() == [1, 2, 3, 4]

    @pytest.mark.services
    def test_a_retry_ends_what_the_first_try_has_left(self, cluster, table, lake, run_task):
        """The first try loses sight of its application; the second one ends it before it submits."""

        def once(one: Submitted) -> None:
            if len(cluster.submitted) == 1:
                raise RuntimeError("the connection is lost after the submission")
            cluster.finish(one)

        cluster.then = once
        run = run_task(append, files=str(lake.write_file("a.parquet", [5])), retries=1)
        assert (run.state, lake.ids()) == ("success", [1, 2, 3, 4, 5])
        assert [one.state for one in cluster.submitted] == ["KILLED", "FINISHED"]

    @pytest.mark.services
    def test_a_retry_begins_anew(self, cluster, table, lake, run_task):
        cluster.then = lambda one: cluster.finish(one) if len(cluster.submitted) > 1 else cluster.end(one, "FAILED")
        run = run_task(append, files=str(lake.write_file("a.parquet", [5])), retries=1)
        assert (run.state, lake.ids(), lake.staged()) == ("success", [1, 2, 3, 4, 5], [])
        assert lake.load().current_snapshot().summary["airflow.try-number"] == "2"

    @pytest.mark.services
    def test_its_time_is_up(self, cluster, table, lake, run_task):
        cluster.then = lambda one: None
        run = run_task(append, files=str(lake.write_file("a.parquet", [5])), execution_timeout=timedelta(seconds=8))
        (error,) = run.failures
        assert isinstance(error, AirflowException)
        assert "the job took longer than the task's execution_timeout, and was ended" in str(error)
        assert [one.state for one in cluster.submitted] == ["KILLED"]
        assert (lake.ids(), lake.staged()) == ([1, 2, 3, 4], [])

    @pytest.mark.services
    def test_its_time_is_that_of_one_try(self, cluster, table, lake, run_task):
        """`dag.test()` makes both tries with one object, as a process that lives for both would."""
        cluster.then = lambda one: cluster.finish(one) if len(cluster.submitted) > 1 else None
        run = run_task(
            append, files=str(lake.write_file("a.parquet", [5])), execution_timeout=timedelta(seconds=8), retries=1
        )
        assert (run.state, lake.ids()) == ("success", [1, 2, 3, 4, 5])
        assert [one.state for one in cluster.submitted] == ["KILLED", "FINISHED"]

    @pytest.mark.services
    def test_a_connection_that_is_edited_meanwhile(self, cluster, table, lake, run_task, monkeypatch):
        """The job that is planned again cannot be asked for any more: the task waits for it."""

        def beside(one: Submitted) -> None:
            if len(cluster.submitted) > 1:
                cluster.finish(one)
                return
            lake.load().overwrite(pa.table({"id": [3, 9]}), overwrite_filter="id > 2")
            cluster.finish(one)
            edited = {**cluster.connection, "extra": {**cluster.connection["extra"], "deploy-mode": "client"}}
            monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps(edited))

        cluster.then = beside
        run = run_task(compact)
        assert len(cluster.submitted) == 1, "in deploy mode client nothing is handed to the cluster's stand-in"
        assert "was not submitted" not in str(run.failures)
        assert not any(isinstance(error, AssertionError) for error in run.failures)
        assert sorted(lake.ids()) == [1, 2, 3, 9]


class TestTheTrigger:
    """It asks, and does nothing else, unless the user ends the task."""

    @pytest.fixture
    def one(self, cluster: StandInYarn) -> Submitted:
        made = Submitted(id="application_1_0001", argv=["--conf", "spark.yarn.tags=a"], private={})
        cluster.submitted.append(made)
        return made

    def test_makes_an_equal_trigger_of_json(self, cluster, one):
        made = trigger(one, cluster, ends_at=1.5)
        path, kwargs = made.serialize()
        assert path == f"{IcebergJobTrigger.__module__}.IcebergJobTrigger"
        assert IcebergJobTrigger(**json.loads(json.dumps(kwargs))).serialize() == (path, kwargs)

    @pytest.mark.parametrize("state", ["FINISHED", "FAILED", "KILLED"])
    def test_fires_when_the_application_has_ended(self, state, cluster, one):
        one.state = state
        event = first_event(trigger(one, cluster))
        assert (event["status"], f"with state {state}" in event["message"]) == ("ended", True)

    def test_fires_for_an_application_that_yarn_has_forgotten(self, cluster, one):
        cluster.submitted.clear()
        assert first_event(trigger(one, cluster))["message"] == "YARN does not know application_1_0001 (any more)"

    def test_asks_again_when_there_is_no_answer(self, cluster, one, monkeypatch):
        monkeypatch.setattr(following, "_PATIENCE_S", 0.1)
        cluster.is_down = True
        made = trigger(one, cluster)

        async def watch() -> Any:
            waiting = asyncio.create_task(anext(aiter(made.run())))
            while cluster.refused < 3:
                await asyncio.sleep(0.01)
            assert not waiting.done()
            one.state, cluster.is_down = "FINISHED", False
            return (await waiting).payload

        assert asyncio.run(watch())["status"] == "ended"

    def test_ends_the_application_when_the_user_ends_the_task_and_not_when_the_triggerer_stops(self, cluster, one):
        made = trigger(one, cluster)
        asyncio.run(made.cleanup())
        assert one.state == "RUNNING"
        asyncio.run(made.on_kill())
        assert one.state == "KILLED"
        asyncio.run(made.on_kill())

    def test_a_user_who_ends_the_task_is_not_kept_waiting(self, cluster, one, monkeypatch):
        monkeypatch.setattr(following, "_END_S", 0.1)
        cluster.is_down = True
        asyncio.run(trigger(one, cluster).on_kill())
        # A minute of patience would ask a dozen times.
        assert 0 < cluster.refused < 6

    def test_ends_it_when_its_time_is_up(self, cluster, one):
        event = first_event(trigger(one, cluster, ends_at=time.time() + 0.5))
        assert event == {
            "status": "timeout",
            "message": "the job took longer than the task's execution_timeout, and was ended",
            "left": {},
        }
        assert one.state == "KILLED"

    def test_a_reference_of_another_version_is_an_error(self):
        event = first_event(IcebergJobTrigger(reference={"kind": "steam"}))
        assert (event["status"], event["kind"]) == ("error", "InvalidInputError")

    def test_the_event_loop_is_free_while_the_cluster_is_slow(self, cluster, one, event_beside):
        one.state = "FINISHED"
        assert event_beside(yarn.ResourceManager, "state", trigger(one, cluster))["status"] == "ended"
