"""Jobs on a real Spark Connect server, one for all tests of this file; it asks for a token, and its UI answers."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from airflow.sdk import task

from airflow_iceberg.backends.backend import open_backend, run_job
from airflow_iceberg.backends.config import SparkConfig
from airflow_iceberg.errors import IcebergError, UnsupportedError
from airflow_iceberg.jobs.protocol.source import Source
from airflow_iceberg.jobs.spark import run as spark_run
from airflow_iceberg.jobs.spark.connect import ConnectServer, check_version
from airflow_iceberg.operators import (
    IcebergAppendOperator,
    IcebergCompactOperator,
    IcebergDeleteOperator,
    IcebergMergeOperator,
    IcebergOverwriteOperator,
    IcebergRemoveOrphanFilesOperator,
    IcebergUpdateOperator,
)
from tests.airflow.conftest import Lake, operators
from tests.services.launch import HOST, free_ports
from tests.services.spark_connect import TOKEN, SparkConnectServer, environment_of, wait_for
from tests.support.airflow_home import ROOT
from tests.support.append_steps import plan_append
from tests.support.spark_programs import SPARK_4, is_spark_3

pytestmark = [pytest.mark.spark, pytest.mark.slow]

append = operators(IcebergAppendOperator, task_id="append", spark_conn_id="connect")
SECRET = "st0rage-s3cret"
USERS_CODE = str(Path(__file__).parent / "connect_rows.py")


@pytest.fixture(scope="module")
def server() -> Iterator[SparkConnectServer]:
    if is_spark_3(SPARK_4):
        pytest.skip("the package of Spark 3.5 has no Spark Connect")
    running = SparkConnectServer()
    yield running
    running.stop()


@pytest.fixture
def connected(server: SparkConnectServer, lake: Lake, monkeypatch: pytest.MonkeyPatch) -> Lake:
    """A lake with the table `s.t`, and the connection to the server."""
    for name, value in {**environment_of(server.port), **with_secret(lake)}.items():
        monkeypatch.setenv(name, value)
    return lake


def with_secret(lake: Lake) -> dict[str, str]:
    """Return the variable that makes the connection to a lake, with credentials that no job of these tests needs."""
    connection = lake.connection
    extra = {**connection["extra"], "s3.access-key-id": "k", "s3.secret-access-key": SECRET}
    return {"AIRFLOW_CONN_ICEBERG_CATALOG_DEFAULT": json.dumps({**connection, "extra": extra})}


@pytest.fixture
def of_numbers(connected: Lake) -> Lake:
    """The same with ten rows of two columns, in two files."""
    made = connected.create(schema={"id": "long", "n": "long"})
    for start in (0, 5):
        made.append(pa.table({"id": range(start, start + 5), "n": range(start, start + 5)}))
    return connected


def numbers(lake: Lake) -> dict[int, int]:
    return {row["id"]: row["n"] for row in lake.load().scan().to_arrow().to_pylist()}


class TestWhatRunsThere:
    """Every operator that has jobs, with the results that it has elsewhere."""

    @pytest.mark.services
    def test_an_append_of_files(self, connected, run_task, server):
        connected.create()
        paths = [connected.write_file(f"{number}.parquet", [number, number + 10]) for number in range(3)]
        before = len(server.jobs())
        run = run_task(append, files=[str(path) for path in paths])
        assert run.result("append")["added_records"] == 6
        assert connected.ids() == [0, 1, 2, 10, 11, 12]
        assert connected.staged() == []
        assert len(server.jobs()) > before

    @pytest.mark.services
    def test_an_append_of_a_query_over_an_input(self, connected, run_task):
        connected.create()
        connected.create("s.orders").append(pa.table({"id": [1, 2, 3]}))
        query = "select o.id * :by as id from orders o where o.id > 1"
        run_task(append, sql=query, sql_params={"by": 10}, inputs={"orders": "s.orders"})
        assert connected.ids() == [20, 30]
        assert list(json.loads(connected.load().current_snapshot().summary["airflow.inputs"])) == ["orders"]

    @pytest.mark.services
    @pytest.mark.long
    def test_an_append_of_a_python_callable_whose_code_is_sent(self, connected, run_task):
        connected.create()
        run_task(
            append,
            python_callable="connect_rows:tripled",
            op_kwargs={"count": 4},
            spark_config={"py_files": [USERS_CODE]},
        )
        assert connected.ids() == [0, 3, 6, 9]

    @pytest.mark.services
    @pytest.mark.long
    def test_a_merge(self, of_numbers, run_task):
        query = "select * from values (1L, 10L), (50L, 5L) as s(id, n)"
        merge = operators(IcebergMergeOperator, task_id="merge", spark_conn_id="connect")
        result = run_task(merge, sql=query, on=["id"], upsert=True).result("merge")
        assert (result["added_records"], result["updated_records"]) == (1, 1)
        assert numbers(of_numbers) == {**{n: n for n in range(10)}, 1: 10, 50: 5}

    @pytest.mark.services
    @pytest.mark.long
    def test_an_update_and_a_delete_by_functions_of_spark(self, of_numbers, run_task):
        update = operators(IcebergUpdateOperator, task_id="update", spark_conn_id="connect")
        run_task(update, set={"n": "n + 100"}, where="pmod(id, 5) = 2")
        delete = operators(IcebergDeleteOperator, task_id="delete", spark_conn_id="connect")
        run_task(delete, predicate="pmod(id, 3) = 0 and sqrt(n) >= 0")
        assert numbers(of_numbers) == {1: 1, 2: 102, 4: 4, 5: 5, 7: 107, 8: 8}

    @pytest.mark.services
    @pytest.mark.long
    def test_an_overwrite(self, of_numbers, run_task):
        overwrite = operators(IcebergOverwriteOperator, task_id="overwrite", spark_conn_id="connect")
        run_task(overwrite, sql="select id, -id as n from range(5, 8)", overwrite_filter="id >= 5")
        assert numbers(of_numbers) == {**{n: n for n in range(5)}, 5: -5, 6: -6, 7: -7}

    @pytest.mark.services
    @pytest.mark.long
    def test_a_compaction(self, of_numbers, run_task):
        compact = operators(IcebergCompactOperator, task_id="compact", spark_conn_id="connect")
        result = run_task(compact, options={"min-input-files": 2}).result("compact")
        assert result["outcome"] == "committed"
        assert len(list(of_numbers.load().scan().plan_files())) == 1
        assert numbers(of_numbers) == {n: n for n in range(10)}

    @pytest.mark.services
    @pytest.mark.long
    def test_the_search_for_orphan_files(self, of_numbers, run_task, server):
        folder = Path(of_numbers.load().location.removeprefix("file://")) / "data"
        (folder / "orphan.parquet").write_bytes(b"x")
        remove = operators(IcebergRemoveOrphanFilesOperator, task_id="remove", spark_conn_id="connect")
        before = len(server.jobs())
        run_task(remove, spark_from_files=0, older_than=timedelta(0), action="delete", options={"allow_recent": True})
        assert len(server.jobs()) > before
        assert not (folder / "orphan.parquet").exists()
        assert numbers(of_numbers) == {n: n for n in range(10)}


class TestAFunctionThatReturnsADataFrame:
    """Its session is one of the server, and ends with the task."""

    @pytest.mark.services
    def test_the_workers_of_the_server_write_the_rows(self, connected, new_dag, run_dag, server):
        connected.create()
        seen: list[Any] = []

        def load(spark, sc):
            from pyspark.sql import functions

            seen.extend((spark, sc, spark.conf.get("spark.sql.shuffle.partitions")))
            return spark.range(3).select((functions.col("id") * 2).alias("id"))

        with new_dag() as dag:
            settings = {"spark.sql.shuffle.partitions": "3"}
            task.iceberg_append(table="s.t", spark_conn_id="connect", config_kwargs=settings)(load)()
        before = len(server.jobs())
        assert run_dag(dag).result("load")["added_records"] == 3
        assert connected.ids() == [0, 2, 4]
        assert seen[1:] == [None, "3"]
        assert seen[0].is_stopped
        assert len(server.jobs()) > before

    @pytest.mark.services
    def test_a_token_that_is_wrong(self, connected, new_dag, run_dag, monkeypatch):
        connected.create()
        known = json.loads(os.environ["AIRFLOW_CONN_CONNECT"])
        monkeypatch.setenv("AIRFLOW_CONN_CONNECT", json.dumps({**known, "password": "a-wrong-token"}))

        def load(spark):
            return spark.range(3)

        with new_dag() as dag:
            task.iceberg_append(table="s.t", spark_conn_id="connect")(load)()
        (failure,) = run_dag(dag).failures
        assert "does not accept the token of spark_connect connection 'connect'" in str(failure)
        assert "a-wrong-token" not in str(failure)
        assert connected.ids() == []


# `python -m pyspark.daemon …`, where pyarrow is not installed.
WITHOUT_PYARROW = """import runpy, sys

class Missing:
    def find_spec(self, name, *_):
        if name.partition(".")[0] == "pyarrow":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
sys.argv[1:2] = []
runpy.run_module(sys.argv.pop(1), run_name="__main__", alter_sys=True)
"""


@pytest.mark.services
class TestWhatGoesWrong:
    """Is said in the words of a job that was submitted; nothing is committed, and no secret is shown."""

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ({"sql": "selec 1"}, "Spark does not accept the query: ParseException: [PARSE_SYNTAX_ERROR]"),
            ({"sql": "select * from nowhere"}, "Spark does not accept the query: AnalysisException: [TABLE_OR_VIEW_NO"),
            ({"sql": "select 'x' as id"}, "row 1 of partition 0 of the query: value 'x' (string) does not fit long"),
            (
                {"python_callable": "nowhere:f"},
                "cannot import nowhere of python callable nowhere:f on the Spark driver: No module named 'nowhere'",
            ),
            (
                {"sql": "select 1L as id", "spark_config": {"driver_memory": "1g", "env_vars": {"A": "b"}}},
                "spark_config sets env_vars, driver_memory, and connection 'connect' is of type spark_connect, whose",
            ),
            (
                {"sql": "select 1L as id", "spark_config": {"conf": {"spark.executor.memory": "17g"}}},
                "spark_config sets 'spark.executor.memory' in conf, which is no setting of a session of Spark Connect:",
            ),
            (
                {"sql": "select 1L as id", "spark_config": {"py_files": ["/nowhere.py"]}},
                "cannot send '/nowhere.py' of py_files by Spark Connect: ",
            ),
        ],
    )
    def test_what_the_author_has_to_mend(self, arguments, message, connected, run_task):
        connected.create()
        run = run_task(append, **arguments)
        assert message in run.refusal
        assert not {"\tat ", "Traceback", "17g", TOKEN} & {
            part for part in ("\tat ", "17g", TOKEN) if part in run.refusal
        }
        assert connected.load().current_snapshot() is None
        assert connected.staged() == []

    def test_a_query_that_fails_while_it_runs_and_workers_without_pyarrow(self, connected, run_task, tmp_path):
        connected.create()
        run = run_task(append, sql="select bigint(raise_error('boom')) as id")
        assert "boom" in str(run.failures[0])
        assert "(org.apache." not in str(run.failures[0])
        python = tmp_path / "python"
        python.write_text(f"#!{sys.executable}\n{WITHOUT_PYARROW}")
        python.chmod(0o755)
        conf = {"spark.sql.execution.pyspark.python": str(python)}
        run = run_task(append, sql="select 1L as id", spark_config={"conf": conf})
        assert "the Python of the executors has no package 'pyarrow'; install it there" in str(run.failures[0])
        assert connected.load().current_snapshot() is None

    @pytest.mark.timeout(200)
    @pytest.mark.parametrize(
        ("fields", "message"),
        [
            (
                {"port": "free"},
                "Spark Connect at localhost:{port} does not answer (spark_connect connection 'connect'): ",
            ),
            ({"host": "nowhere.invalid"}, "Spark Connect at nowhere.invalid:{port} does not answer"),
            ({"host": HOST}, "or with use_ssl needs a server with TLS"),
            ({"token": "wr0ng-t0ken"}, "Spark Connect at localhost:{port} does not accept the token of"),
            ({"token": None}, "Spark Connect at localhost:{port} does not accept the token of"),
        ],
        ids=["nobody listens", "no such host", "no TLS", "a wrong token", "no token"],
    )
    def test_a_server_that_cannot_be_used_is_named_at_once(
        self, fields, message, connected, run_task, server, monkeypatch
    ):
        connected.create()
        port = free_ports(1)[0] if fields.get("port") else server.port
        given = {key: value for key, value in fields.items() if key != "port"}
        monkeypatch.setenv("AIRFLOW_CONN_CONNECT", environment_of(port, **given)["AIRFLOW_CONN_CONNECT"])
        run = run_task(append, sql="select 1L as id")
        (error,) = run.failures
        assert message.format(port=port) in str(error)
        assert "t0ken" not in str(error)
        assert "\n" not in str(error)
        assert connected.load().current_snapshot() is None
        assert connected.staged() == []

    def test_a_server_with_an_old_spark(self):
        with pytest.raises(UnsupportedError, match=r"runs Spark 3\.5\.9; expected 4\.0 or later"):
            check_version("3.5.9", "it")
        check_version("4.0.0", "it")


@pytest.mark.services
class TestSeveralAtATime:
    """Jobs of one process do not disturb each other."""

    def test_each_has_a_session_and_views_of_its_own(self, connected):
        tables = [connected.create(f"s.t{number}") for number in range(2)]
        errors: list[BaseException] = []
        together = threading.Barrier(2, timeout=120)

        def job(number: int) -> None:
            together.wait()
            query = f"create or replace temp view mine as select {number}L as id"
            source = Source.from_callable("tests.airflow.connect_rows:of_view", {"query": query})
            try:
                table = tables[number]
                backend = open_backend("connect", SparkConfig(), table=table, source=source, name=str(number))
                found[number] = run_job(backend, table, plan_append(table, source))
            except BaseException as error:
                errors.append(error)

        found: dict[int, Any] = {}
        threads = [threading.Thread(target=job, args=(number,)) for number in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert errors == []
        for number, result in found.items():
            result.raise_for_error()
            assert result.record_count == 1
            (file,) = result.data_files
            assert file["lower-bounds"] == file["upper-bounds"], (number, file)
        assert "SPARK_CONNECT_MODE_ENABLED" not in os.environ


ENDLESS = "select id from range(1152921504606846976) where id % 2 = 3"


def sessions(jobs: list[Any]) -> set[str]:
    """Return the ids of the sessions of jobs."""
    tags = " ".join(tag for job in jobs for tag in job["jobTags"])
    return set(re.findall(r"_Session_([0-9a-f-]{36})", tags))


class Task:
    """A task in a process of its own."""

    def __init__(self, folder: Path, order: dict[str, Any], environment: dict[str, str]) -> None:
        folder.mkdir()
        self.folder = folder
        with (folder / "log").open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.airflow.connect_task", str(folder), json.dumps(order)],
                env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def error(self) -> str:
        self.process.wait(120)
        return (self.folder / "error").read_text() if (self.folder / "error").exists() else "killed"

    def log(self) -> str:
        return (self.folder / "log").read_text(errors="replace")


@pytest.fixture
def begin(connected: Lake, server: SparkConnectServer, tmp_path: Path) -> Iterator[Callable[..., Task]]:
    started = []

    def start(name: str, table: str = "s.t", number: int = 1, **arguments: Any) -> Task:
        order = {"table": table, "try": number, "arguments": arguments}
        started.append(Task(tmp_path / name, order, {**environment_of(server.port), **with_secret(connected)}))
        return started[-1]

    yield start
    for one in started:
        one.process.kill()
        one.process.wait()


@pytest.mark.services
class TestATaskThatIsCancelled:
    """What runs on the server ends with it, whenever the signal comes."""

    @pytest.mark.parametrize("kind", ["a query", pytest.param("a function", marks=pytest.mark.long)])
    def test_while_its_job_runs(self, kind, connected, begin, server):
        connected.create()
        of_function = {"python_callable": "connect_rows:sleeping", "spark_config": {"py_files": [USERS_CODE]}}
        task = begin("task", **({"sql": ENDLESS} if kind == "a query" else of_function))
        wait_for(lambda: [job for job in server.jobs("running") if job["numActiveTasks"]], "the job")
        for _ in range(3):
            task.process.send_signal(signal.SIGTERM)
        assert task.error() == "AirflowException: the job for table s.t was killed; nothing was committed"
        wait_for(lambda: not server.jobs("running"), "the end of the job")
        assert task.log().count("killed; nothing was committed") >= 1
        assert TOKEN not in task.log()
        assert connected.load().current_snapshot() is None
        assert connected.staged() == []

    @pytest.mark.parametrize(
        "moment", ["before its session", "while it opens", pytest.param("between two stages", marks=pytest.mark.long)]
    )
    def test_when_nothing_runs(self, moment, connected, server, monkeypatch):
        table = connected.create(partition_by=["bucket(2, id)"])
        source = Source.from_sql("select id from range(9)")
        backend = open_backend("connect", SparkConfig(), table=table, source=source, name="job")
        if moment == "before its session":
            backend.cancel()
        cancelled: list[int] = []

        def and_cancel(owner: Any, name: str) -> None:
            real = getattr(owner, name)

            def call(*arguments: Any, **more: Any) -> Any:
                if moment == "while it opens":
                    backend.cancel()
                found = real(*arguments, **more)
                backend.cancel()
                cancelled.append(len(server.jobs()))
                return found

            monkeypatch.setattr(owner, name, call)

        and_cancel(*((spark_run._Spark, "collect") if moment == "between two stages" else (ConnectServer, "open")))
        before = len(server.jobs())
        with pytest.raises(IcebergError, match=r"^the job for table s\.t was killed; nothing was committed$"):
            run_job(backend, table, plan_append(table, source))
        assert len(cancelled) == (moment != "before its session")
        assert len(server.jobs()) == (cancelled[0] if cancelled else before)
        assert (len(server.jobs()) > before) == (moment == "between two stages")


@pytest.mark.services
class TestATaskWhoseWorkerDied:
    """What it has left running is ended by its next try, before that starts; nobody else's work is touched."""

    def test_the_next_try_ends_it_and_commits_once(self, connected, begin, server, tmp_path):
        connected.create()
        connected.create("s.other")
        flag = tmp_path / "go"
        code = {"python_callable": "connect_rows:endless_until", "spark_config": {"py_files": [USERS_CODE]}}
        arguments = {**code, "op_kwargs": {"path": str(flag), "count": 5}}
        other = begin("other", "s.other", **arguments)
        # What runs from then on is the endless search.
        wait_for(Path(f"{flag}.begun").exists, "the function of the other table")
        of_other = wait_for(lambda: sessions(server.jobs("running")), "its job")
        Path(f"{flag}.begun").unlink()
        first = begin("first", **arguments)
        wait_for(Path(f"{flag}.begun").exists, "the function")
        both = wait_for(lambda: len(sessions(server.jobs("running"))) == 2 and server.jobs("running"), "both jobs")
        (old,) = [job["jobId"] for job in both if not sessions([job]) & of_other]
        first.process.kill()
        first.process.wait()
        assert old in {job["jobId"] for job in server.jobs("running")}
        flag.touch()
        second = begin("second", number=2, **arguments)
        assert second.error() == "none", second.log()
        assert "ends what an earlier try may have left running" in second.log()
        assert connected.ids() == list(range(5))
        jobs = {job["jobId"]: job for job in server.jobs()}
        new = min(number for number in jobs if number > old)
        assert jobs[old]["status"] == "FAILED"
        assert jobs[old]["completionTime"] <= jobs[new]["submissionTime"]
        assert sessions(server.jobs("running")) == of_other
        other.process.send_signal(signal.SIGTERM)
        assert "was killed; nothing was committed" in other.error()


@pytest.mark.services
class TestSecrets:
    """The server shows neither those of the storage nor the token, also of the jobs that were cancelled above."""

    def test_neither_the_ui_nor_the_session_nor_a_log_shows_them(
        self, connected, run_task, server, monkeypatch, caplog, capfd
    ):
        monkeypatch.setattr(ConnectServer, "open", remembered := Remembered(ConnectServer.open))
        connected.create()
        connected.create("s.orders").append(pa.table({"id": [1]}))
        run = run_task(append, sql="select * from orders", inputs={"orders": "s.orders"})
        assert connected.ids() == [1]
        paths = [
            "/jobs",
            "/stages?details=true",
            "/environment",
            "/sql?details=true&planDescription=true",
            "/executors",
        ]
        shown = [json.dumps(server.rest(path)) for path in paths]
        pages = [server.page(path) for path in ("/connect/", "/jobs/", "/SQL/", "/environment/")]
        pages += [server.page(f"/SQL/execution/?id={one['id']}") for one in server.rest("/sql?length=1000")[-3:]]
        told = [*shown, *pages, server.log(), caplog.text, *capfd.readouterr(), json.dumps(run.result("append"))]
        told += [str(remembered.conf), repr(remembered.server)]
        written = [path.read_bytes() for path in (server.directory / "local").rglob("*") if path.is_file()]
        assert written, "the code that was sent, and the keys"
        told += [data.decode(errors="replace") for data in written]
        assert len(remembered.conf) > 3
        for text in told:
            assert SECRET not in text
            assert TOKEN not in text


class Remembered:
    """Opens sessions as it is done, and remembers the server and the settings of the last session."""

    def __init__(self, real: Callable[..., Any]) -> None:
        self.real = real

    def __get__(self, server: Any, _: type) -> Callable[[str], Any]:
        def open_session(session_id: str) -> Any:
            session = self.real(server, session_id)
            self.server, self.conf = server, session.conf.getAll
            return session

        return open_session
