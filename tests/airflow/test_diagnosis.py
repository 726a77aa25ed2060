"""The test button on connections that fail at each step, against real servers: the step and what to do are named."""

import json
import socket
import sqlite3
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_iceberg.hooks.iceberg import IcebergHook
from airflow_iceberg.hooks.paimon import PaimonHook
from airflow_iceberg.storage import load_file_io
from airflow_iceberg.storage.stores.local import LocalStore
from tests.services.launch import free_ports
from tests.services.seaweedfs import SeaweedFS
from tests.support.certificates import make_certificates
from tests.support.http_server import HttpServer, Reply
from tests.support.postgresql import PostgreSQL

WRONG = "wr0ng-secret"
NO_RETRIES = {"rest.client.max-retries": "0"}


@pytest.fixture
def press(monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Presses the button for a connection, which by default does not work, and gives the answer."""

    def run(works: bool = False, **fields: Any) -> str:
        monkeypatch.setenv("AIRFLOW_CONN_TRIED", json.dumps({"conn_type": "iceberg_catalog", **fields}))
        worked, message = IcebergHook("tried").test_connection()
        assert worked == works
        assert WRONG not in message
        return message

    return run


def files_below(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*"))


class TestNothingIsCreated:
    """What the first table would create is missing for a mistyped name, too: it is said first, and stays missing."""

    def test_a_warehouse_that_may_be_new_or_mistyped(self, tmp_path, press):
        warehouse = (tmp_path / "warehose").as_uri()
        message = press(works=True, extra={"type": "hadoop", "warehouse": warehouse})
        assert message == (
            f"the warehouse {warehouse} does not exist yet: the first table creates it; if it should exist, correct "
            "the warehouse of the connection. catalog 'tried' (type hadoop) works: read the connection; open the "
            "catalog; log in and list the namespaces: 0 namespaces; "
            f"list the warehouse {warehouse}: it does not exist yet; read a table: there is none yet"
        )
        assert files_below(tmp_path) == []

    def test_a_warehouse_in_a_folder_that_does_not_exist_or_that_is_a_file(self, tmp_path, press):
        warehouse = (tmp_path / "dta" / "warehouse").as_uri()
        message = press(extra={"type": "hadoop", "warehouse": warehouse})
        assert message.startswith(
            f"could not list the warehouse {warehouse}: neither this folder nor the folder above it exists; correct "
            "the warehouse of the connection, or create the folder (worked: "
        )
        assert files_below(tmp_path) == []
        (tmp_path / "w").write_text("")
        warehouse = (tmp_path / "w").as_uri()
        message = press(extra={"type": "hadoop", "warehouse": warehouse})
        assert message.startswith(f"could not list the warehouse {warehouse}: cannot use {warehouse} as a directory: ")

    def test_an_empty_warehouse_is_written_to_and_left_empty(self, tmp_path, press):
        message = press(works=True, extra={"type": "hadoop", "warehouse": tmp_path.as_uri()})
        assert message.startswith("catalog 'tried' (type hadoop) works: ")
        assert f"create a file in {tmp_path.as_uri()} only if it isn't there" in message
        assert files_below(tmp_path) == []

    def test_the_database_of_a_sql_catalog(self, tmp_path, press):
        extra = {"type": "sql", "warehouse": tmp_path.as_uri()}
        message = press(works=True, host=f"sqlite:///{tmp_path}/catalgo.db", extra=extra)
        assert message.startswith(
            f"the sqlite database {tmp_path}/catalgo.db does not exist yet: the first table creates it; if it should "
            "exist, correct the connection. catalog 'tried' (type sql) works: "
        )
        assert files_below(tmp_path) == []

    def test_the_tables_of_a_sql_catalog(self, tmp_path, press):
        path = tmp_path / "airflow.db"
        with sqlite3.connect(path) as connection:
            connection.execute("create table dag (id int)")
        extra = {"type": "sql", "warehouse": tmp_path.as_uri()}
        message = press(works=True, host=f"sqlite:///{path}", extra=extra)
        assert message.startswith(f"the sqlite database {path} has no Iceberg tables yet: the first table creates ")
        with sqlite3.connect(path) as connection:
            assert connection.execute("select name from sqlite_master").fetchall() == [("dag",)]

    @pytest.mark.services
    def test_an_object_store_has_no_folder_that_could_be_missing(self, seaweedfs, press):
        extra = {**seaweedfs.s3_properties, "type": "hadoop", "warehouse": "s3://lake/new/warehose"}
        message = press(works=True, extra=extra)
        assert message.startswith("the warehouse s3://lake/new/warehose does not exist yet: the first table creates ")
        assert list(load_file_io(seaweedfs.s3_properties).list("s3://lake/new")) == []


class TestWhatIsMistyped:
    """Nothing reads a mistyped field, and a catalog may work without it: the answer names it, whatever else it says."""

    def test_a_field_that_would_have_helped(self, tmp_path, press):
        message = press(extra={"type": "hadoop", "warehuose": tmp_path.as_uri()})
        assert "property 'warehouse' is missing" in message
        assert message.endswith(
            "nothing reads the field 'warehuose' of the connection; write 'warehouse' if that is meant"
        )

    def test_fields_that_the_catalog_works_without(self, tmp_path, press):
        extra = {"type": "hadoop", "warehouse": tmp_path.as_uri(), "s3_endpoint": "x", "properties": {"s3.regoin": "y"}}
        message = press(works=True, extra=extra)
        assert message.startswith("nothing reads the field 's3.regoin' of the connection; write 's3.region' if that")
        assert "'s3_endpoint' of the connection; write 's3.endpoint' if that is meant. catalog 'tried'" in message

    def test_what_is_of_no_other_name_is_the_users(self, tmp_path, press):
        extra = {"type": "hadoop", "warehouse": tmp_path.as_uri(), "owner": "me", "header.X": "y", "s" * 101: "z"}
        assert press(works=True, extra=extra).startswith("catalog 'tried'")

    def test_the_field_of_a_paimon_connection(self, tmp_path, monkeypatch):
        tried = {"conn_type": "paimon", "extra": {"warehouse": tmp_path.as_uri(), "s3.endpiont": "x"}}
        monkeypatch.setenv("AIRFLOW_CONN_TRIED", json.dumps(tried))
        works, message = PaimonHook("tried").test_connection()
        assert works
        assert message.startswith("nothing reads the field 's3.endpiont'")

    def test_the_type_of_the_connection(self, press):
        assert press(conn_type="postgres").endswith("the connection is of type 'postgres', expected 'iceberg_catalog'")

    @pytest.mark.parametrize(
        ("extra", "kind"), [("{not json", "not JSON (line 1)"), ("[1]", "a list"), ('"x"', "a string")]
    )
    def test_an_extra_that_airflow_takes_for_an_empty_one(self, extra, kind, press):
        message = press(extra=extra)
        assert message.startswith(f"could not read the connection: the extra of connection 'tried' is {kind}; expected")

    def test_a_port(self, press):
        message = press(host=f"http://user:{WRONG}@127.0.0.1:99999", extra={"type": "rest"})
        assert message.startswith("could not read the address in uri: the port in uri is not a number from 0 to 65535")


class TestAStoreThatIgnoresConditions:
    """Only a catalog whose commits are files needs them."""

    @pytest.mark.parametrize("kind", ["sql", "hadoop"])
    def test_of_a_catalog(self, kind, lake, tmp_path, press, monkeypatch):
        lake.create()
        create = LocalStore.create

        def overwrite(store: Any, location: str, data: bytes) -> None:
            if location.endswith(".probe"):
                store.delete([location])
            create(store, location, data)

        monkeypatch.setattr(LocalStore, "create", overwrite)
        connection = {**lake.connection, "extra": {**lake.connection["extra"], "type": kind}}
        if kind == "hadoop":
            del connection["host"]
        message = press(works=kind == "sql", **connection)
        end = "ignores that condition, which this catalog does not need" if kind == "sql" else "with conditional writes"
        assert end in message


class TestNames:
    """A host that nobody knows is found out before anybody logs in, whatever the catalog."""

    @pytest.mark.parametrize(
        ("kind", "uri"),
        [
            ("rest", "https://no-such-host.invalid/catalog"),
            ("nessie", "https://no-such-host.invalid/api/v2"),
            ("hive", "thrift://no-such-host.invalid:9083"),
            ("sql", "postgresql://me@no-such-host.invalid/iceberg"),
            ("glue", "https://no-such-host.invalid"),
        ],
    )
    def test_of_the_catalog(self, kind, uri, press):
        message = press(host=uri, extra={"type": kind, "warehouse": "file:///tmp/w"})
        assert message.startswith("could not resolve the name no-such-host.invalid: ")
        assert "check the spelling of the host and the DNS of this machine (worked: read the connection" in message

    def test_of_the_store(self, tmp_path, press):
        extra = {"type": "sql", "warehouse": "s3://lake/w", "s3.endpoint": "http://no-such-host.invalid:9000"}
        message = press(host=f"sqlite:///{tmp_path}/c.db", extra=extra)
        assert message.startswith("could not resolve the name no-such-host.invalid: ")

    def test_a_port_where_nobody_listens(self, press):
        (port,) = free_ports(1)
        message = press(host=f"http://127.0.0.1:{port}", extra={"type": "rest"})
        assert message.startswith(f"could not connect to 127.0.0.1:{port}: ")
        assert "check the port, and that the service is up (worked: read the connection; resolve the name" in message


class TestAServerThatDoesNotAnswer:
    """It takes the connection, and that is all: a task asks again for minutes; nobody waits so long for a button."""

    @pytest.mark.costly
    @pytest.mark.parametrize("kind", ["rest", "hive"])
    def test_is_given_up(self, kind, press, tmp_path, monkeypatch):
        monkeypatch.setattr("airflow_iceberg.hooks.diagnosis.STEP_TIMEOUT_S", 1)
        scheme = "thrift" if kind == "hive" else "http"
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
            extra = {"type": kind, "warehouse": tmp_path.as_uri()}
            message = press(host=f"{scheme}://127.0.0.1", port=port, password=WRONG, extra=extra)
        assert ": no answer within 1 s; check the address" in message


class TestTls:
    """Its failure is told from that of the name and that of the login."""

    def test_a_server_that_does_not_speak_it(self, press):
        with HttpServer(lambda request: Reply()) as server:
            place = server.uri.removeprefix("http://")
            message = press(host=f"https://{place}", extra={"type": "rest"})
        assert message.startswith(f"could not speak TLS with {place}: ")
        assert "TLS: check that the address is one of TLS (https) and no proxy is between" in message
        assert f"connect to {place})" in message

    @pytest.mark.costly
    def test_a_certificate_that_is_not_trusted_and_then_is(self, tmp_path, press):
        certificates = make_certificates(tmp_path)
        config = {"defaults": {}, "overrides": {}}
        with HttpServer(lambda request: Reply(status=401, body=json.dumps(config).encode())) as server:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificates.server)
            server._server.socket = context.wrap_socket(server._server.socket, server_side=True)
            place = server.uri.removeprefix("http://")
            extra = {"type": "rest", "token": WRONG, **NO_RETRIES}
            message = press(host=f"https://{place}", extra=extra)
            assert message.startswith("could not ")
            assert "speak TLS with" not in message.partition("(worked")[0]
            assert "TLS: its certificate is not trusted here, let the process trust its CA" in message
            message = press(host=f"https://{place}", extra={**extra, "ssl.cabundle": str(certificates.authority)})
            assert "not trusted" not in message
            assert f"speak TLS with {place}: TLSv1." in message


@pytest.fixture(scope="module")
def seaweedfs() -> Iterator[SeaweedFS]:
    server = SeaweedFS().start()
    yield server
    server.stop()


class TestLogins:
    """A wrong one is the step of the login, with everything before it named as working."""

    def parted(self, message: str) -> tuple[str, str]:
        step, _, worked = message.partition("(worked: ")
        assert step.startswith(("could not log in and list the namespaces: ", "could not open the catalog: "))
        return step, worked

    @pytest.mark.costly
    def test_of_a_rest_catalog(self, seaweedfs, press):
        properties = dict(seaweedfs.catalog_properties)
        client = properties.pop("credential").partition(":")[0]
        message = press(host=properties.pop("uri"), login=client, password=WRONG, extra=properties)
        assert "connect to 127.0.0.1:" in self.parted(message)[1]

    @pytest.mark.services
    def test_of_postgresql(self, request, press):
        postgresql = PostgreSQL()
        request.addfinalizer(postgresql.remove)
        host = f"postgresql://127.0.0.1:{postgresql.port}/postgres"
        message = press(host=host, login="lab", password=WRONG, extra={"type": "sql", "warehouse": "file:///tmp/w"})
        step, worked = self.parted(message)
        assert "authentication failed" in step
        assert f"connect to 127.0.0.1:{postgresql.port}" in worked

    @pytest.mark.costly
    def test_of_the_store(self, seaweedfs, tmp_path, press):
        extra = {**seaweedfs.s3_properties, "s3.secret-access-key": WRONG}
        extra |= {"type": "sql", "warehouse": "s3://lake/w"}
        message = press(host=f"sqlite:///{tmp_path}/c.db", extra=extra)
        step, _, worked = message.partition("(worked: ")
        assert step.startswith("could not list the warehouse s3://lake/w: ")
        assert f"log in and list the namespaces: the sqlite database {tmp_path}/c.db does not exist yet" in worked

    @pytest.mark.services
    @pytest.mark.parametrize(("kind", "path"), [("nessie", "/api/v2"), ("glue", ""), ("rest", "")])
    def test_of_a_server_that_refuses_everybody(self, kind, path, press):
        refusal = {"message": "no", "__type": "UnrecognizedClientException", "error": {"message": "no", "code": 401}}
        with HttpServer(lambda request: Reply(status=401, body=json.dumps(refusal).encode())) as server:
            extra = {"type": kind, "warehouse": "file:///tmp/w", "glue.region": "eu-central-1", **NO_RETRIES}
            message = press(host=f"{server.uri}{path}", login="me", password=WRONG, extra=extra)
        assert "connect to 127.0.0.1:" in self.parted(message)[1]
