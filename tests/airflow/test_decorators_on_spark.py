"""Functions that return a Spark DataFrame, under `dag.test()` with a real Spark in this process."""

import json
import os
from collections.abc import Iterator
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowSkipException
from airflow.sdk import task

from airflow_iceberg.catalogs.sql.catalog import SqlCatalog
from airflow_iceberg.errors import CommitUnknownError
from tests.airflow.conftest import Lake

MARK = "Zq9Secret"
SMALL = {"spark.ui.enabled": "false", "spark.driver.memory": "512m", "spark.driver.bindAddress": "127.0.0.1"}
VERBS = {"append": {}, "overwrite": {"replace": "table"}, "merge": {"on": ["id"], "upsert": True}}


@pytest.fixture(scope="module", autouse=True)
def jvm() -> Iterator[None]:
    """The JVM of all sessions, which ends with the module; it is started by a worker with secrets."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("DBPASS", "ACME_LICENSE", "AIRFLOW_CONN_OTHER", "SPARK_MYSQL_PASSWORD"):
            patch.setenv(name, MARK)
        yield
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    if gateway is not None:
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait(timeout=60)
        SparkContext._gateway = SparkContext._jvm = None


@pytest.fixture
def table(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> Lake:
    lake.create()
    lake.append([1])
    connection = {"conn_type": "spark", "host": "local[1]", "extra": SMALL}
    monkeypatch.setenv("AIRFLOW_CONN_LOCAL_SPARK", json.dumps(connection))
    return lake


@pytest.fixture
def run_function(new_dag, run_dag):
    """Runs a DAG of one decorated function of the session."""

    def run(function: Any, verb: str = "append", **options: Any) -> Any:
        def load(spark, sc):
            return function(spark, sc)

        with new_dag() as dag:
            getattr(task, f"iceberg_{verb}")(
                **{"table": "s.t", "spark_conn_id": "local_spark", **VERBS[verb], **options}
            )(load)()
        return run_dag(dag)

    return run


def is_stopped() -> bool:
    from pyspark.sql import SparkSession

    return SparkSession.getActiveSession() is None


class TestADataFrame:
    """Its session writes the rows, once, and is stopped."""

    @pytest.mark.services
    @pytest.mark.parametrize("verb", VERBS)
    def test_is_written_by_its_session(self, table, run_function, verb):
        seen: list[str] = []

        def function(spark: Any, sc: Any) -> Any:
            assert sc is spark.sparkContext
            seen.append(spark.conf.get("spark.app.name"))
            seen.append(spark.conf.get("spark.sql.shuffle.partitions"))
            return spark.range(1, 4)

        run = run_function(function, verb, config_kwargs={"spark.sql.shuffle.partitions": "3"})
        assert run.state == "success", run.failures
        assert table.ids() == ([1, 1, 2, 3] if verb == "append" else [1, 2, 3])
        assert (seen[0].endswith("-load"), seen[1]) == (True, "3")
        assert (table.staged(), is_stopped()) == ([], True)

    @pytest.mark.costly
    @pytest.mark.sample(3)
    @pytest.mark.parametrize("verb", VERBS)
    def test_a_retry_after_a_lost_answer_finds_it(self, table, run_function, monkeypatch, verb):
        calls: list[int] = []
        real, answers = SqlCatalog.commit, iter([True])

        def lost(*arguments: Any, **options: Any) -> Any:
            done = real(*arguments, **options)
            if next(answers, False):
                raise CommitUnknownError("no answer")
            return done

        monkeypatch.setattr(SqlCatalog, "commit", lost)
        monkeypatch.setattr("airflow_iceberg.commit.engine._Commit._resolve", _gives_up)
        run = run_function(lambda spark, _: (calls.append(1), spark.range(2, 4))[1], verb, retries=2)
        assert run.state == "success", run.failures
        assert (len(calls), table.ids()) == (1, [2, 3] if verb == "overwrite" else [1, 2, 3])
        assert run.result("load")["outcome"] == "found"

    @pytest.mark.services
    def test_its_java_and_its_workers_get_the_variables_of_a_job(self, table, run_function):
        seen: dict[str, dict[str, str]] = {}

        def function(spark: Any, sc: Any) -> Any:
            seen["java"] = dict(sc._jvm.java.lang.System.getenv())
            seen["worker"] = sc.parallelize([0], 1).map(lambda _: dict(os.environ)).collect()[0]
            return spark.range(1, 4)

        run = run_function(function)
        assert run.state == "success", run.failures
        assert os.environ["DBPASS"] == MARK
        for variables in seen.values():
            assert {"PATH", "HOME"} <= variables.keys()
            assert [name for name, value in variables.items() if MARK in value] == []
            assert [name for name in variables if "AIRFLOW" in name and "ICEBERG" not in name] == []

    @pytest.mark.services
    def test_other_rows_are_refused(self, table, run_function):
        run = run_function(lambda spark, _: [1])
        assert "function 'load' has a Spark session and returned a list, expected a Spark DataFrame" in run.refusal
        assert (table.ids(), table.staged(), is_stopped()) == ([1], [], True)

    @pytest.mark.services
    def test_what_the_function_raises_is_raised(self, table, run_function):
        def skips(spark: Any, sc: Any) -> Any:
            raise AirflowSkipException("nothing today")

        assert run_function(skips).task("load").state == "skipped"
        assert (table.ids(), table.staged(), is_stopped()) == ([1], [], True)

    @pytest.mark.services
    def test_an_error_of_its_rows(self, table, run_function):
        run = run_function(lambda spark, _: spark.range(3).selectExpr("assert_true(id < 2) is null as id"))
        assert run.state == "failed"
        assert (table.ids(), table.staged(), is_stopped()) == ([1], [], True)

    @pytest.mark.services
    def test_a_connection_of_another_type(self, table, run_function):
        run = run_function(lambda spark, _: spark.range(3), spark_conn_id="iceberg_catalog_default")
        assert "has the type 'iceberg_catalog', expected spark or spark_connect" in run.refusal


def _gives_up(_: Any, error: CommitUnknownError) -> Any:
    raise error
