"""Where a job runs, and what is found to be missing before it starts."""

import importlib.metadata
import importlib.util
import json
import os
import re
import signal
import stat
import sys
import threading
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException
from airflow.sdk import BaseHook

from airflow_iceberg.backends.applications import work_tag
from airflow_iceberg.backends.backend import InProcess, open_backend, run_job
from airflow_iceberg.backends.config import PRIVATE_VARIABLE, SparkConfig, storage_of, storage_properties
from airflow_iceberg.backends.connect import SparkConnect
from airflow_iceberg.backends.spark_submit import SparkSubmit, spark_environment
from airflow_iceberg.catalogs import load_catalog
from airflow_iceberg.errors import (
    FormatError,
    IcebergError,
    InvalidInputError,
    NotFoundError,
    StalePlanError,
    UnsupportedError,
)
from airflow_iceberg.jobs import main, run_local
from airflow_iceberg.jobs.protocol.one_time_signature import new_seed
from airflow_iceberg.jobs.protocol.result import JobResult
from airflow_iceberg.jobs.protocol.source import Source
from airflow_iceberg.jobs.spark.installation import spark_home
from airflow_iceberg.operators.append import IcebergAppendOperator
from airflow_iceberg.storage import FsspecFileIO
from airflow_iceberg.table import Table
from tests.airflow.conftest import Lake, operators
from tests.support.append_steps import plan_append

STORAGE = {"s3.secret-access-key": "s3cr3t value", "s3.endpoint": "http://s3.example.com:9000"}
FILES = Source.from_files("/data/*.parquet")
append = operators(IcebergAppendOperator, task_id="append")
USERS_CODE = str(Path(__file__).parent / "spark_rows.py")


@pytest.fixture
def connection(monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    def make(**fields: Any) -> str:
        monkeypatch.setenv("AIRFLOW_CONN_SOMEWHERE", json.dumps({"conn_type": "spark", **fields}))
        return "somewhere"

    return make


@pytest.fixture
def table(lake: Lake) -> Any:
    return lake.create()


def backend(conn_id: str | None, table: Any, source: Source = FILES, **config: Any) -> Any:
    return open_backend(conn_id, SparkConfig(**config), table=table, source=source, name="job")


class TestTheChoice:
    """The connection's type decides; nothing is guessed."""

    @pytest.mark.costly
    def test_none_is_this_process_a_spark_connection_submits_and_a_spark_connect_connection_connects(
        self, connection, table
    ):
        assert isinstance(backend(None, table), InProcess)
        assert isinstance(backend(connection(host="local[1]"), table), SparkSubmit)
        assert isinstance(backend(connection(conn_type="spark_connect", host="h"), table), SparkConnect)

    @pytest.mark.parametrize(
        ("fields", "error", "message"),
        [
            ({"conn_type": "spark_connect"}, InvalidInputError, "spark_connect connection 'somewhere' has no host"),
            ({"conn_type": "spark_connect", "host": "sc://h/path"}, InvalidInputError, "'somewhere' has a path"),
            ({"conn_type": "spark_connect", "host": "h:port"}, InvalidInputError, "no address of Spark Connect"),
            ({"conn_type": "http", "host": "h"}, InvalidInputError, "'http', expected 'spark' or 'spark_connect'"),
            ({}, InvalidInputError, "spark connection 'somewhere' has no host"),
            (
                {"host": "spark://h:7077", "extra": {"deploy-mode": "cluster"}},
                UnsupportedError,
                "runs no Python programs in deploy mode cluster",
            ),
        ],
        ids=[
            "Connect without a host",
            "a path",
            "no port",
            "another type",
            "no master",
            "a standalone cluster in cluster mode",
        ],
    )
    def test_what_cannot_run_a_job_is_refused(self, fields, error, message, connection, table):
        with pytest.raises(error, match=message):
            backend(connection(**fields), table)
        with pytest.raises(NotFoundError, match="spark connection 'nobody' does not exist; create it with a master"):
            backend("nobody", table)


class TestTheSparkOfThisMachine:
    """Found or missed before anything is written."""

    def test_two_versions_over_each_other_are_refused(self, connection, table, monkeypatch):
        versions = {"pyspark": "4.2.0", "pyspark-client": "4.3.0"}
        monkeypatch.delenv("SPARK_HOME", raising=False)
        monkeypatch.setattr(importlib.metadata, "version", versions.__getitem__)
        with pytest.raises(InvalidInputError, match=r"pyspark 4\.2\.0 and pyspark-client 4\.3\.0"):
            backend(connection(host="local[1]"), table)

    def test_no_spark_at_all_says_what_to_do(self, connection, table, tmp_path, monkeypatch):
        monkeypatch.delenv("SPARK_HOME", raising=False)
        monkeypatch.setenv("PATH", str(tmp_path))
        monkeypatch.setattr(importlib.util, "find_spec", lambda name, *_: None)
        with pytest.raises(NotFoundError, match=r"install 'airflow-iceberg\[spark\]', or set SPARK_HOME"):
            backend(connection(host="local[1]"), table)

    def test_a_spark_submit_on_the_path_takes_the_place_of_neither_a_wrong_home_nor_a_missing_java(
        self, connection, table, tmp_path, monkeypatch
    ):
        submit = spark_home() / "bin" / "spark-submit"
        monkeypatch.setenv("PATH", str(submit.parent))
        monkeypatch.delenv("JAVA_HOME", raising=False)
        wrong = {"SPARK_HOME": str(tmp_path)}
        with pytest.raises(NotFoundError, match=f"'somewhere': there is no spark-submit in {tmp_path}/bin; set SPARK_"):
            backend(connection(host="local[1]"), table, env_vars=wrong)
        monkeypatch.delenv("SPARK_HOME", raising=False)
        # As if neither pyspark nor the extra `java` were installed.
        monkeypatch.setattr(importlib.util, "find_spec", lambda name, *_: None)
        with pytest.raises(NotFoundError, match="'somewhere': no Java 17 or 21 for Spark; found none; set JAVA_HOME"):
            backend(connection(host="local[1]"), table)

    @pytest.mark.costly
    def test_nothing_is_left_behind_when_it_is_missing(self, lake, connection, run_task):
        lake.create()
        somewhere = connection(conn_type="spark_connect")
        assert run_task(append, sql="select 1 as id", spark_conn_id=somewhere, retries=1).refusal
        assert lake.staged() == []


class TestWhatTheJobIsTold:
    """How to reach the files, and nothing of the catalog."""

    def test_only_storage_properties_travel_and_what_a_rest_catalog_lent_for_the_table(self):
        catalog: Any = {"uri": "postgresql://me:pw@db", "credential": "c", "token": "t", "s3.endpoint": "e"}
        assert storage_properties(catalog) == {"s3.endpoint": "e"}
        lent = FsspecFileIO({"s3.endpoint": "theirs", "s3.access-key-id": "lent"})
        ours = {**catalog, "s3.session-token": "our-session"}
        table: Any = SimpleNamespace(catalog=SimpleNamespace(properties=ours), io=lent)
        assert storage_of(table) == {"s3.endpoint": "theirs", "s3.access-key-id": "lent"}

    @pytest.fixture
    def submission(self, connection: Callable[..., str], lake: Lake, tmp_path: Path) -> Callable[..., Any]:
        """Returns the hook as it would submit, its command, and the plan."""

        def submit(master: str = "local[1]", source: Source = FILES, **config: Any) -> Any:
            lake.create()
            catalog = load_catalog("lake", **lake.catalog.properties, **STORAGE)
            table = Table.load(catalog, "s.t")
            made = backend(connection(host=master), table, **config)
            plan = plan_append(table, source)
            hook = made._open_hook(plan, tmp_path / "core.zip")
            return hook, hook._build_spark_submit_command("/main.py"), plan

        return submit

    @pytest.mark.costly
    def test_the_command_is_the_plan_and_the_core(self, submission, tmp_path):
        _, command, plan = submission(driver_memory="1g", conf={"spark.a": "b"}, py_files=["/mine.py"])
        assert command[-3:] == ["/main.py", plan.location, str(plan.seal)]
        assert command[command.index("--py-files") + 1] == f"{tmp_path}/core.zip,/mine.py"
        assert command[command.index("--driver-memory") + 1] == "1g"
        assert command[command.index("--master") + 1] == "local[1]"
        assert "spark.a=b" in command
        assert any("spark.redaction.regex=" in part for part in command)
        assert "spark.executorEnv.MIMALLOC_PURGE_DELAY=60000" in command

    @pytest.mark.costly
    def test_in_client_mode_secrets_go_by_the_environment_alone(self, submission):
        hook, command, _ = submission("yarn")
        assert "s3cr3t" not in " ".join(command)
        assert "spark.hadoop.fs.s3a.endpoint=http://s3.example.com:9000" in command
        assert json.loads(hook.environment["AIRFLOW_ICEBERG_STORAGE"]) == STORAGE

    def test_in_cluster_mode_they_would_be_on_the_command_line_and_are_refused(self, submission):
        with pytest.raises(UnsupportedError, match="on spark-submit's command line") as error:
            submission("k8s://https://h", deploy_mode="cluster")
        assert "use deploy mode client, or let the cluster have its own" in str(error.value)
        assert "s3cr3t" not in str(error.value)

    @pytest.mark.costly
    def test_on_yarn_they_go_by_the_private_file_to_a_driver_on_the_cluster(self, submission):
        hook, command, _ = submission("yarn", deploy_mode="cluster")
        private = Path(command[command.index("--files") + 1])
        assert stat.S_IMODE(private.stat().st_mode) == 0o600
        assert json.loads(private.read_text())["storage"] == STORAGE
        assert "s3cr3t" not in " ".join([*command, *hook.environment.values()])

    @pytest.mark.costly
    def test_the_drivers_own_libraries_get_them_by_its_environment(self, connection):
        storage = {**STORAGE, "s3.access-key-id": "the-key-id"}
        spark = BaseHook.get_connection(connection(host="local[1]"))
        environment = SparkSubmit(spark, SparkConfig(), storage=storage, inputs={}, name="job")._machine.environment
        assert json.loads(environment["AIRFLOW_ICEBERG_STORAGE"]) == storage
        assert environment["AWS_SECRET_ACCESS_KEY"] == "s3cr3t value"
        assert environment["AWS_ENDPOINT_URL"] == "http://s3.example.com:9000"
        assert "AWS_SECRET_ACCESS_KEY" not in spark_environment({"s3.endpoint": "http://x"})

    @pytest.mark.parametrize(
        ("storage", "is_safe"),
        [
            ({"s3.endpoint": "https://h", "s3.region": "r", "gcs.oauth2.token": "anon"}, True),
            ({"s3.proxy-uri": "http://me:s3cr3t@proxy"}, False),
            ({"gcs.session-kwargs": '{"headers": {"x-key": "s3cr3t-key"}}'}, False),
            ({"adls.auth.shared-key.account.key": "a"}, False),
            ({"gcs.session-kwargs": '{"trust_env": false, "auth": {"pin": 12345678}}'}, False),
            ({"s3.endpoint": "https://s3cr3t-t0ken@h"}, False),
            ({"s3.endpoint": "https://me:1@h"}, False),
            ({"adls.connection-string": "BlobEndpoint=https://h/a;SharedAccessSignature=sv=1&sig=s3cr3t"}, False),
            ({"hdfs.config.ssl.keystore.pass": "12345678"}, False),
            ({"hdfs.config.dfs.nameservices": "lake", "hdfs.user": "etl", "adls.account-name": "lake"}, True),
            ({"hdfs.token": "12345678"}, False),
            ({"s3.sse.key": "12345678"}, False),
        ],
    )
    def test_cluster_mode_is_safe_where_no_value_holds_a_secret(self, storage, is_safe, connection):
        spark = BaseHook.get_connection(connection(host="k8s://https://h"))
        with nullcontext() if is_safe else pytest.raises(UnsupportedError, match="storage credentials"):
            SparkSubmit(spark, SparkConfig(deploy_mode="cluster"), storage=storage, inputs={}, name="job")

    @pytest.mark.costly
    @pytest.mark.parametrize(("master", "name"), [("local[1]", "PYSPARK_PYTHON"), ("yarn", "PYSPARK_DRIVER_PYTHON")])
    def test_only_what_runs_here_uses_the_python_of_here(self, master, name, submission, monkeypatch):
        for variable in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
            monkeypatch.delenv(variable, raising=False)
        hook, _, _ = submission(master)
        assert {key: value for key, value in hook.environment.items() if "PYSPARK" in key} == {name: sys.executable}

    @pytest.mark.costly
    def test_what_a_user_sets_comes_before_our_defaults_and_credentials_are_masked_in_the_log(self, submission):
        names = ("spark.sql.catalog.c.credential", "spark.x.account-key", "spark.y.token")
        delay = "spark.executorEnv.MIMALLOC_PURGE_DELAY"
        hook, command, _ = submission(conf={**dict.fromkeys(names, "a:s3cr3t"), delay: "10"})
        assert [part for part in command if part.startswith(delay)] == [f"{delay}=10"]
        assert "s3cr3t" not in hook._mask_cmd(command)


class TestInputsOfOtherConnections:
    """Each is reached with the properties of its own connection, which only the driver of the job gets."""

    OURS: ClassVar = {**STORAGE, "s3.access-key-id": "the-key-id"}
    FX: ClassVar = {
        "s3.endpoint": "http://fx.example.com",
        "s3.access-key-id": "fx",
        "s3.secret-access-key": "fx-s3cr3t",
    }

    @pytest.fixture
    def submitted(self, connection: Callable[..., str], lake: Lake, tmp_path: Path) -> Callable[..., Any]:
        def submit(fx: dict[str, str], master: str = "yarn", **config: Any) -> Any:
            lake.create(if_not_exists=True)
            target, other = (
                Table.load(load_catalog("lake", **lake.catalog.properties, **own), "s.t") for own in (self.OURS, fx)
            )
            source = Source.from_sql("select id from fx, same")
            made = open_backend(
                connection(host=master),
                SparkConfig(**config),
                table=target,
                source=source,
                inputs={"fx": other, "same": target},
                name="job",
            )
            hook = made._open_hook(plan_append(target, source), tmp_path / "core.zip")
            return hook.environment, " ".join(hook._build_spark_submit_command("/main.py"))

        return submit

    @pytest.mark.costly
    def test_by_a_private_file_alone(self, submitted):
        environment, command = submitted(self.FX)
        private = Path(environment["AIRFLOW_ICEBERG_PRIVATE"])
        assert stat.S_IMODE(private.stat().st_mode) == 0o600
        assert json.loads(private.read_text())["inputs"] == {"fx": self.FX}
        assert "fx-s3cr3t" not in command + " ".join(environment.values())

    @pytest.mark.services
    def test_no_client_of_theirs_finds_the_keys_or_the_address_of_the_target(self, submitted):
        ours = spark_environment(self.OURS)
        environment, _ = submitted(self.OURS)
        assert ours.items() <= environment.items()
        environment, _ = submitted({**self.FX, "s3.endpoint": ""})
        assert not {*ours.values()} & {*environment.values()}
        assert json.loads(environment["AIRFLOW_ICEBERG_STORAGE"]) == self.OURS

    def test_cluster_mode_refuses_their_credentials(self, submitted):
        with pytest.raises(UnsupportedError, match="storage credentials") as error:
            submitted(self.FX, "k8s://https://h", deploy_mode="cluster")
        assert "s3cr3t" not in str(error.value)


class TestWhatAnApplicationIsFoundBy:
    """Tags on YARN, a label on Kubernetes: those of the work, which all tries share, and those of one submission."""

    @pytest.fixture
    def settings(self, connection: Callable[..., str], table: Any, tmp_path: Path) -> Callable[..., Any]:
        """Returns the settings on the command line of a try."""

        def submit(master: str, key: str | None, folder: str, **config: Any) -> dict[str, str]:
            made = backend(connection(host=master), table, **config)
            plan = replace(plan_append(table, FILES), operation_key=key)
            (tmp_path / folder).mkdir()
            hook = made._open_hook(plan, tmp_path / folder / "core.zip")
            command = hook._build_spark_submit_command("/main.py")
            return dict(value.split("=", 1) for option, value in pairwise(command) if option == "--conf")

        return submit

    @pytest.mark.services
    def test_two_tries_and_a_clear_share_the_tag_of_their_work_alone(self, settings, tmp_path):
        first, second = (
            settings("yarn", f"dag/run/home/task/-1/{epoch}", f"f{epoch}")["spark.yarn.tags"].split(",")
            for epoch in (1, 2)
        )
        assert first[0] == second[0]
        assert re.fullmatch(r"airflow-iceberg-[0-9a-f]{32}", first[0])
        assert re.fullmatch(r"airflow-iceberg-submission-[0-9a-f]{32}", first[1])
        assert first[1] != second[1]
        others = ("dag/run/home/task/0/1", "dag/run/home/other/-1/1", "dag/other/home/task/-1/1", "dag/run/x/task/-1/1")
        assert first[0] not in [work_tag(other, "uuid") for other in others]
        assert len({work_tag(other, "uuid") for other in others} | {work_tag(others[0], "another")}) == 5

    @pytest.mark.costly
    def test_the_tags_of_the_user_and_of_the_machine_remain(self, settings, tmp_path, monkeypatch):
        (tmp_path / "spark-defaults.conf").write_text("spark.a b\nspark.yarn.tags  costs:a,b\n")
        monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
        key = "dag/run/home/task/-1/1"
        assert settings("yarn", key, "a")["spark.yarn.tags"].split(",")[:2] == ["costs:a", "b"]
        given = settings("yarn", key, "b", conf={"spark.yarn.tags": "mine"})["spark.yarn.tags"].split(",")
        assert (given[0], len(given)) == ("mine", 3)

    @pytest.mark.costly
    def test_a_job_of_no_task_is_known_by_its_submission(self, settings):
        assert settings("yarn", None, "a")["spark.yarn.tags"].startswith("airflow-iceberg-submission-")

    @pytest.mark.services
    def test_on_kubernetes_by_the_labels_of_the_driver_pod(self, settings):
        key, prefix = "dag/run/home/task/-1/1", "spark.kubernetes.driver.label.airflow-iceberg-"
        given = settings("k8s://https://h", key, "a", deploy_mode="cluster")
        labels = {name.removeprefix(prefix): tag for name, tag in given.items() if name.startswith(prefix)}
        assert labels.keys() == {"work", "submission"}
        assert all(re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,61}[A-Za-z0-9]", tag) for tag in labels.values())
        assert given["spark.kubernetes.submission.waitAppCompletion"] == "true"
        again = settings("k8s://https://h", key, "b", deploy_mode="cluster")
        assert again[f"{prefix}work"] == labels["work"]
        assert again[f"{prefix}submission"] != labels["submission"]
        for master in ("k8s://https://h", "local[1]"):
            assert not [name for name in settings(master, key, f"c{master[0]}") if "tags" in name or "label" in name]

    @pytest.mark.costly
    def test_yarn_begins_no_job_again_by_itself_and_spark_submit_waits_for_it(self, settings):
        given = settings(
            "yarn",
            None,
            "a",
            deploy_mode="cluster",
            conf={"spark.yarn.submit.waitAppCompletion": "false", "spark.yarn.maxAppAttempts": "2"},
        )
        assert given["spark.yarn.maxAppAttempts"] == "1"
        assert given["spark.yarn.submit.waitAppCompletion"] == "true"


class TestACancelledJob:
    """In this process, too: what it has staged is not committed, and no other is begun."""

    def test_fails_though_it_could_have_reported_files(self, lake):
        table = lake.create()
        source = Source.from_files(str(lake.write_file("a.parquet", [1])))
        made = open_backend(None, SparkConfig(), table=table, source=source, name="job")
        plan = plan_append(table, source)
        made.cancel()
        with pytest.raises(IcebergError, match=r"^the job for table s\.t was killed; nothing was committed$") as error:
            run_job(made, table, plan).raise_for_error()
        assert type(error.value) is IcebergError
        assert lake.data_files() == []

    @pytest.mark.services
    def test_while_it_reads_its_first_file_begins_no_other(self, lake, run_task, monkeypatch):
        lake.create(properties={"write.target-file-size-bytes": "1"})
        for number in range(3):
            lake.write_file(f"{number}.parquet", [number])
        begun: list[int] = []
        running: list[IcebergAppendOperator] = []
        real, execute = run_local.run_task, IcebergAppendOperator.execute

        def killed_meanwhile(context: Any, spec: Any) -> Any:
            begun.append(spec.number)
            running[0].on_kill()
            return real(context, spec)

        def executed(operator: Any, context: Any) -> Any:
            running.append(operator)
            return execute(operator, context)

        monkeypatch.setattr(run_local, "run_task", killed_meanwhile)
        monkeypatch.setattr(run_local, "default_threads", lambda: 1)
        monkeypatch.setattr(IcebergAppendOperator, "execute", executed)
        run = run_task(append, files=f"{lake.folder}/source/*.parquet", spark_conn_id=None, retries=0)
        assert run.state == "failed"
        assert "was killed; nothing was committed" in str(run.failures[0])
        assert len(begun) == 1
        assert lake.load().current_snapshot() is None
        assert (lake.staged(), lake.data_files()) == ([], [])


class TestWhatLiesInTheTablesFolder:
    """Others may write there: the driver is told what its plan is, and only it can sign the result."""

    @pytest.fixture
    def plan(self, table, tmp_path):
        pq.write_table(pa.table({"id": [1, 2]}), tmp_path / "source.parquet")
        return plan_append(table, Source.from_files(str(tmp_path / "source.parquet")))

    @pytest.mark.services
    def test_the_seal_is_an_argument_and_the_secret_is_none(self, table, plan, connection, tmp_path):
        made = backend(connection(host="local[1]"), table)
        hook = made._open_hook(plan, tmp_path / "core.zip")
        command = hook._build_spark_submit_command("main.py")
        assert command[-2:] == [plan.location, str(plan.seal)]
        secret = json.loads(Path(hook.environment[PRIVATE_VARIABLE]).read_text())["result-secret"]
        assert len(secret) == len(new_seed()) == 104
        assert secret not in " ".join([*command, *hook.environment.values()])
        other = backend(connection(host="local[1]"), table)._open_hook(plan, tmp_path / "core.zip")
        assert secret not in Path(other.environment[PRIVATE_VARIABLE]).read_text()
        assert main.PRIVATE_VARIABLE == PRIVATE_VARIABLE

    @pytest.mark.costly
    def test_a_forged_result_is_not_believed(self, table, plan, connection):
        table.io.create(plan.result_location, JobResult(status="succeeded", record_count=9).to_json())
        submitted = backend(connection(host="local[1]"), table)
        with pytest.raises(FormatError, match="the job result is not the one that was written"):
            submitted.read_result(table.io, plan)
        assert run_job(backend(None, table), table, plan).record_count == 2


@pytest.mark.spark
@pytest.mark.slow
class TestOnARealSpark:
    """The same operator, with Spark 4 on a local master."""

    @pytest.fixture(autouse=True)
    def spark(self, monkeypatch: pytest.MonkeyPatch) -> None:
        connection = json.dumps({"conn_type": "spark", "host": "local[2]"})
        monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", connection)

    @pytest.mark.services  # three submissions; with make test an example loads files so, and a query fails below
    def test_a_query_a_callable_and_files(self, lake, new_dag, run_dag):
        lake.create()
        config = SparkConfig(py_files=(USERS_CODE,), conf={"spark.ui.enabled": "false"})
        files = str(lake.write_file("a.parquet", [20]))
        submitted = operators(IcebergAppendOperator, spark_config=config)
        with new_dag() as dag:
            query = submitted(task_id="query", sql="select id from range({{ params.n }})", params={"n": 3})
            kwargs = {"first": 10, "count": 2}
            function = submitted(task_id="function", python_callable="spark_rows:numbers", op_kwargs=kwargs)
            query >> function >> submitted(task_id="files", files=files)
        run = run_dag(dag)
        assert run.state == "success"
        assert lake.ids() == [0, 1, 2, 10, 11, 20]
        assert [run.result(name)["added_records"] for name in ("query", "function", "files")] == [3, 2, 1]
        assert lake.staged() == []

    @pytest.mark.services
    @pytest.mark.parametrize(
        ("source", "final", "message"),
        [
            ({"sql": "select nope from range(3)"}, True, "nope"),
            pytest.param(
                {"python_callable": "spark_rows:fatal"}, False, "ended without a result", marks=pytest.mark.services
            ),
        ],
    )
    def test_what_went_wrong_in_the_job_is_said_by_the_task(self, source, final, message, lake, run_task):
        lake.create()
        run = run_task(append, spark_config=SparkConfig(py_files=(USERS_CODE,)), **source)
        assert run.state == "failed"
        assert isinstance(run.failures[0], AirflowFailException if final else AirflowException)
        assert message in str(run.failures[0])
        assert lake.load().current_snapshot() is None
        assert (lake.staged(), lake.data_files()) == ([], [])

    @pytest.mark.services
    def test_a_changed_plan_is_refused_by_the_driver(self, lake, tmp_path):
        table = lake.create()
        source = Source.from_callable("spark_rows:numbers", {"first": 1, "count": 2})
        made = open_backend(
            "spark_default", SparkConfig(py_files=(USERS_CODE,)), table=table, source=source, name="job"
        )
        plan = plan_append(table, source)
        forged = replace(plan.task, source=Source.from_callable("spark_rows:touch", {"path": str(tmp_path / "owned")}))
        table.io.delete([plan.location])
        table.io.create(plan.location, replace(plan, task=forged).to_json())
        with pytest.raises(StalePlanError, match="the job plan is not the one that was written"):
            run_job(made, table, plan)
        assert not (tmp_path / "owned").exists()
        assert not table.io.exists(plan.result_location)

    @pytest.mark.services
    def test_killing_the_task_ends_its_spark(self, lake):
        table = lake.create()
        source = Source.from_sql("select id from range(10) where reflect('java.lang.Thread', 'sleep', 600000L) is null")
        made = open_backend("spark_default", SparkConfig(), table=table, source=source, name="job")
        plan = plan_append(table, source)
        ended: list[Exception] = []

        def run() -> None:
            try:
                run_job(made, table, plan).raise_for_error()
            except Exception as error:
                ended.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        while made._hook is None or made._hook._submit_sp is None:
            assert thread.is_alive(), ended
            time.sleep(0.1)
        pid = made._hook._submit_sp.pid
        made.cancel()
        thread.join(300)
        assert not thread.is_alive()
        assert len(ended) == 1
        with pytest.raises(ProcessLookupError):
            os.kill(pid, signal.SIG_DFL)
