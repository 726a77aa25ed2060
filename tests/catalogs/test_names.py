"""Names that would leave their place in a path, a location or an address: no catalog accepts or sends one."""

import sqlite3
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import pytest

from airflow_iceberg.catalogs import load_catalog
from airflow_iceberg.catalogs.base import Catalog, TableId, parse_namespace
from airflow_iceberg.errors import InvalidInputError, UnsupportedError
from airflow_iceberg.hooks.paimon import PaimonConfig
from tests.catalogs.contract import make_table, new_metadata
from tests.support.http_server import HttpServer, Reply

BAD = [".", "..", "...", " .. ", "a/b", "../b", "/etc", "a\\b", "a\0b", "a\nb", "a\x1fb", "a\x1db", "a\x7fb", "a\x85b"]
ENCODED = [quote(each, safe="") for each in BAD if not each.strip().startswith(".") or "/" in each]
ENCODED += ["%2e%2E", "%2E", "a%252Fb", "a%5cb", "a" + "%" + "25" * 20 + "2Fb"]
# A Hadoop catalog refuses some of the calls for every table.
REFUSED = r"cannot be the name of a table|is not a namespace|a Hadoop catalog"
REFS = ["orders@../../b", "orders@a/b", "orders#a/b", "orders@a%2Fb"]
GOOD = [
    "orders",
    "Orders 2",
    "a-b_c",
    "100%",
    "50%25",
    "ünïcode",
    "t@etl",
    "t'; drop table x; --",
    "{x}",
    "a..b",
    ".hidden",
]


@pytest.fixture
def server():
    with HttpServer(lambda request: Reply(status=404)) as server:
        yield server


CATALOGS = ["hadoop", "sql", "rest", "nessie", "glue", "hive"]


@pytest.fixture(params=CATALOGS)
def catalog(request: pytest.FixtureRequest, server: HttpServer, tmp_path: Path) -> Catalog:
    warehouse = (tmp_path / "wh").as_uri()
    given = {
        "hadoop": {},
        "sql": {"uri": f"sqlite:///{tmp_path}/catalog.db"},
        "rest": {"uri": server.uri, "rest.client.max-retries": "0"},
        "nessie": {"uri": f"{server.uri}/api/v2"},
        "glue": {"glue.endpoint": server.uri, "glue.region": "us-east-1", "glue.max-retries": "0"},
        "hive": {"uri": "thrift://127.0.0.1:1"},
    }[request.param]
    return load_catalog("prod", type=request.param, warehouse=warehouse, **given)


def uses(catalog: Catalog, table: TableId | str) -> list[Callable[[], object]]:
    metadata = new_metadata("file:///w/t")
    return [
        lambda: catalog.load(table),
        lambda: catalog.table_exists(table),
        lambda: catalog.create(table, metadata),
        lambda: catalog.drop_table(table),
        lambda: catalog.drop_table(table, purge=True),
        lambda: catalog.rename_table(table, "db.u"),
        lambda: catalog.rename_table("db.u", table),
        lambda: catalog.register_table(table, "file:///w/t/metadata/1.json"),
        lambda: catalog.default_location(table),
        lambda: catalog.namespace_of(table),
    ]


class TestNamesOfTables:
    """A name is one part of a path, whoever reads it, and however often he decodes it."""

    @pytest.mark.parametrize("name", [*BAD, *ENCODED, ""])
    def test_a_bad_one_is_none(self, name: str) -> None:
        with pytest.raises(InvalidInputError, match=r"cannot be the name of a table|is empty|is not a namespace"):
            TableId(namespace=("db",), name=name)
        with pytest.raises(InvalidInputError, match=r"cannot be the name of a table|is not a namespace"):
            TableId(namespace=(name,), name="t")
        with pytest.raises(InvalidInputError, match=r"cannot be the name of a table|is not a namespace"):
            parse_namespace(("db", name))

    @pytest.mark.parametrize("name", GOOD)
    def test_a_good_one_is_kept(self, name: str) -> None:
        assert TableId(namespace=("db",), name=name).name == name

    def test_a_reference_of_nessie_may_contain_slashes(self) -> None:
        assert str(TableId.parse("sales.orders@release-1.2/hotfix")) == "sales.orders@release-1.2/hotfix"
        for text in ("sales/x.orders@etl", "sa%2Fles.orders@etl", "sales.orders@a\\b", "sales.orders@a\nb"):
            with pytest.raises(InvalidInputError, match="cannot be the name of a table"):
                TableId.parse(text)


class TestEveryCatalog:
    """A name with a slash after a mark is a reference for Nessie; for all others it is a name with a slash."""

    @pytest.mark.parametrize("name", REFS)
    def test_such_a_name_is_not_used(self, catalog: Catalog, server: HttpServer, name: str, tmp_path: Path) -> None:
        if catalog.names_have_refs:
            pytest.skip("a reference")
        table = TableId(namespace=("db",), name=name)
        for use in uses(catalog, table):
            with pytest.raises((InvalidInputError, UnsupportedError), match=REFUSED):
                use()
        namespace = ("db", name)
        for use in (
            lambda: catalog.create_namespace(namespace),
            lambda: catalog.drop_namespace(namespace),
            lambda: catalog.list_tables(namespace),
            lambda: catalog.list_namespaces(namespace),
            lambda: catalog.namespace_exists(namespace),
            lambda: catalog.load_namespace_properties(namespace),
            lambda: catalog.update_namespace_properties(namespace, {"a": "1"}),
        ):
            with pytest.raises((InvalidInputError, UnsupportedError), match=REFUSED):
                use()
        assert server.seen == []
        assert not (tmp_path / "wh").exists()

    def test_a_listing_leaves_out_what_cannot_be_named(self, tmp_path: Path) -> None:
        catalog = load_catalog("prod", type="sql", uri=f"sqlite:///{tmp_path}/c.db", warehouse=tmp_path.as_uri())
        catalog.create_namespace("db")
        make_table(catalog, "db.t")
        with sqlite3.connect(tmp_path / "c.db") as connection:
            connection.execute(
                "insert into iceberg_tables select catalog_name, table_namespace, '../x', "
                "metadata_location, previous_metadata_location, iceberg_type from iceberg_tables"
            )
        assert catalog.list_tables("db") == (TableId.parse("db.t"),)


class TestPaimon:
    """The names of a Paimon table are folders of the warehouse."""

    @pytest.mark.parametrize("table", ["db...", "db.%2e%2e", "a%2fb.t", "db.t\\x", "db.a\nb"])
    def test_a_bad_one_is_refused(self, table: str) -> None:
        config = PaimonConfig(conn_id="p", warehouse="file:///wh", path=None, properties={})
        with pytest.raises(InvalidInputError):
            config.location(table)
