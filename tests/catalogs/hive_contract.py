"""What a catalog on a Hive Metastore promises beside the contract of all catalogs; for every version of the server."""

import pytest

from airflow_iceberg.catalogs.hive.client import Connection, HiveClient
from airflow_iceberg.errors import InvalidInputError
from tests.catalogs.contract import CatalogContract, make_table

NO_LOCKS = {"engine.hive.lock-enabled": "false"}


def empty_metastore(uri: str) -> None:
    """Remove all namespaces and tables, but for the one that can't be removed."""
    client = HiveClient("test", {"uri": uri})
    for database in client.call("get_all_databases"):
        if database != "default":
            client.call("drop_database", name=database, deleteData=False, cascade=True)
    for table in client.call("get_all_tables", db_name="default"):
        client.call("drop_table", dbname="default", name=table, deleteData=False)
    client.close()


class CountedCalls:
    """The names of all calls to metastores while it is in use, in their order."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.names: list[str] = []
        inner = Connection.call

        def call(connection: Connection, name: str, /, **arguments: object) -> object:
            self.names.append(name)
            return inner(connection, name, **arguments)

        monkeypatch.setattr(Connection, "call", call)

    def of(self, act) -> list[str]:
        self.names.clear()
        act()
        return list(self.names)


class HiveContract(CatalogContract):
    """A Hive Metastore has one level of namespaces, names without case, and a namespace that is always there."""

    has_nested_namespaces = False
    default_place = "db.db/t"
    other_namespaces = (("default",),)
    no_namespaces = ("d", "dax", "db.x")

    def test_names_have_no_case(self, catalog, other):
        catalog.create_namespace("Sales")
        state = make_table(catalog, "Sales.Orders")
        assert other.load("SALES.orders").metadata == state.metadata
        assert [str(table) for table in other.list_tables("sales")] == ["sales.orders"]
        assert other.namespace_exists("sAlEs")

    def test_a_table_in_a_nested_namespace_is_a_table_like_others(self, catalog):
        with pytest.raises(InvalidInputError, match=r"namespace db\.inner has 2 levels, a Hive Metastore has one"):
            catalog.create_namespace("db.inner")
        assert not catalog.table_exists("db.inner.t")

    def test_a_name_that_hive_cannot_hold_is_refused_and_leaves_nothing_behind(self, catalog, properties):
        with pytest.raises(InvalidInputError, match=r"the metastore refuses table db\.tä: "):
            make_table(catalog, "db.tä")
        assert list(catalog.io.list(f"{properties['warehouse']}/db.db")) == []

    def test_a_namespace_has_location_comment_and_owner(self, catalog, other, properties):
        given = {
            "location": f"{properties['warehouse']}/elsewhere",
            "comment": "all orders",
            "hive.metastore.database.owner": "crew",
            "hive.metastore.database.owner-type": "GROUP",
            "color": "green",
        }
        catalog.create_namespace("sales", given)
        assert other.load_namespace_properties("sales") == given
        assert other.default_location("sales.t") == f"{properties['warehouse']}/elsewhere/t"
        other.update_namespace_properties("sales", {"color": "red", "hive.metastore.database.owner": "jane"})
        changed = {"hive.metastore.database.owner": "jane", "hive.metastore.database.owner-type": "USER"}
        assert catalog.load_namespace_properties("sales") == {**given, "color": "red", **changed}
