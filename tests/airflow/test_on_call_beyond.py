"""What a person on call reads of failures that the documentation does not list: two lines, and no useless retry."""

import errno
import json
import os
import sqlite3
import sys
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest
from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException, AirflowSkipException
from airflow.sdk import Connection

from airflow_iceberg.catalogs import load_catalog
from airflow_iceberg.errors import (
    CommitUnknownError,
    FormatError,
    InvalidInputError,
    NotFoundError,
    UnsupportedError,
    described,
)
from airflow_iceberg.hooks.connection import CatalogConfig
from airflow_iceberg.jobs import run_local
from airflow_iceberg.jobs.protocol.result import JobError
from airflow_iceberg.operators import (
    IcebergAlterTableOperator,
    IcebergCreateTableOperator,
    IcebergDeleteOperator,
    IcebergRollbackOperator,
)
from airflow_iceberg.retries import IcebergRetryPolicy, airflow_failures, function_failures
from airflow_iceberg.sensors import IcebergRowCountSensor
from airflow_iceberg.storage.stores.local import LocalStore
from airflow_iceberg.table import Table
from tests.airflow.test_on_call import Scene, refusal, scene
from tests.support.airflow_versions import RetryAction, needs_policies
from tests.support.http_server import Reply, document
from tests.support.memory import MemoryCatalog

__all__ = ["scene"]
SECRET = "sekret-of-the-connection"
AGAIN = "Airflow tries the task again if it has retries left"


@dataclass(frozen=True)
class Told:
    """The two lines of a failure, and what it has become."""

    happened: str
    to_do: str
    error: BaseException

    @property
    def is_final(self) -> bool:
        return isinstance(self.error, AirflowFailException)


@pytest.fixture
def told(caplog):
    """Runs what fails, and returns what was told of it."""

    def run(work) -> Told:
        with pytest.raises(BaseException) as raised:
            work()
        lines = [one.getMessage() for one in caplog.records if one.name == "airflow_iceberg.retries"]
        assert len(lines) == 2, lines
        assert not any("\n" in line or "Traceback" in line for line in lines)
        assert SECRET not in f"{caplog.text}{raised.value}"
        happened, to_do = lines
        return Told(happened.removeprefix("what happened: "), to_do.removeprefix("what to do: "), raised.value)

    return run


def raising(error: BaseException, guard=airflow_failures):
    def run() -> None:
        with guard():
            raise error

    return run


def system_error(number: int) -> OSError:
    return OSError(number, os.strerror(number), "/w/x")


class TestErrorsOfOthers:
    """An error that is not of this package is told in two lines, too."""

    def test_memory(self, told):
        found = told(raising(pa.ArrowMemoryError("malloc of size 64 failed")))
        assert found.happened == "memory ran out (malloc of size 64 failed)"
        assert found.to_do.startswith("give the process more memory")
        assert isinstance(found.error, MemoryError)  # which Airflow tries again

    @pytest.mark.parametrize("guard", [airflow_failures, function_failures])
    def test_a_missing_package_fails_at_once(self, told, guard):
        found = told(raising(ModuleNotFoundError("No module named 'duckdb'", name="duckdb"), guard))
        assert found.happened == f"the Python of this process, {sys.executable}, has no package 'duckdb'"
        assert found.to_do == "install it there; then clear the task"
        assert found.is_final

    @pytest.mark.parametrize(("number", "to_do", "is_final"), [
        (errno.ENOSPC, "make room there, or raise the quota", False),
        (errno.EDQUOT, "make room there, or raise the quota", False),
        (errno.EMFILE, "raise the limit of open files", False),
        (errno.EROFS, "mount the file system so that it can be written", True),
        (errno.EACCES, "give the identity of the connection the permission", True),
        (errno.ENAMETOOLONG, "choose shorter names", True),
        (errno.EIO, "look at the traceback below", False),
    ])  # fmt: skip
    def test_the_operating_system(self, told, number, to_do, is_final):
        found = told(raising(system_error(number)))
        assert found.happened.lower() == f"/w/x: {os.strerror(number).lower()}"
        assert found.to_do.startswith(to_do)
        assert found.is_final is is_final

    def test_a_bug_shows_its_class_and_no_secret(self, told):
        found = told(raising(KeyError("https://etl:pass-word@host/x")))
        assert found.happened == "KeyError: 'https://etl:***@host/x'"
        assert found.to_do.startswith("look at the traceback below")
        assert isinstance(found.error, KeyError)

    def test_an_interrupt(self, told):
        found = told(raising(KeyboardInterrupt()))
        assert (found.happened, type(found.error)) == (
            "the process of the task was interrupted (SIGINT)",
            KeyboardInterrupt,
        )

    @pytest.mark.parametrize("decision", [AirflowSkipException("no"), AirflowFailException("no"), GeneratorExit()])
    def test_what_a_task_decides_itself_is_not_told(self, decision, caplog):
        with pytest.raises(type(decision)):
            raising(decision)()
        assert not caplog.records

    def test_a_job_reports_them_in_the_same_way(self):
        for error in (MemoryError(), ModuleNotFoundError("x", name="x"), system_error(errno.EROFS)):
            back = JobError.from_exception(error).to_exception()
            assert (type(back), str(back), back.advice) == (
                type(described(error)),
                str(described(error)),
                described(error).advice,
            )
        assert back.is_denied

    @needs_policies
    @pytest.mark.parametrize(("error", "action"), [
        (system_error(errno.EROFS), "FAIL"), (system_error(errno.ENOSPC), "DEFAULT"), (MemoryError(), "DEFAULT"),
        (ImportError("x"), "FAIL"), (KeyError("x"), "DEFAULT"),
    ])  # fmt: skip
    def test_the_policy_knows_them_too(self, error, action):
        for raised in (error, AirflowException("the task failed")):
            raised.__cause__ = None if raised is error else error
            assert IcebergRetryPolicy().evaluate(raised, 1, 3).action is RetryAction[action]


@pytest.mark.costly
class TestConnections:
    """A connection that cannot be one of a catalog is named as such, without what is in it."""

    @pytest.mark.parametrize(("extra", "happened"), [
        ('{"token": "' + SECRET, "the extra of connection 'c' is not JSON (line 1)"),
        (f'["{SECRET}"]', "the extra of connection 'c' is a list"),
        (f'"{SECRET}"', "the extra of connection 'c' is a string"),
    ])  # fmt: skip
    def test_an_extra_that_is_no_object(self, scene, told, extra, happened):
        scene.connect("c", conn_type="iceberg_catalog", extra=extra)
        found = told(lambda: scene.append(iceberg_conn_id="c"))
        assert found.happened.startswith(f"{happened}; expected a JSON object such as")
        assert found.to_do == "correct the task's arguments, its data or the connection, then clear the task"
        assert found.is_final

    @pytest.mark.parametrize("extra", ["", "  ", "null", "{}"])
    def test_an_extra_that_says_nothing(self, extra):
        connection = Connection(conn_id="c", conn_type="iceberg_catalog", host="https://h", extra=extra)
        assert dict(CatalogConfig.from_connection(connection).properties) == {"uri": "https://h"}

    def test_an_extra_that_is_too_deep(self):
        connection = Connection(conn_id="c", conn_type="iceberg_catalog", extra="[" * 100_000)
        with pytest.raises(InvalidInputError, match="is not JSON"):
            CatalogConfig.from_connection(connection)

    @pytest.mark.parametrize(("value", "what"), [
        ("{" + SECRET, "cannot be read: it is neither a JSON object nor a URI"),
        ("", "is empty"),
    ])  # fmt: skip
    def test_a_variable_of_the_environment_that_airflow_cannot_read(self, scene, told, value, what):
        scene.monkeypatch.setenv("AIRFLOW_CONN_C", value)
        found = told(lambda: scene.append(iceberg_conn_id="c"))
        assert found.happened == f"catalog connection 'c': the environment variable AIRFLOW_CONN_C {what}"
        assert found.is_final

    def test_the_connection_of_a_database(self, scene, told):
        scene.connect("c", conn_type="postgres", host="db", password=SECRET)
        found = told(lambda: scene.append(iceberg_conn_id="c"))
        assert found.happened == "the connection of catalog 'c' is of type 'postgres', which is not one of a catalog"
        assert found.to_do.startswith("name a connection of type iceberg_catalog")
        assert found.is_final

    def test_one_of_another_service_that_may_be_a_catalog_is_warned_of(self, scene, told, caplog):
        scene.connect("c", conn_type="http", host="http://127.0.0.1:1")
        assert not told(lambda: scene.append(iceberg_conn_id="c")).is_final
        assert "the connection of catalog 'c' is of type 'http', and is used for a catalog of type rest" in caplog.text

    def test_a_catalog_whose_package_is_missing(self, scene, told):
        for name in [name for name in sys.modules if name.startswith("airflow_iceberg.catalogs.glue")]:
            scene.monkeypatch.delitem(sys.modules, name)
        scene.monkeypatch.setitem(sys.modules, "boto3", None)
        scene.connect("c", conn_type="iceberg_catalog", extra={"type": "glue", "warehouse": "s3://b/w"})
        found = told(lambda: scene.append(iceberg_conn_id="c"))
        assert found.happened == "catalog c: the Glue catalog needs boto3"
        assert found.to_do.startswith("install it wherever tasks run")
        assert "pip install 'airflow-iceberg[glue]'" in found.to_do
        assert found.is_final


@pytest.mark.costly
class TestServers:
    """What a server answers says whether a retry can help, and where to look."""

    def rest(self, scene, told, reply: Reply) -> Told:
        scene.rest(lambda _: reply)
        return told(scene.append)

    @pytest.mark.parametrize("status", [429, 500, 502, 503])
    def test_one_that_cannot_now_is_asked_again(self, scene, told, status):
        found = self.rest(scene, told, refusal(status, "", "not now"))
        assert f"{status}: not now" in found.happened
        assert found.to_do == f"check that the server is up, the uri, and the access to it; {AGAIN}"
        assert not found.is_final

    @pytest.mark.parametrize("body", [b"<html>please log in</html>", b"", b"[]"])
    def test_one_that_is_no_catalog(self, scene, told, body):
        found = self.rest(scene, told, Reply(body=body, headers={"Content-Type": "text/html"}))
        assert found.to_do.startswith("check the uri of the connection: a login page, a proxy or another program")
        assert found.is_final

    def test_a_page_that_is_not_found_is_not_taken_for_a_table(self, scene, told):
        page = Reply(status=404, body=b"<html><b>Welcome</b></html>", headers={"Content-Type": "text/html"})
        found = self.rest(scene, told, page)
        assert "its server seems to lack the endpoint 'GET /v1/{prefix}/namespaces/{namespace}/tab" in found.happened
        assert found.happened.endswith("is answered 404: Welcome, which is not the answer of a catalog")
        assert found.to_do.startswith("check the uri and the prefix of the connection; if they are right, use a server")
        assert found.is_final

    @pytest.mark.parametrize("kind", ["UnsupportedOperationException", "NotImplementedError"])
    def test_one_that_never_does_it_is_not_asked_again(self, scene, told, kind):
        found = self.rest(scene, told, refusal(500, kind, "not here"))
        assert f"the server answers 500 {kind}: not here" in found.happened
        assert found.to_do == "another try gets the same answer: look at the log of the server; then clear the task"
        assert found.is_final

    @pytest.mark.parametrize(("kind", "is_final"), [("invalid_client", True), ("temporarily_unavailable", False)])
    def test_a_login_that_is_refused_for_now_is_tried_again(self, scene, told, kind, is_final):
        server = scene.serve(lambda _: document({"error": kind, "error_description": "no"}, status=400))
        login = {"oauth2-server-uri": f"{server.uri}/tokens", "credential": f"id:{SECRET}"}
        scene.rest(lambda _: document({}), **login)
        found = told(scene.append)
        assert f"answers 400 {kind}: no" in found.happened
        assert found.is_final is is_final

    def test_a_uri_that_leads_elsewhere(self, scene, told):
        uri = scene.serve(lambda _: refusal(404, "", "")).uri
        scene.connect(conn_type="iceberg_catalog", host=uri, extra={"type": "rest"})
        found = told(scene.append)
        assert found.to_do == "check the uri and the warehouse of the connection; then clear the task"

    def test_https_where_there_is_none(self, scene, told):
        uri = scene.serve(lambda _: document({})).uri.replace("http:", "https:")
        scene.connect(conn_type="iceberg_catalog", host=uri, extra={"type": "rest"})
        found = told(scene.append)
        assert found.happened.endswith("/v1/config: no TLS is spoken at this port")
        assert found.to_do == "correct the scheme (http or https) or the port of the uri; then clear the task"
        assert found.is_final

    def test_a_metastore_whose_name_is_unknown(self, scene, told):
        scene.connect(conn_type="iceberg_catalog", host="thrift://no-such-host.invalid:9083", extra={"type": "hive"})
        found = told(scene.append)
        assert "cannot connect to no-such-host.invalid:9083" in found.happened
        assert found.to_do.startswith("check host and port in the uri")
        assert not found.is_final


@pytest.mark.costly
class TestDatabases:
    """A file that cannot be the database of a catalog is not tried again."""

    def use(self, scene, told, uri: str) -> Told:
        scene.connect(**{**scene.lake.connection, "host": uri})
        return told(scene.append)

    def test_in_a_folder_that_does_not_exist(self, scene, told):
        found = self.use(scene, told, f"sqlite:///{scene.folder}/mistyped/catalog.db")
        assert found.to_do.startswith(f"its folder {scene.folder}/mistyped does not exist: correct the uri")
        assert found.is_final

    def test_whose_folder_sqlite_finds_itself(self, scene, told):
        found = self.use(scene, told, f"sqlite:///file:{scene.folder}/mistyped/catalog.db?uri=true")
        assert "its folder" not in found.to_do
        assert not found.is_final

    def test_that_is_something_else(self, scene, told):
        path = scene.folder / "notes.txt"
        path.write_bytes(b"no database" * 500)
        found = self.use(scene, told, f"sqlite:///{path}")
        assert found.to_do == "the file is something else: correct the uri; then clear the task"
        assert found.is_final

    def test_that_is_locked_is_tried_again(self, scene, told):
        path = scene.folder / "catalog.db"
        with sqlite3.connect(path, isolation_level=None) as other:
            other.execute("begin exclusive")
            found = self.use(scene, told, f"sqlite:///{path}?timeout=0.05")
            other.execute("rollback")
        assert found.to_do == f"another process holds its lock for too long, wait for it; {AGAIN}"
        assert not found.is_final


@pytest.mark.costly
class TestDisks:
    """A disk that is full is tried again, one that may not be written to is not; the advice says which."""

    @pytest.mark.parametrize("where", [".staging", "/data/", "/metadata/"])
    @pytest.mark.parametrize(("number", "to_do", "is_final"), [
        (errno.ENOSPC, "make room there", False), (errno.EROFS, "mount the file system", True),
        (errno.EACCES, None, True),
    ])  # fmt: skip
    def test_wherever_it_is_written(self, scene, told, where, number, to_do, is_final):
        real = LocalStore._open_new

        def open_new(store, stack, path, mode=0o666):
            if where in path:
                raise OSError(number, os.strerror(number), path)
            return real(store, stack, path, mode)

        scene.monkeypatch.setattr(LocalStore, "_open_new", open_new)
        found = told(scene.append)
        assert found.is_final is is_final
        assert os.strerror(number).lower() in found.happened
        assert "[Errno" not in found.happened
        assert to_do is None or found.to_do.startswith(to_do)


@pytest.mark.costly
class TestFilesOfTables:
    """A file that a table needs and that is gone is to be restored: no name is wrong."""

    @pytest.mark.parametrize("pattern", ["*.metadata.json", "snap-*.avro", "*-m0.avro", "*.parquet"])
    def test_that_are_gone(self, scene, told, pattern):
        scene.lake.append([1, 2])
        folder = Path(scene.lake.load().location.removeprefix("file://"))
        for path in folder.rglob(pattern):
            path.unlink()
        found = told(lambda: scene.run(IcebergDeleteOperator, predicate="id = 1"))
        assert "restore it from the store's versions or a backup" in found.to_do
        assert found.is_final

    def test_snapshots_that_are_gone(self, scene, told):
        scene.lake.append([1])
        newest = scene.lake.load().current_snapshot().snapshot_id
        found = told(lambda: scene.run(IcebergRollbackOperator, snapshot_id=7))
        assert found.happened.endswith("has no snapshot 7")
        assert found.to_do.startswith(f"it may have expired: choose one that the table has (the newest: {newest})")


@pytest.mark.costly
class TestSources:
    """Files that are not there: the path may be wrong, or nothing has written them yet."""

    def test_a_file_and_its_folder(self, scene, told):
        path = scene.folder / "mistyped" / "a.parquet"
        found = told(lambda: scene.append(files=str(path)))
        assert found.happened == f"source file {path} does not exist, nor does its folder"
        assert found.to_do.startswith("correct the path, or find out why nothing has written the file yet")

    def test_a_glob_that_matches_nothing_is_warned_of(self, scene, capsys):
        glob = str(scene.folder / "mistyped" / "*.parquet")
        assert scene.append(files=glob)["outcome"] == "nothing"
        assert (
            f"nothing was committed: no file matches {glob}, or the files are empty; check the path"
            in capsys.readouterr().out
        )

    def test_and_told_if_the_task_is_to_fail(self, scene, told):
        glob = str(scene.folder / "mistyped" / "*.parquet")
        found = told(lambda: scene.append(files=glob, on_empty="fail"))
        assert f"no file matches {glob}" in found.happened
        assert found.to_do.startswith("correct the source, or find out why it has no rows yet")
        assert found.is_final


@pytest.mark.costly
class TestTablesThatAreMissing:
    """The error of a missing table says where it was looked for, and which part of its name is wrong."""

    def hadoop(self, scene: Scene, warehouse: Path) -> None:
        scene.connect(conn_type="iceberg_catalog", extra={"type": "hadoop", "warehouse": warehouse.as_uri()})

    def test_a_warehouse(self, scene, told):
        self.hadoop(scene, scene.folder / "mistyped")
        found = told(scene.append)
        where = (scene.folder / "mistyped").as_uri()
        assert found.happened == (
            f"there is no table s.t in catalog iceberg_catalog_default, looked for at {where}/s/t: the warehouse "
            f"{where} does not exist, or holds nothing"
        )
        assert found.to_do == "correct the connection, or create the table first; then clear the task"
        assert not (scene.folder / "mistyped").exists()

    def test_a_namespace_and_a_table_in_a_directory(self, scene, told, caplog):
        self.hadoop(scene, scene.folder / "lake")
        for name in ("sales.orders", "sales.returns"):
            scene.run(IcebergCreateTableOperator, table=name, schema={"id": "long"})
        where = (scene.folder / "lake").as_uri()
        made = [one for one in caplog.records if "did not exist" in one.getMessage()]
        assert [one.levelname for one in made] == ["WARNING"]
        assert f"the warehouse {where} did not exist, or held nothing, and is made now" in made[0].getMessage()
        ends = {
            "sales.order": "/sales/order; did you mean sales.orders?",
            "sale.orders": "/sale/orders: namespace sale does not exist; did you mean sales.orders?",
            "sales.customers": "/sales/customers; namespace sales has orders, returns",
            "stock.items": "/stock/items: namespace stock does not exist; the catalog has sales",
        }
        for name, end in ends.items():
            caplog.clear()
            assert told(lambda name=name: scene.append(table=name)).happened.endswith(f"looked for at {where}{end}")

    def test_a_table_of_a_database(self, scene, told, caplog):
        ends = {
            "s.tt": "; namespace s has t",
            "z.t": ": namespace z does not exist; the catalog has s",
            "s.T": "; did you mean s.t?",
        }
        for name, end in ends.items():
            caplog.clear()
            happened = told(lambda name=name: scene.append(table=name)).happened
            assert happened == f"there is no table {name} in catalog lake, in the file {scene.folder}/catalog.db{end}"

    def test_the_name_of_the_catalog_is_part_of_a_key(self, scene, told):
        scene.connect(**{**scene.lake.connection, "extra": {**scene.lake.connection["extra"], "catalog_name": "prod"}})
        assert told(scene.append).happened.endswith("has tables of catalog 'lake' only; set that as catalog_name")

    def test_a_database_that_is_made_is_warned_of(self, scene, told, caplog):
        scene.connect(**{**scene.lake.connection, "host": f"sqlite:///{scene.folder}/mistyped.db"})
        assert told(scene.append).happened.endswith("mistyped.db: the database has no tables at all")
        assert not (scene.folder / "mistyped.db").exists()
        scene.run(IcebergCreateTableOperator, table="s.t", schema={"id": "long"})
        assert "mistyped.db did not exist and is made now" in caplog.text

    def test_a_table_of_a_server(self, scene, told):
        def answer(request):
            if request.method == "GET" and request.path.partition("?")[0].endswith("/namespaces/s/tables"):
                return document({"identifiers": [{"namespace": ["s"], "name": "orders"}]})
            if request.path.partition("?")[0].endswith("/namespaces/s"):
                return document({"namespace": ["s"]})
            return refusal(404, "NoSuchTableException", "no")

        scene.rest(answer)
        assert told(lambda: scene.append(table="s.order")).happened.endswith("; did you mean s.orders?")

    @pytest.mark.parametrize("address", [
        f"postgresql+psycopg://me:{SECRET}/more@db/lake",
        f"mysql+pymysql://me:{SECRET}#a?b@db/lake",
        f"https://catalog/api?token={SECRET}",
        f"thrift://one:9083,thrift://me:{SECRET}@two:9083",
    ])  # fmt: skip
    def test_no_address_shows_a_login(self, address):
        catalog = MemoryCatalog("prod", namespaces=("s",))
        catalog.properties = {"uri": address}
        with pytest.raises(NotFoundError, match=r"there is no table s\.nope in catalog prod") as caught:
            Table.load(catalog, "s.nope")
        assert SECRET[:6] not in str(caught.value)

    def test_a_server_whose_lists_do_not_end(self, scene, told):
        """Every page has another one behind it."""
        listed = []

        def answer(request):
            path, _, query = request.path.partition("?")
            if request.method == "GET" and path.endswith("/namespaces"):
                listed.append(query)
                return document({"namespaces": [[f"n{len(listed)}"]], "next-page-token": str(len(listed))})
            return refusal(404, "NoSuchNamespaceException", "no")

        scene.rest(answer)
        happened = told(lambda: scene.append(table="n.order")).happened
        assert "namespace n does not exist" in happened
        assert 0 < len(listed) < 5

    @pytest.mark.parametrize("forged", ["\x1b[31morder", "order\nERROR all is lost", "../order", "order" * 1000])
    def test_names_that_are_none_are_not_told(self, scene, told, forged):
        def answer(request):
            if request.method == "GET" and request.path.partition("?")[0].endswith("/namespaces"):
                return document({"namespaces": [[forged], ["stock"]]})
            return refusal(404, "NoSuchNamespaceException", "no")

        scene.rest(answer)
        assert told(lambda: scene.append(table="order.x")).happened.endswith("does not exist; the catalog has stock")

    def test_a_database_of_many_catalogs(self, tmp_path):
        uri = f"sqlite:///{tmp_path}/c.db"
        for name in (*(f"a{number:02}" for number in range(11)), "z"):
            catalog = load_catalog(name, type="sql", uri=uri, warehouse=(tmp_path / "w").as_uri())
            catalog.create_namespace("s", if_not_exists=True)
            Table.create(catalog, "s.orders", schema={"id": "long"})
        with pytest.raises(NotFoundError, match=r"did you mean s\.orders\?"):
            Table.load(catalog, "s.order")

    def test_a_sensor_says_it_too(self, scene, told):
        found = told(lambda: scene.run(IcebergRowCountSensor, table="s.T", min_rows=1))
        assert found.happened.endswith("; did you mean s.t?")

    def test_a_catalog_that_does_not_list_is_no_other_error(self, scene, told):
        def answer(request):
            return refusal(403 if request.path.endswith("/tables") else 404, "NoSuchTableException", "no")

        scene.rest(answer)
        found = told(scene.append)
        assert isinstance(found.error.__cause__, NotFoundError)


@pytest.mark.costly
class TestTwoFaults:
    """The answer to a commit is lost, and then something else is wrong."""

    def commit(self, scene, told, *, answer: Reply | None, then: Reply | None) -> Told:
        few = {"commit.status-check.num-retries": "1", "commit.status-check.min-wait-ms": "1"}
        few |= {"commit.retry.num-retries": "1", "commit.retry.min-wait-ms": "1"}
        scene.lake.create("s.r", properties=few)
        state = scene.lake.catalog.load("s.r")
        metadata = json.loads(Path(state.metadata_location.removeprefix("file://")).read_text())
        loaded = document({"metadata-location": state.metadata_location, "metadata": metadata, "config": {}})
        sent = []

        def serve(request):
            if request.method == "POST":
                sent.append(request)
                return answer
            return then if sent and then else loaded

        scene.rest(serve, warehouse=scene.folder.as_uri())
        changes = [{"add_column": {"name": "n", "type": "long"}}]
        return told(lambda: scene.run(IcebergAlterTableOperator, table="s.r", changes=changes))

    @pytest.mark.parametrize(("status", "why"), [(503, "503: down"), (403, "403: down"), (401, "401: down")])
    def test_the_catalog_cannot_be_asked(self, scene, told, status, why):
        found = self.commit(scene, told, answer=None, then=refusal(status, "", "down"))
        assert "the server did not confirm it (no answer" in found.happened
        assert "; the table cannot be read back, either: catalog " in found.happened
        assert why in found.happened
        assert found.to_do == "nothing was deleted; the next try looks for the commit in the table first: let it do so"
        assert isinstance(found.error.__cause__, CommitUnknownError)
        assert not found.is_final

    def test_no_attempt_is_confirmed_and_nobody_else_has_won(self, scene, told):
        found = self.commit(scene, told, answer=refusal(500, "", "boom"), then=None)
        assert "none of 2 attempts to commit to s.r" in found.happened
        assert "other writers" not in found.happened
        assert "nothing was committed" not in found.happened
        assert isinstance(found.error.__cause__, CommitUnknownError)


@pytest.mark.costly
class TestJobs:
    """What a job raises in the process of its task."""

    def test_memory(self, scene, told):
        def full(*_, **__):
            raise MemoryError

        scene.monkeypatch.setattr(run_local, "run_local", full)
        found = told(scene.append)
        assert (found.happened, found.is_final) == ("memory ran out", False)

    def test_a_source_whose_driver_is_missing(self, scene, told):
        scene.monkeypatch.setitem(sys.modules, "s3fs", None)
        for name in [name for name in sys.modules if name.startswith("airflow_iceberg.storage.stores.s3")]:
            scene.monkeypatch.delitem(sys.modules, name)
        found = told(lambda: scene.append(files="s3://landing/a.parquet"))
        assert found.to_do == "run: pip install 'airflow-iceberg[s3]', wherever it failed; then clear the task"
        assert isinstance(found.error.__cause__, UnsupportedError)


def test_what_a_server_has_sent_is_no_file(told):
    found = told(raising(FormatError("unexpected type list (expected object) in 'metadata' of the answer")))
    assert found.to_do.startswith("look at who has sent or written what is named above")
