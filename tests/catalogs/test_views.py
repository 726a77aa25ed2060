"""What else than a table has a name is said to be what it is, whatever is asked for, in each catalog."""

import sqlite3
from contextlib import closing

import boto3
import pytest
import requests

from airflow_iceberg.catalogs import load_catalog
from airflow_iceberg.catalogs.hive.client import HiveClient
from airflow_iceberg.catalogs.hive.thrift_interface import FieldSchema, SerDeInfo, StorageDescriptor
from airflow_iceberg.catalogs.hive.thrift_interface import Table as HiveTable
from airflow_iceberg.errors import AlreadyExistsError, InvalidInputError, NotFoundError
from airflow_iceberg.table import Table
from tests.catalogs.contract import make_table
from tests.catalogs.hive_contract import empty_metastore
from tests.catalogs.rest_contract import empty
from tests.services.glue import KEYS

SCHEMA = {"type": "struct", "schema-id": 0, "fields": [{"id": 1, "name": "id", "required": False, "type": "long"}]}
VERSION = {
    "version-id": 1,
    "timestamp-ms": 1,
    "schema-id": 0,
    "summary": {},
    "default-namespace": ["db"],
    "representations": [{"type": "sql", "sql": "select 1 as id", "dialect": "spark"}],
}


def sql(_request, tmp_path):
    database = tmp_path / "c.db"
    catalog = load_catalog("prod", type="sql", uri=f"sqlite:///{database}", warehouse=(tmp_path / "w").as_uri())

    def make_view():
        with closing(sqlite3.connect(database)) as connection, connection:
            connection.execute("insert into iceberg_tables values ('prod', 'db', 'v', '/v.json', null, 'VIEW')")

    return catalog, make_view


def rest(request, _tmp_path):
    server = request.getfixturevalue("iceberg_rest")
    catalog = load_catalog("prod", **server.catalog_properties)
    uri = catalog.properties["uri"]
    if requests.get(f"{uri}/v1/namespaces/db/views", timeout=10).ok:
        requests.delete(f"{uri}/v1/namespaces/db/views/v", timeout=10)
    empty(catalog)

    def make_view():
        body = {"name": "v", "schema": SCHEMA, "view-version": VERSION, "properties": {}}
        requests.post(f"{uri}/v1/namespaces/db/views", json=body, timeout=10).raise_for_status()

    return catalog, make_view


def glue(request, tmp_path):
    address = request.getfixturevalue("glue_address")
    requests.post(f"{address}/moto-api/reset", timeout=10).raise_for_status()
    keys = {"aws_access_key_id": "testing", "aws_secret_access_key": "testing", "region_name": KEYS["glue.region"]}
    client = boto3.client("glue", endpoint_url=address, **keys)
    own = {"glue.endpoint": address, "warehouse": (tmp_path / "w").as_uri(), **KEYS}
    return load_catalog("prod", type="glue", **own), lambda: client.create_table(
        DatabaseName="db", TableInput={"Name": "v", "TableType": "VIRTUAL_VIEW", "ViewOriginalText": "select 1"}
    )


def hive(request, tmp_path):
    uri = request.getfixturevalue("hive_2_3_10").uri
    empty_metastore(uri)

    def make_view():
        storage = StorageDescriptor(cols=[FieldSchema(name="x", type="int")], serdeInfo=SerDeInfo(parameters={}))
        view = HiveTable(dbName="db", tableName="v", sd=storage, parameters={}, partitionKeys=[])
        view.tableType, view.viewOriginalText, view.viewExpandedText = "VIRTUAL_VIEW", "select 1", "select 1"
        HiveClient("test", {"uri": uri}).call("create_table", tbl=view)

    return load_catalog("prod", uri=uri, warehouse=(tmp_path / "w").as_uri()), make_view


def nessie(request, tmp_path):
    uri = request.getfixturevalue("nessie")
    branch = f"views-{tmp_path.name.replace('_', '-')}"
    start = requests.get(f"{uri}/config", timeout=10).json()["noAncestorHash"]
    source = {"type": "BRANCH", "name": "main", "hash": start}
    requests.post(f"{uri}/trees", params={"name": branch, "type": "BRANCH"}, json=source, timeout=10).raise_for_status()

    def make_view():
        head = requests.get(f"{uri}/trees/{branch}", timeout=10).json()["reference"]["hash"]
        content = {"type": "ICEBERG_VIEW", "metadataLocation": "/v.json", "versionId": 1, "schemaId": 0}
        operation = {"type": "PUT", "key": {"elements": ["db", "v"]}, "content": content}
        body = {"commitMeta": {"message": "by hand"}, "operations": [operation]}
        url = f"{uri}/trees/{branch}@{head}/history/commit"
        requests.post(url, json=body, timeout=10).raise_for_status()

    return load_catalog("prod", type="nessie", uri=uri, ref=branch, warehouse=(tmp_path / "w").as_uri()), make_view


CATALOGS = [sql, *(pytest.param(each, marks=pytest.mark.services) for each in (glue, rest, hive, nessie))]


@pytest.mark.parametrize("kind", CATALOGS)
class TestAView:
    """It is no table, and its name is taken."""

    @pytest.fixture
    def catalog(self, kind, request, tmp_path):
        catalog, make_view = kind(request, tmp_path)
        catalog.create_namespace("db", if_not_exists=True)
        make_view()
        return catalog

    def test_is_named_whatever_is_asked_for(self, catalog):
        assert catalog.list_tables("db") == ()
        assert not catalog.table_exists("db.v")
        asks = {
            "load": catalog.load,
            "load by a task": lambda name: Table.load(catalog, name),
            "drop": catalog.drop_table,
            "purge": lambda name: catalog.drop_table(name, purge=True),
            "rename": lambda name: catalog.rename_table(name, "db.u"),
        }
        for ask in asks.values():
            with pytest.raises(NotFoundError, match=r"db\.v.* \(?(it )?is .*view"):
                ask("db.v")

    def test_its_name_is_taken(self, catalog):
        with pytest.raises(AlreadyExistsError, match=r"^db\.v exists already in catalog prod: it is a view; give"):
            make_table(catalog, "db.v")
        made = make_table(catalog, "db.t")
        with pytest.raises(AlreadyExistsError, match=r"^cannot rename db\.t: db\.v exists already .* it is a view"):
            catalog.rename_table("db.t", "db.v")
        assert catalog.load("db.t") == made

    def test_its_namespace_is_not_empty(self, catalog):
        with pytest.raises(
            InvalidInputError, match=r"^namespace db\S* is not empty: it holds view \S*v; drop that first, with"
        ):
            catalog.drop_namespace("db")

    def test_a_missing_name_is_still_a_missing_table(self, catalog):
        with pytest.raises(NotFoundError, match=r"there is no table db\.w") as raised:
            Table.load(catalog, "db.w")
        assert raised.value.is_unknown_name
