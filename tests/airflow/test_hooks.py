"""From the fields of a connection to a catalog."""

import asyncio
import json
from typing import Any
from urllib.parse import quote

import pytest
from airflow.sdk import BaseHook, Connection
from airflow.sdk.log import redact

from airflow_iceberg.errors import InvalidInputError
from airflow_iceberg.hooks.connection import CatalogConfig
from airflow_iceberg.hooks.iceberg import IcebergHook, load_catalog_async
from tests.support.airflow_versions import ProvidersManagerTaskRuntime


def config(conn_type: str = "iceberg_catalog", extra: Any = None, **fields: Any) -> CatalogConfig:
    text = json.dumps(extra) if extra is not None else None
    return CatalogConfig.from_connection(Connection(conn_id="lake", conn_type=conn_type, extra=text, **fields))


class TestAnAddressThatIsGivenTwice:
    """One of the two is not used, and the log says which."""

    @pytest.mark.parametrize(("kind", "field"), [("sql", "uri"), ("glue", "glue.endpoint")])
    def test_it_is_said(self, caplog, kind, field):
        found = config(host="postgresql://db/x", extra={"type": kind, field: "postgresql://other/y"})
        assert found.properties[field] == "postgresql://db/x"
        assert f"connection 'lake' has an address as its host, and a field '{field}', which is not used" in caplog.text

    def test_one_is_no_cause(self, caplog):
        config(host="postgresql://db/x", extra={"type": "sql"})
        config(extra={"type": "sql", "uri": "postgresql://db/x"})
        assert caplog.text == ""


class TestAnIdThatIsNone:
    """It is no connection, and no retry makes it one."""

    @pytest.mark.parametrize("conn_id", [None, "", 7])
    def test_a_hook_says_so(self, conn_id):
        with pytest.raises(InvalidInputError, match=r"the id of the catalog connection is .*, expected a name as text"):
            _ = IcebergHook(conn_id).config
        with pytest.raises(InvalidInputError, match=r"the id of the catalog connection is .*, expected a name as text"):
            asyncio.run(load_catalog_async(conn_id))


class TestTheCatalogsProperties:
    """A connection's fields become properties under PyIceberg's names."""

    @pytest.mark.parametrize(
        ("extra", "properties"),
        [
            ({"type": "sql", "s3.endpoint": "http://s"}, {"type": "sql", "s3.endpoint": "http://s"}),
            ({"type": "sql", "properties": {"s3.endpoint": "http://s"}}, {"type": "sql", "s3.endpoint": "http://s"}),
            ({"type": "sql", "properties": {"type": "hadoop"}}, {"type": "sql"}),
            # JSON text, as a form keeps it.
            ({"properties": '{"a": "b"}'}, {"a": "b"}),
            ({"properties": " "}, {}),
            ({"a": True, "b": 5, "c": None, "d": "", "e": {"f": 1}}, {"a": "true", "b": "5", "e": '{"f": 1}'}),
            ({"uri": "sqlite:///c.db"}, {"uri": "sqlite:///c.db"}),
        ],
        ids=["flat", "nested", "both: flat wins", "a text", "an empty text", "values are text or left out", "the uri"],
    )
    def test_the_extra_holds_them(self, extra, properties):
        assert config(extra=extra).properties == properties

    @pytest.mark.parametrize("broken", ["{not json", [1], 5])
    def test_broken_nested_properties_are_an_error_that_shows_no_secret(self, broken):
        with pytest.raises(InvalidInputError, match="extra field 'properties' of connection 'lake'") as caught:
            config(extra={"properties": broken})
        assert "not json" not in str(caught.value)

    @pytest.mark.parametrize(
        ("host", "port", "kind", "uri"),
        [
            ("https://c.example.com/api", None, "rest", "https://c.example.com/api"),
            ("https://c.example.com/api", 8181, "rest", "https://c.example.com:8181/api"),
            ("https://c.example.com:8080/api", 8181, "rest", "https://c.example.com:8080/api"),
            ("c.example.com", 8181, "rest", "https://c.example.com:8181"),
            ("metastore", 9083, "hive", "thrift://metastore:9083"),
            ("thrift://a:1, thrift://b", 9090, "hive", "thrift://a:1,thrift://b:9090"),
            ("sqlite:////data/c.db", None, "sql", "sqlite:////data/c.db"),
            ("postgresql+psycopg://db/iceberg", 5432, "sql", "postgresql+psycopg://db:5432/iceberg"),
            ("jdbc:postgresql://db/iceberg", None, "jdbc", "jdbc:postgresql://db/iceberg"),
        ],
    )
    def test_the_host_is_the_uri(self, host, port, kind, uri):
        assert config(host=host, port=port, extra={"type": kind}).properties["uri"] == uri


class TestLoginAndPassword:
    """They go where the catalog's type looks for them; what the extra says explicitly wins."""

    @pytest.mark.parametrize(
        ("kind", "fields", "properties"),
        [
            ("rest", {"host": "https://c"}, {"uri": "https://c", "credential": "me@x:p/w"}),
            # A user in the URI itself wins, and a file knows no users.
            ("sql", {"host": "postgresql://db/x", "port": 5432}, {"uri": "postgresql://me%40x:p%2Fw@db:5432/x"}),
            ("sql", {"host": "postgresql://a:b@db/x"}, {"uri": "postgresql://a:b@db/x"}),
            (None, {"host": "sqlite:////c.db"}, {"uri": "sqlite:////c.db"}),
            (None, {"host": "thrift://a:9083"}, {"uri": "thrift://a:9083", "user": "me@x", "password": "p/w"}),
            (
                "jdbc",
                {"host": "jdbc:postgresql://db/x"},
                {"uri": "jdbc:postgresql://db/x", "jdbc.user": "me@x", "jdbc.password": "p/w"},
            ),
            ("nessie", {"host": "h/api/v2"}, {"uri": "https://h/api/v2", "user": "me@x", "token": "p/w"}),
            (
                "glue",
                {"host": "http://h", "port": 4566},
                {"glue.endpoint": "http://h:4566", "glue.access-key-id": "me@x", "glue.secret-access-key": "p/w"},
            ),
        ],
    )
    def test_by_type(self, kind, fields, properties):
        found = config(login="me@x", password="p/w", extra={"type": kind}, **fields).properties
        assert found == {**({} if kind is None else {"type": kind}), **properties}

    def test_a_rest_catalog_with_a_token_does_not(self):
        found = config(host="https://c", login="id", password="secret", extra={"type": "rest", "token": "t"})
        assert "credential" not in found.properties


class TestTheCatalogsName:
    """SQL catalogs keep tables under it: the connection id, unless `catalog_name` says otherwise."""

    def test_it_is_the_connection_id_or_what_the_connection_says(self):
        assert config().name == "lake"
        found = config(extra={"catalog_name": "prod"})
        assert (found.name, found.properties) == ("prod", {})


class TestConnectionsOfTheOfficialProvider:
    """Connections of type `iceberg` are taken as they are."""

    def test_without_a_type_it_is_a_rest_catalog(self):
        found = config("iceberg", host="http://c", login="id", password="secret", extra={"warehouse": "w"})
        assert found.properties == {"type": "rest", "uri": "http://c", "credential": "id:secret", "warehouse": "w"}

    def test_one_of_another_type_is_that(self, lake, monkeypatch):
        extra = {key: value for key, value in lake.connection["extra"].items() if key != "catalog_name"}
        connection = {"conn_type": "iceberg", "host": lake.connection["host"], "extra": extra}
        monkeypatch.setenv("AIRFLOW_CONN_OFFICIAL", json.dumps(connection))
        assert IcebergHook("official").get_conn().name == "official"


class TestSecrets:
    """They are masked in every log, and shown by nothing."""

    EXTRA = {
        "type": "rest",
        "credential": "my-client:my-secret",
        "token-refresh-enabled": "false",
        "s3.session-token-expires-at-ms": "1700000000000",
        "s3.proxy-uri": "http://proxy:my%40proxy@proxy:3128",
        "header.Authorization": "Bearer my-header",
        "header.X-Gate": "my-gate",
        "header.X-Iceberg-Access-Delegation": "vended-credentials",
        "rest.auth.basic.password": "my-basic",
        "adls.sas-token": "sv=2026&sig=my-signature",
        "token": "my-token",
        "s3.secret-access-key": "my-s3-key",
        "adls.account-key": "my-account-key",
        "properties": {"adls.connection-string": "my-connection-string"},
        "s3.endpoint": "http://not-secret",
    }

    def test_all_of_them_are_found_and_not_shown(self):
        found = config(host="postgresql://me:my%2Fpassword@db/x", extra=self.EXTRA)
        assert "my-" not in repr(found)
        assert set(found.secrets()) == {
            *("my-client:my-secret", "my-secret", "my-token", "my-s3-key", "my-account-key", "my-connection-string"),
            *("my%2Fpassword", "my/password", "my%40proxy", "my@proxy", "Bearer my-header", "my-header", "my-gate"),
            *("my-basic", "sv=2026&sig=my-signature", "my-signature"),
        }

    @pytest.mark.costly
    def test_the_hook_masks_them(self, monkeypatch):
        monkeypatch.setenv("AIRFLOW_CONN_SECRETIVE", json.dumps({"conn_type": "iceberg_catalog", "extra": self.EXTRA}))
        assert IcebergHook("secretive").config.name == "secretive"
        assert redact("a my-account-key and my-secret here") == "a *** and *** here"


class TestTheTestButton:
    """It says which step failed, or what it found."""

    def test_a_catalog_that_works(self, lake):
        lake.create("a.t")
        lake.create("b.t")
        lake.append([1], "a.t")
        worked, message = IcebergHook().test_connection()
        assert worked
        assert message.startswith("catalog 'lake' (type sql) works: read the connection; open the catalog; log in and ")
        assert "list the namespaces: 2 namespaces; list the warehouse file://" in message
        assert "; read a table: a.t; create a file in file://" in message
        assert message.endswith("only if it isn't there")

    @pytest.mark.parametrize(
        ("connection", "step"),
        [
            (None, "could not read the connection: catalog connection 'broken' does not exist; create"),
            ({"extra": {"properties": "{"}}, "could not read the connection: extra field 'properties'"),
            ({"extra": {"type": "nonsense"}}, "could not open the catalog: catalog broken: unknown type 'nonsense'"),
            (
                {"host": "sqlite:////no/such/folder/c.db", "extra": {"type": "sql", "warehouse": "file:///w"}},
                "could not",
            ),
            ({"extra": {"type": "hadoop", "warehouse": "nosuch://w"}}, "could not "),
        ],
    )
    def test_the_step_that_fails_is_named(self, connection, step, monkeypatch):
        if connection is not None:
            monkeypatch.setenv("AIRFLOW_CONN_BROKEN", json.dumps({"conn_type": "iceberg_catalog", **connection}))
        worked, message = IcebergHook("broken").test_connection()
        assert not worked
        assert message.startswith(step)

    def test_airflow_finds_the_hook_by_the_connections_type(self, lake, airflow_db, monkeypatch):
        if "airflow-iceberg" not in ProvidersManagerTaskRuntime().providers:
            pytest.skip("the package is not installed in this environment, so Airflow cannot know it")
        assert isinstance(BaseHook.get_hook("iceberg_catalog_default"), IcebergHook)


class TestTheHooksTables:
    """The hook opens and creates tables; the catalog is opened once."""

    def test_create_and_load(self, lake):
        hook = IcebergHook()
        hook.catalog.create_namespace("s")
        made = hook.create_table("s.t", schema={"id": "long", "d": "date"}, partition_by=["month(d)"])
        assert hook.load_table("s.t").metadata == made.metadata
        assert hook.get_conn() is hook.catalog

    def test_a_connection_as_a_uri_works_too(self, lake, monkeypatch):
        warehouse = quote(lake.connection["extra"]["warehouse"], safe="")
        uri = quote(lake.connection["host"], safe="")
        monkeypatch.setenv(
            "AIRFLOW_CONN_BY_URI", f"iceberg-catalog:///?type=sql&uri={uri}&warehouse={warehouse}&catalog_name=lake"
        )
        lake.create("s.t")
        assert IcebergHook("by_uri").load_table("s.t").name == "s.t"


class TestInATrigger:
    """The same connection, read without blocking the event loop."""

    def test_the_catalog_is_the_same(self, lake):
        catalog = asyncio.run(load_catalog_async("iceberg_catalog_default"))
        assert (catalog.name, dict(catalog.properties)) == (IcebergHook().catalog.name, dict(lake.catalog.properties))
