"""No credential of a connection is shown or kept anywhere: one connection full of them, and a search of all that is."""

import json
import os
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from airflow.models.renderedtifields import RenderedTaskInstanceFields as Rendered
from airflow.models.xcom import XComModel
from airflow.sdk import Connection
from airflow.utils.session import create_session
from sqlalchemy import select

from airflow_iceberg.backends.backend import open_backend
from airflow_iceberg.backends.config import SparkConfig
from airflow_iceberg.catalogs import load_catalog
from airflow_iceberg.format.avro.container import read_header
from airflow_iceberg.hooks.connection import CatalogConfig
from airflow_iceberg.hooks.diagnosis import Diagnosis, Step
from airflow_iceberg.hooks.iceberg import IcebergHook
from airflow_iceberg.jobs.protocol.source import Source
from airflow_iceberg.operators.append import IcebergAppendOperator
from airflow_iceberg.storage import load_file_io
from tests.airflow.conftest import CONN_ID, Lake, operators
from tests.support.append_steps import plan_append
from tests.support.http_server import HttpServer, Reply, Request

# Each has the mark in it, so that one search finds any of them.
MARK = "Zq9Secret"
SECRETS = {
    "credential": f"client:{MARK}-credential",
    "token": f"{MARK}-token",
    "s3.access-key-id": f"{MARK}-s3-key",
    "s3.secret-access-key": f"{MARK}-s3-secret",
    "s3.session-token": f"{MARK}-s3-session",
    "s3.proxy-uri": f"http://proxy:{MARK}-proxy@127.0.0.1:1",
    "adls.account-key": f"{MARK}-account-key",
    "adls.sas-token": f"sv=2026&sig={MARK}-signature",
    "adls.connection-string": f"AccountName=lake;AccountKey={MARK}-inner-key",
    "adls.sas-token.lake.dfs.core.windows.net": f"sv=2026&sig={MARK}-other-signature",
    "adls.client-secret": f"{MARK}-principal",
    "gcs.oauth2.token": f"{MARK}-gcs",
    "header.Authorization": f"Bearer {MARK}-header",
    "header.X-Gate": f"{MARK}-gate",
    "rest.auth.basic.password": f"{MARK}-basic",
    "rest.secret-access-key": f"{MARK}-rest-keys",
    "client.session-token": f"{MARK}-client-session",
    "glue.secret-access-key": f"{MARK}-glue",
    "glue.session-token": f"{MARK}-glue-session",
    "hdfs.token": f"{MARK}-delegation",
    "hive.metastore.keystore.password": f"{MARK}-keystore",
    "hive.metastore.truststore.password": f"{MARK}-truststore",
}
PASSWORD = f"{MARK}-password"
append = operators(IcebergAppendOperator, spark_conn_id=None)


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lake:
    """A lake whose connection also holds a secret of every kind, one of them inside of its address."""
    made = Lake(tmp_path)
    # SQLite takes an address with a parameter that only means something to others.
    uri = f"{made.connection['host']}?uri=true&password={PASSWORD}"
    uri = uri.replace("sqlite:///", "sqlite:///file:")
    connection = {**made.connection, "host": uri, "extra": {**made.connection["extra"], **SECRETS}}
    monkeypatch.setenv(f"AIRFLOW_CONN_{CONN_ID.upper()}", json.dumps(connection))
    return made


@pytest.fixture
def no_secret(
    lake: Lake, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture, failures: list, airflow_db: Path
) -> Iterator[Callable[[], int]]:
    """Looks everywhere at the end; gives a function that does so in between and tells how many texts it has seen."""
    caplog.set_level("INFO")
    shown: list[str] = []

    def look() -> int:
        out, err = capfd.readouterr()
        shown.extend((out, err, caplog.text))
        texts = {f"output {number}": text for number, text in enumerate(shown)}
        texts |= {f"error {n}": "".join(traceback.format_exception(error)) for n, error in enumerate(failures)}
        texts |= {str(path): _text(path) for path in _files(lake.folder, airflow_db)}
        assert [where for where, text in texts.items() if MARK in text] == []
        return len(texts)

    yield look
    look()


def _files(*folders: Path) -> Iterator[Path]:
    """Every file of the lake (tables, staging folder, catalog) and of Airflow (database, logs)."""
    for folder in folders:
        yield from (path for path in folder.rglob("*") if path.is_file())


def _text(path: Path) -> str:
    data = path.read_bytes()
    inflated = b""
    if path.suffix == ".avro":
        import fastavro

        with path.open("rb") as file:
            inflated = repr((read_header(data).metadata, list(fastavro.reader(file)))).encode()
    return (data + inflated).decode("latin-1")


class TestTheTask:
    """A task that appends, and tasks that fail, leave none of them in logs, errors, XCom, templates and files."""

    @pytest.mark.services
    def test_the_connection_reaches_the_catalog_with_all_of_them(self, lake):
        """Else this module would look for what never was there."""
        properties = IcebergHook().config.properties
        assert SECRETS.items() <= properties.items()
        assert PASSWORD in properties["uri"]
        assert IcebergHook().catalog.list_namespaces() == ()

    @pytest.mark.services
    def test_an_append_and_failures(self, lake, new_dag, run_dag, failures, no_secret):
        lake.create()
        broken_file = lake.write_file("broken.parquet", [3])
        broken_file.write_bytes(broken_file.read_bytes()[:-9])
        with new_dag() as dag:
            append(task_id="append", files=str(lake.write_file("a.parquet", [1, 2])))
            append(task_id="broken", files=str(broken_file))
            append(task_id="unknown", table="s.nope", files=str(lake.folder))
            append(task_id="remote", files="s3://lake/a.parquet")
        run = run_dag(dag)
        assert run.state == "failed"
        assert run.task("append").state == "success"
        assert len(failures) == 3
        assert lake.ids() == [1, 2]
        assert no_secret() > 10
        for task_id in ("append", "broken", "unknown", "remote"):
            assert MARK not in repr(_kept_of(run, task_id))

    @pytest.mark.costly
    def test_a_job_whose_task_died_leaves_a_plan_without_them(self, lake, no_secret):
        table = IcebergHook().load_table(lake.create().name)
        plan = plan_append(table, Source.from_files(str(lake.write_file("a.parquet", [1]))))
        assert lake.staged(), "the plan is written before the job starts"
        assert MARK not in repr(plan)
        assert no_secret() > 3

    @pytest.mark.costly
    def test_nor_does_the_command_line_of_spark(self, lake, monkeypatch, no_secret, tmp_path):
        monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps({"conn_type": "spark", "host": "local[1]"}))
        lake.create()
        table = IcebergHook().load_table("s.t")
        source = Source.from_files(str(lake.write_file("a.parquet", [1])))
        backend = open_backend("spark_default", SparkConfig(), table=table, source=source, name="job")
        hook = backend._open_hook(plan_append(table, source), tmp_path / "core.zip")
        command = hook._build_spark_submit_command("/main.py")
        assert MARK not in repr(command)
        assert MARK not in hook._mask_cmd(command)
        assert MARK in repr(hook.environment), "they go by the environment"
        assert MARK not in json.dumps(dict(os.environ) | {f"AIRFLOW_CONN_{CONN_ID.upper()}": ""})

    @pytest.mark.services
    def test_objects_do_not_show_them(self, lake, no_secret):
        lake.create()
        hook = IcebergHook()
        table = hook.load_table("s.t")
        shown = repr((hook, hook.config, hook.catalog, table, table.io, hook.catalog.io, vars(hook)["config"]))
        assert MARK not in shown


class TestEveryCatalog:
    """What a server or a driver says when it fails may hold what was sent to it: our errors do not."""

    @pytest.mark.sample(3)
    @pytest.mark.parametrize("status", [401, 403, 500])
    @pytest.mark.parametrize("kind", ["rest", "nessie", "glue"])
    def test_an_error_page_that_repeats_the_request(self, kind, status, caplog):
        caplog.set_level("DEBUG")
        with HttpServer(lambda request: repeating(request, status)) as server:
            extra = {**SECRETS, "type": kind, "glue.region": "eu-central-1", "glue.access-key-id": "AK"}
            extra |= {"glue.max-retries": "1", "rest.client.max-retries": "0", "warehouse": "file:///tmp/none"}
            extra.pop("s3.proxy-uri")
            config = _config(host=server.uri + ("/api/v2" if kind == "nessie" else ""), extra=extra)
            step = Step(what="log in", run=lambda: str(load_catalog("prod", **config.properties).list_namespaces()))
            works, text = Diagnosis(secrets=config.secrets()).follow(iter((step,)), str)
            shown = shown_by(lambda: load_catalog("prod", **config.properties).list_namespaces())
            assert server.seen, text
        assert not works
        assert MARK not in text + shown + caplog.text

    @pytest.mark.parametrize(
        ("kind", "uri"),
        [
            ("sql", f"postgresql://me:{PASSWORD}@127.0.0.1:1/none"),
            ("sql", f"mysql+pymysql://me:{PASSWORD}@127.0.0.1:1/none"),
            ("rest", f"http://me:{PASSWORD}@127.0.0.1:1/none"),
            ("nessie", f"http://me:{PASSWORD}@127.0.0.1:1/api/v2"),
            ("hive", "thrift://127.0.0.1:1"),
        ],
    )
    def test_a_server_that_is_away(self, kind, uri, caplog):
        caplog.set_level("DEBUG")
        extra = {**SECRETS, "type": kind, "rest.client.max-retries": "0", "warehouse": "file:///tmp/none"}
        config = _config(host=uri, extra=extra, password=PASSWORD)
        shown = shown_by(lambda: load_catalog("prod", **config.properties).list_namespaces())
        assert MARK not in shown + caplog.text

    # The drivers of the others wait for long before they give up.
    @pytest.mark.parametrize(
        "location",
        ["s3://b/f", *(pytest.param(each, marks=pytest.mark.services) for each in ("abfs://c/f", "gs://b/f"))],
    )
    def test_a_store_that_is_away(self, location):
        away = {**dict.fromkeys(("s3.endpoint", "gcs.service.host"), "http://127.0.0.1:9"), "adls.account-name": "a"}
        key = f"AccountName=a;AccountKey={MARK}AccountKeyInBase64=;BlobEndpoint=http://127.0.0.1:9/a;"
        away["adls.connection-string"] = f"DefaultEndpointsProtocol=http;{key}"
        properties = {name: text for name, text in SECRETS.items() if name.startswith(("s3.", "gcs."))}
        assert MARK not in shown_by(lambda: load_file_io({**properties, **away}).read(location))


def repeating(request: Request, status: int = 403) -> Reply:
    """A server that refuses, and repeats in its answer all that it was sent."""
    text = json.dumps({"path": request.path, "headers": dict(request.headers), "body": request.body.decode("latin-1")})
    message = {"error": {"message": text, "type": "Oops", "code": status}, "message": text, "status": status}
    return Reply(status=status, body=json.dumps(message).encode())


def shown_by(action: Callable[[], object]) -> str:
    """Return what an action that fails shows, with all that it is chained from."""
    with pytest.raises(Exception, match=r".") as raised:
        action()
    return "".join(traceback.format_exception(raised.value, chain=True))


class TestLibrariesThatShowRequests:
    """With all loggers at DEBUG the drivers write down requests, and repeat them in errors: without what is secret."""

    S3 = {"s3.access-key-id": f"{MARK}-key", "s3.secret-access-key": f"{MARK}-secret", "s3.region": "us-east-1"}
    SESSION = {**S3, "s3.session-token": f"{MARK}-session"}
    STORES = {
        "s3": ("s3://lake/f", lambda uri: {"s3.endpoint": uri, **TestLibrariesThatShowRequests.SESSION}),
        "s3 signed by the catalog": (
            "s3://lake/f",
            lambda uri: {
                **{"s3.endpoint": uri, "s3.region": "us-east-1", "token": f"{MARK}-token"},
                **{"s3.remote-signing-enabled": "true", "s3.signer.uri": uri},
            },
        ),
        "gcs": ("gs://lake/f", lambda uri: {"gcs.service.host": uri, "gcs.oauth2.token": f"{MARK}-token"}),
        "adls by signature": (
            "abfs://lake/f",
            lambda uri: {
                "adls.connection-string": f"BlobEndpoint={uri}/acc;SharedAccessSignature=sv=1&sig={MARK}-signature"
            },
        ),
        "adls by key": (
            "abfs://lake/f",
            lambda uri: {
                "adls.connection-string": f"AccountName=acc;AccountKey={MARK}AccountKeyInBase64=;BlobEndpoint={uri}/acc"
            },
        ),
        "webhdfs": (
            "webhdfs://{authority}/f",
            lambda uri: {"hdfs.token": f"{MARK}-delegation", "warehouse": uri.replace("http", "webhdfs")},
        ),
    }

    @pytest.mark.costly
    @pytest.mark.parametrize("is_lent", [False, True], ids=["of the connection", "lent"])
    @pytest.mark.parametrize("store", STORES)
    def test_of_stores(self, store, is_lent, caplog):
        caplog.set_level("DEBUG")
        location, properties_of = self.STORES[store]
        with HttpServer(repeating) as server:
            properties = properties_of(server.uri)
            location = location.format(authority=server.uri.removeprefix("http://"))
            io = load_file_io(properties, refresh=(lambda: properties) if is_lent else None)
            shown = shown_by(lambda: io.read(location)) + shown_by(lambda: io.create(location, b"1"))
            filesystem, path = io.filesystem(location)
            # Not ours: what the driver says by itself, which we wrap where rows are read and written.
            driver = "" if store == "webhdfs" else shown_by(lambda: filesystem.open(path, "rb").read())
            assert len(server.seen) > 2
        assert MARK not in shown + driver + caplog.text

    def test_of_rows_over_http_to_hdfs(self, caplog):
        caplog.set_level("DEBUG")
        with HttpServer(repeating) as server:
            location = f"webhdfs://{server.uri.removeprefix('http://')}/f"
            given = {"hdfs.token": f"{MARK}-delegation", "warehouse": location}
            filesystem, path = load_file_io(given).filesystem(location)
            server.handle = lambda _request: Reply(status=403, body=b"no")
            shown = shown_by(lambda: filesystem.open(path, "rb").read())
            server.handle = lambda _request: None
            shown += shown_by(lambda: filesystem.open(path, "rb").read())
        assert MARK not in shown + caplog.text


class TestWhatALoginGives:
    """A token that a server gives for a credential is a secret that no connection holds."""

    @pytest.mark.parametrize("refused", ["/v1/oauth/tokens", "/v1/config", "/v1/namespaces"])
    def test_it_is_not_shown_either(self, refused, caplog):
        def answer(request: Request) -> Reply:
            if request.path.startswith(refused):
                return repeating(request)
            if request.path.startswith("/v1/oauth/"):
                given = {"access_token": f"{MARK}-given", "token_type": "bearer", "expires_in": 3600}
                return Reply(body=json.dumps(given).encode())
            lent = {"s3.session-token": f"{MARK}-lent", "token": f"{MARK}-from-the-server"}
            return Reply(body=json.dumps({"defaults": lent, "overrides": {}}).encode())

        caplog.set_level("DEBUG")
        with HttpServer(answer) as server:
            extra = {"type": "rest", "credential": f"me:{MARK}-c", "scope": "all", "warehouse": "file:///tmp/none"}
            config = _config(host=server.uri, extra=extra)
            catalog = load_catalog("prod", **config.properties, **{"rest.client.max-retries": "0"})
            shown = shown_by(catalog.list_namespaces)
            assert any(request.path.startswith(refused) for request in server.seen)
        assert MARK not in shown + repr(catalog) + caplog.text


def _config(**fields: Any) -> CatalogConfig:
    extra = json.dumps(fields.pop("extra"))
    return CatalogConfig.from_connection(Connection(conn_id="prod", conn_type="iceberg_catalog", extra=extra, **fields))


def _kept_of(run: Any, task_id: str) -> list[Any]:
    """What Airflow keeps of a task: its rendered templates and every XCom."""
    with create_session() as session:
        return [
            value
            for column, kind in ((Rendered.rendered_fields, Rendered), (XComModel.value, XComModel))
            for value in session.scalars(
                select(column).where(kind.run_id == run.dag_run.run_id, kind.task_id == task_id)
            )
        ]
